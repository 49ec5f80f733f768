"""Math functions and 16-bit floats of the C target: what LLVM computes, to the bit."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
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


def schedule(dtype: str, f: Callable[..., Any], kind: str) -> tuple[Any, list[Any]]:
    """A loop over ``f(a[i])``, with as many arrays as ``f`` takes."""
    count = len(inspect.signature(f).parameters)
    given = [te.placeholder((N,), dtype, name=n) for n in "ABC"[:count]]
    out = te.compute((N,), lambda i: f(*(t[i] for t in given)), name="O")
    s = create_schedule(out)
    if kind == "vectorized":
        s[out].vectorize(s[out].split(out.op.axis[0], factor=48)[1])
    return s, [*given, out]


def run(target: str, dtype: str, f: Callable[..., Any], kind: str, out: str = "") -> Any:
    s, args = schedule(dtype, f, kind)
    arrays = [numbers(dtype, k) for k in range(len(args) - 1)] + [np.zeros(N, out or dtype)]
    kernels.build(s, args, target, "k")(*arrays)
    return arrays[-1]


def assert_same_bits(want: Any, got: Any) -> None:
    """Equal with signs of zeros; a NaN is a NaN."""
    with np.errstate(invalid="ignore"):
        nan = np.isnan(want.astype("float64"))
        np.testing.assert_array_equal(np.isnan(got.astype("float64")), nan)
    bits = FLOATS[want.dtype.name]
    np.testing.assert_array_equal(got.view(bits)[~nan], want.view(bits)[~nan])


def function(fn: str) -> Callable[..., Any]:
    """A function of the IR by its name."""
    if fn == "pow":
        return lambda a, b: te.pow(a, b)
    if fn == "fma":
        return te.fma
    return lambda a: getattr(te, fn)(a)


DEFINITIONS = [(d, fn) for d, names in DEFINED.items() for fn in names if not fn.startswith("_")]


@pytest.mark.parametrize(("dtype", "fn"), DEFINITIONS)
def test_functions_are_those_of_llvm(dtype: str, fn: str) -> None:
    want = run("llvm -num-threads=1", dtype, function(fn), "vectorized")
    for kind in KINDS:
        assert_same_bits(want, run("c -num-threads=1", dtype, function(fn), kind))


@pytest.mark.parametrize("fn", ["exp", "sin", "erf", "pow", "fma"])
@pytest.mark.parametrize("level", [0, 3])
def test_functions_on_any_cpu_at_any_level(fn: str, level: int) -> None:
    """Without the instruction fma is emulated, as LLVM's target does it."""
    if not runs_here("c -mcpu=x86-64"):
        pytest.skip("no x86-64")
    want = run("llvm -num-threads=1 -mcpu=x86-64", "float32", function(fn), "serial")
    target = f"c -num-threads=1 -mcpu=x86-64 -opt-level={level}"
    for kind in KINDS:
        assert_same_bits(want, run(target, "float32", function(fn), kind))


@pytest.mark.parametrize("fn", ["exp", "tanh", "sin"])
def test_fastmath_does_not_break_functions(fn: str) -> None:
    want = run("llvm -num-threads=1", "float32", function(fn), "serial")
    assert_same_bits(want, run("c -fastmath=true", "float32", function(fn), "vectorized"))


@pytest.mark.parametrize("fn", ["exp", "log", "sin", "tanh", "erf", "pow", "rsqrt", "fma"])
def test_vector_loops_call_nothing(fn: str) -> None:
    s, args = schedule("float32", function(fn), "vectorized")
    assembly = build(s, args, "c -num-threads=1", name="k").get_source("asm")
    calls = [line.split()[-1] for line in assembly.splitlines() if "\tcall" in line]
    assert calls == [] or (fn == "fma" and not runs_here("c -mcpu=x86-64-v3"))


def test_text_of_a_definition(golden: Any) -> None:
    s, args = schedule("float32", lambda a, b: te.exp(a) + te.cos(b), "serial")
    golden(c.write_c(lower(s, args, "k"), Target("c -mcpu=x86-64-v3"))[0])


def test_products_are_contracted_where_the_cpu_can() -> None:
    s, args = schedule("float32", lambda a, b, d: d - a * b, "serial")
    f = lower(s, args, "k")
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


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_those_of_llvm(dtype: str, name: str) -> None:
    pytest.importorskip("ml_dtypes")
    f = EXPRESSIONS[name]
    want = run("llvm -num-threads=1", dtype, f, "serial")
    for kind in KINDS:
        assert_same_bits(want, run("c -num-threads=1", dtype, f, kind))


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
    f: Callable[..., Any] = lambda a: te.cast(a, dtype)  # noqa: E731
    with np.errstate(over="ignore", invalid="ignore"):
        want = numbers("float32", 0).astype(dtype)
    assert_same_bits(want, run("c", "float32", f, "vectorized", dtype))
    to_int: Callable[..., Any] = lambda a: te.cast(a, "int8")  # noqa: E731
    ints = run("c", dtype, to_int, "vectorized", "int8")
    np.testing.assert_array_equal(ints, run("llvm", dtype, to_int, "serial", "int8"))
