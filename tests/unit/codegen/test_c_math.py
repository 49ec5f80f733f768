"""Math functions and 16-bit floats of the C target: what LLVM computes, to the bit."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.codegen.c import compiler as c
from loopwright.codegen.c import system_compiler as cc
from loopwright.driver import build
from loopwright.ir.math.vector_math import DEFINED
from loopwright.lowering import lower
from loopwright.schedule import create_schedule
from loopwright.target import Target
from loopwright.testing.target_contract import runs_here
from tests import kernels

pytestmark = pytest.mark.skipif(
    shutil.which(Target("c").cc) is None, reason=f"no C compiler here: {cc.INSTALL}"
)
N = 1000
KINDS = ("serial", "vectorized")
FLOATS = {"float32": np.uint32, "float64": np.uint64, "float16": np.uint16, "bfloat16": np.uint16}
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3e4, -5e4, 0.5, 1e-7)


def numbers(dtype: str, seed: int) -> Any:
    """Numbers of ordinary size, random bit patterns, and special values."""
    rng = np.random.default_rng(seed)
    ordinary = rng.normal(0, 10, N // 2).astype(dtype)
    top = np.iinfo(FLOATS[dtype]).max
    patterns = rng.integers(0, top, N // 2, FLOATS[dtype], endpoint=True).view(dtype)
    out = np.concatenate([ordinary, patterns])
    with np.errstate(over="ignore"):
        out[10 : 10 + len(SPECIAL)] = np.array(SPECIAL).astype(dtype)
    return out


#: A function of numbers of a dtype, the kind of its loop, and the dtype of the result.
Case = tuple[str, Callable[..., Any], str, str]


def schedule(cases: Sequence[Case]) -> tuple[Any, list[Any], list[Any]]:
    """A loop over ``f(a[i])`` for each case, with as many arrays as its function takes."""
    given: dict[tuple[str, int], Any] = {}
    outs = []
    for dtype, f, _, _ in cases:
        names = "ABC"[: len(inspect.signature(f).parameters)]
        for k, name in enumerate(names):
            given.setdefault((dtype, k), te.placeholder((N,), dtype, name=name))
        operands = [given[dtype, k] for k in range(len(names))]
        outs.append(te.compute((N,), lambda i, f=f, ts=operands: f(*(t[i] for t in ts)), name="O"))
    s = create_schedule([out.op for out in outs])
    for out, (_, _, kind, _) in zip(outs, cases, strict=True):
        if kind == "vectorized":
            s[out].vectorize(s[out].split(out.op.axis[0], factor=48)[1])
    return s, list(given.values()), outs


def run(target: str, cases: Sequence[Case]) -> list[Any]:
    """The results of all cases, which are compiled together."""
    s, given, outs = schedule(cases)
    inputs = [numbers(t.dtype, "ABC".index(t.op.name)) for t in given]
    results = [np.zeros(N, out or dtype) for dtype, _, _, out in cases]
    kernels.build(s, [*given, *outs], target, "k")(*inputs, *results)
    return results


def assert_same_bits(want: Any, got: Any) -> None:
    """Equal with signs of zeros; a NaN is a NaN."""
    with np.errstate(invalid="ignore"):
        nan = np.isnan(want.astype("float64"))
        np.testing.assert_array_equal(np.isnan(got.astype("float64")), nan)
    bits = FLOATS[want.dtype.name]
    np.testing.assert_array_equal(got.view(bits)[~nan], want.view(bits)[~nan])


def assert_same(target: str, reference: str, cases: Mapping[str, Case]) -> None:
    """Loops of both kinds give the same bits for each case as that case does for a reference."""
    wanted = run(reference, list(cases.values()))
    wrong = []
    for kind in KINDS:
        results = run(target, [(dtype, f, kind, out) for dtype, f, _, out in cases.values()])
        for name, want, got in zip(cases, wanted, results, strict=True):
            try:
                assert_same_bits(want, got)
            except AssertionError as error:
                wrong.append(f"{name}, {kind}: {error}")
    assert not wrong, "\n".join(wrong)


def function(fn: str) -> Callable[..., Any]:
    """A function of the IR by its name."""
    if fn == "pow":
        return lambda a, b: te.pow(a, b)
    if fn == "fma":
        return te.fma
    return lambda a: getattr(te, fn)(a)


@pytest.mark.parametrize(
    "dtype",
    [d if d == "float64" else pytest.param(d, marks=pytest.mark.slow) for d in DEFINED],
)
def test_functions_are_those_of_llvm(dtype: str) -> None:
    names = [fn for fn in DEFINED[dtype] if not fn.startswith("_")]
    cases = {fn: (dtype, function(fn), "vectorized", "") for fn in names}
    assert_same("c -num-threads=1", "llvm -num-threads=1", cases)


@pytest.mark.parametrize("level", [0, 3])
def test_functions_on_any_cpu_at_any_level(level: int) -> None:
    """Without the instruction fma is emulated, as LLVM's target does it."""
    if not runs_here("c -mcpu=x86-64"):
        pytest.skip("no x86-64")
    names = ["exp", "sin", "erf", "pow", "fma"]
    cases = {fn: ("float32", function(fn), "serial", "") for fn in names}
    target = f"c -num-threads=1 -mcpu=x86-64 -opt-level={level}"
    assert_same(target, "llvm -num-threads=1 -mcpu=x86-64", cases)


