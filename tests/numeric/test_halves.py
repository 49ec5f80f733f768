"""float16 and bfloat16: conversions, arithmetic in float32 that rounds at every operation, sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from loopwright import dtypes, te
from loopwright.codegen.llvm.compiler import compile_func
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import create_schedule
from loopwright.target import Target
from loopwright.testing.target_contract import runs_here
from tests.covering import covering
from tests.kernels import build

# ml_dtypes sets the flag of invalid operations when it only looks at a NaN.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value")
#: The second has no instruction for float16 and no fma.
TARGETS = [t for t in ("llvm -num-threads=1", "llvm -num-threads=1 -mcpu=x86-64") if runs_here(t)]
HALVES = ("float16", "bfloat16")
Array = np.ndarray[Any, Any]


def everything(dtype: str) -> Array:
    """Every value of a format; NaN once."""
    x = np.arange(65536, dtype=np.uint16).view(dtypes.check(dtype))
    return np.asarray(np.append(x[~np.isnan(x)], np.array(np.nan, dtype)))


def run(f: Callable[..., Any], *inputs: Array, oracle: bool = True) -> list[Array]:
    """``f`` over arrays by the interpreter (if it is asked), and as scalar and vector code."""
    return [got for (got,) in run_all([f], *inputs, oracle=oracle)]


def run_all(
    functions: Sequence[Callable[..., Any]], *inputs: Array, oracle: bool = True
) -> list[list[Array]]:
    """As `run`, several functions of the same arrays as one kernel."""
    n = len(inputs[0])
    args = [te.placeholder((n,), x.dtype.name, name=f"A{i}") for i, x in enumerate(inputs)]
    outs = [te.compute((n,), lambda i, f=f: f(*(a[i] for a in args)), name="B") for f in functions]
    results = []
    for vector in (False, True):
        s = create_schedule([B.op for B in outs])
        for B in outs if vector else ():
            s[B].vectorize(s[B].split(B.op.axis[0], 32)[1])
        targets = ["interp"] * oracle + TARGETS if not vector else TARGETS
        for target in targets:
            found = [np.zeros(n, B.dtype) for B in outs]
            if target == "interp":
                interpret(lower(s, [*args, *outs]), [*inputs, *found])
            else:
                build(s, [*args, *outs], target=target)(*inputs, *found)
            results.append(found)
    return results


def same(got: Array, want: Array, what: str = "") -> None:
    """Bit for bit, but for the payload of NaN."""
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan, what)
    kind = {2: np.uint16, 4: np.uint32, 8: np.uint64}[want.itemsize]
    np.testing.assert_array_equal(got[~nan].view(kind), want[~nan].view(kind), what)


@pytest.mark.parametrize("dtype", HALVES)
def test_every_value_survives_a_copy_and_becomes_a_float32(dtype: str) -> None:
    x = everything(dtype)
    for got in run(lambda v: v, x, oracle=False):
        same(got, x)
    for got in run(lambda v: v.astype("float32"), x, oracle=False):
        same(got, x.astype("float32"))


@pytest.mark.parametrize("dtype", HALVES)
def test_float32_rounds_to_nearest_even(dtype: str) -> None:
    """Values of the format, halfway between them, and one bit to either side; and random bits."""
    v = everything(dtype).astype("float32")
    v = v[np.isfinite(v)]
    half = np.sort(v)
    half = (half[1:].astype("float64") + half[:-1]) / 2
    mid = half.astype("float32")
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, 1 << 18, np.uint8).view("float32")
    edges = np.float32([np.inf, -np.inf, np.nan, 65504, 65519.996, 65520, 3.3895e38, 3.4e38])
    up = np.float32(np.inf)
    with np.errstate(all="ignore"):
        x = np.concatenate([mid, np.nextafter(mid, up), np.nextafter(mid, -up), noise, edges])
        want = x.astype(dtypes.check(dtype))
    for got in run(lambda a: a.astype(dtype), x, oracle=False):
        same(got, want)


@pytest.mark.parametrize("dtype", HALVES)
def test_other_types_convert_through_float32(dtype: str) -> None:
    rng = np.random.default_rng(1)
    d = np.append(rng.standard_normal(300) * 100, [1e300, -1e300, 1 + 2.0**-11 + 2.0**-40, np.nan])
    with np.errstate(all="ignore"):
        want = d.astype("float32").astype(dtypes.check(dtype))
    for got in run(lambda a: a.astype(dtype), d):
        same(got, want)
    i = rng.integers(-(2**31), 2**31, 300).astype("int32")
    i[:4] = [2049, 2051, -2049, 257]
    with np.errstate(all="ignore"):
        want = i.astype("float32").astype(dtype)
    for got in run(lambda a: a.astype(dtype), i):
        same(got, want)
    h = np.array([1.5, -2.75, 300, -np.inf, np.nan, 0], dtype)
    for got in run(lambda a: a.astype("int8"), h):
        np.testing.assert_array_equal(got, [1, -2, 127, -128, 0, 0])
    for got in run(lambda a: a.astype("float64") > 1, h):
        np.testing.assert_array_equal(got, [1, 0, 1, 0, 0, 0])


@pytest.mark.parametrize("dtype", HALVES)
def test_every_operation_rounds(dtype: str) -> None:
    """As NumPy does it: in float32, then to the format."""
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(331).astype(dtypes.check(dtype)) for _ in range(2))
    a[:5], b[:5] = [np.nan, np.inf, 60000, 1e-7, 0], [1, -np.inf, 60000, 2e-5, 0]
    f: dict[str, Any] = {
        "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
        "/": lambda x, y: x / y, "+*": lambda x, y: (x + y) * y,
    }  # fmt: skip
    ours: dict[str, Any] = f | {"max": te.max, "min": te.min}
    theirs: dict[str, Any] = f | {"max": np.maximum, "min": np.minimum}
    with np.errstate(all="ignore"):
        wanted = {op: theirs[op](a, b) for op in ours}
    for found in run_all(list(ours.values()), a, b):
        for got, (op, want) in zip(found, wanted.items(), strict=True):
            assert got.dtype == want.dtype == dtype
            same(got, want, op)


@pytest.mark.parametrize("dtype", HALVES)
def test_functions_are_those_of_float32_rounded(dtype: str) -> None:
    x = np.linspace(-4, 4, 389).astype(dtypes.check(dtype))
    w = x.astype("float64")
    names = ("exp", "tanh", "sin", "floor", "abs")
    functions = [*(partial(te.call, name) for name in names), lambda v: te.fma(v, v, -v)]
    wanted = [*(getattr(np, name)(w) for name in names), w * w - w]
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    for found in run_all(functions, x):
        for name, got, want in zip((*names, "fma"), found, wanted, strict=True):
            assert got.dtype == dtype
            got = got.astype("float64")
            np.testing.assert_allclose(got, want, rtol=eps * 0.51, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_bits_of_a_value(dtype: str) -> None:
    x = everything(dtype)[:-1]
    for got in run(lambda v: te.reinterpret("int16", v), x, oracle=False):
        np.testing.assert_array_equal(got, x.view("int16"))
    for got in run(lambda v: te.reinterpret(dtype, v ^ -32768), x.view("int16"), oracle=False):
        same(got, -x)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_matmul_that_accumulates_in_float32(dtype: str) -> None:
    n = 33
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((n, n)).astype(dtypes.check(dtype)) for _ in range(2))
    A, B = (te.placeholder((n, n), dtype, name=x) for x in "AB")
    k = te.reduce_axis(n, "k")
    wide = [lambda i, j: A[i, j].astype("float32"), lambda i, j: B[i, j].astype("float32")]
    C = te.compute((n, n), lambda i, j: te.sum(wide[0](i, k) * wide[1](k, j), axis=k), name="C")
    D = te.compute((n, n), lambda i, j: C[i, j].astype(dtype), name="D")
    s = create_schedule(D)
    i, j = C.op.axis
    s[C].reorder(i, k, j)
    s[C].vectorize(j)
    s[D].vectorize(D.op.axis[1])
    want = a.astype("float64") @ b.astype("float64")
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    for target in TARGETS:
        got = np.zeros((n, n), dtype)
        build(s, [A, B, D], target=target)(a, b, got)
        np.testing.assert_allclose(got.astype("float64"), want, rtol=eps * 1.01, atol=1e-4)


@pytest.mark.skipif(not runs_here("llvm -mcpu=x86-64"), reason="x86 only")
@pytest.mark.parametrize(
    ("dtype", "cpu"), covering(HALVES, ["x86-64", "x86-64-v3", "x86-64-v4"], strength=1)
)
def test_no_call_of_a_library(dtype: str, cpu: str) -> None:
    A = te.placeholder((64,), dtype, name="A")
    B = te.compute((64,), lambda i: A[i] * A[i] + 1.0, name="B")
    s = create_schedule(B)
    s[B].vectorize(B.op.axis[0])
    f = lower(s, [A, B])
    text = compile_func(f, Target(f"llvm -num-threads=1 -mcpu={cpu}")).source("asm")
    assert [line for line in text.splitlines() if "call" in line] == []
    if dtype == "float16" and cpu != "x86-64":
        assert "vcvtph2ps" in text
        assert "vcvtps2ph" in text


def test_the_two_formats_meet_in_float32() -> None:
    x, y = te.Var("x", "float16"), te.Var("y", "bfloat16")
    assert (x + y).dtype == "float32"
    assert (x + 1.0).dtype == "float16"
    assert (x + te.Var("i", "int32")).dtype == "float16"
    assert te.const(1.0 + 2.0**-9, "bfloat16").value == 1.0  # type: ignore[attr-defined]