def test_fastmath_does_not_break_functions() -> None:
    names = ["exp", "tanh", "sin"]
    want = run("llvm -num-threads=1", [("float32", function(fn), "serial", "") for fn in names])
    cases = [("float32", function(fn), "vectorized", "") for fn in names]
    for x, y in zip(want, run("c -fastmath=true", cases), strict=True):
        assert_same_bits(x, y)


@pytest.mark.parametrize("names", [["exp", "log", "sin", "tanh", "erf", "pow", "rsqrt"], ["fma"]])
def test_vector_loops_call_nothing(names: list[str]) -> None:
    s, given, outs = schedule([("float32", function(fn), "vectorized", "") for fn in names])
    assembly = build(s, [*given, *outs], "c -num-threads=1", name="k").get_source("asm")
    calls = [line.split()[-1] for line in assembly.splitlines() if "\tcall" in line]
    assert calls == [] or (names == ["fma"] and not runs_here("c -mcpu=x86-64-v3"))


def test_text_of_a_definition(golden: Any) -> None:
    s, given, outs = schedule([("float32", lambda a, b: te.exp(a) + te.cos(b), "serial", "")])
    golden(c.write_c(lower(s, [*given, *outs], "k"), Target("c -mcpu=x86-64-v3"))[0])


def test_products_are_contracted_where_the_cpu_can() -> None:
    s, given, outs = schedule([("float32", lambda a, b, d: d - a * b, "serial", "")])
    f = lower(s, [*given, *outs], "k")
    fused = c.write_c(f, Target("c -mcpu=x86-64-v3"))[0]
    assert "O[i] = fmaf(-A[i], B[i], C[i]);" in fused
    if runs_here("c -mcpu=x86-64"):
        assert "O[i] = C[i] - A[i] * B[i];" in c.write_c(f, Target("c -mcpu=x86-64"))[0]


# ------------------------------------------------------------------ 16-bit floats

EXPRESSIONS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda a, b, d: a * b + d / (a - b),
    "choice": lambda a, b, d: te.select(a < b, te.max(a, d), te.min(-b, d)),
    "functions": lambda a, b, d: te.exp(a) + te.sqrt(b) + te.floor(d) + te.sigmoid(te.abs(b)),
    "literal": lambda a: a * 0.1 + 1.5,
    "fma": te.fma,
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_those_of_llvm(dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    cases = {name: (dtype, f, "serial", "") for name, f in EXPRESSIONS.items()}
    assert_same("c -num-threads=1", "llvm -num-threads=1", cases)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_value_of_a_half_is_read_and_written(dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    a = te.placeholder((1 << 16,), dtype, name="A")
    wide = te.compute((1 << 16,), lambda i: te.cast(a[i], "float32"), name="W")
    back = te.compute((1 << 16,), lambda i: te.cast(wide[i], dtype), name="B")
    bits = te.compute((1 << 16,), lambda i: te.reinterpret("int16", a[i]), name="I")
    s = create_schedule([wide, back, bits])
    data = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    w, b = np.zeros(1 << 16, "float32"), np.zeros(1 << 16, dtype)
    i = np.zeros(1 << 16, "int16")
    kernels.build(s, [a, wide, back, bits], "c")(data, w, b, i)
    np.testing.assert_array_equal(w, data.astype("float32"))
    assert_same_bits(data, b)
    good = ~np.isnan(w)
    np.testing.assert_array_equal(i[good], data.view("int16")[good])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_casts_round_to_nearest_even(dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    to_half: Case = "float32", lambda a: te.cast(a, dtype), "vectorized", dtype
    to_int: Case = dtype, lambda a: te.cast(a, "int8"), "vectorized", "int8"
    with np.errstate(over="ignore", invalid="ignore"):
        want = numbers("float32", 0).astype(dtype)
    halves, ints = run("c", [to_half, to_int])
    assert_same_bits(want, halves)
    (same,) = run("llvm", [(dtype, to_int[1], "serial", "int8")])
    np.testing.assert_array_equal(ints, same)
