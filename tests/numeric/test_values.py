"""What single operations mean: NaN, integer division and overflow, conversions, bool, intrinsics.

Each is checked as scalar and as vector code, on the interpreter, on compiled code, and against an
expectation written down here or computed by NumPy in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.ir.expr import INTRINSICS
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import create_schedule
from tests.covering import covering
from tests.kernels import build
from tests.numeric.programs import ELEMENTWISE, Array, check, compare

NAN, INF = math.nan, math.inf


# ---------------------------------------------------------------- floats


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_min_and_max_give_nan_when_either_operand_is(dtype: str) -> None:
    a = np.array([1, NAN, 1, NAN, -INF, INF, 2.5], dtype)
    b = np.array([2, 1, NAN, NAN, NAN, -INF, 2.5], dtype)
    check(
        (lambda x, y: te.max(x, y), np.maximum(a, b), a, b),
        (lambda x, y: te.min(x, y), np.minimum(a, b), a, b),
    )


@pytest.mark.parametrize(
    "dtype", ["float32", *(pytest.param(d, marks=pytest.mark.slow) for d in ("float16", "float64"))]
)  # three kernels of 20 cases each
def test_min_and_max_with_a_number_give_nan_and_the_zero_of_the_second_operand(dtype: str) -> None:
    tiny, six = np.finfo(dtype).smallest_subnormal, np.array(6, dtype)
    near = [np.nextafter(six, np.array(end, dtype)) for end in (0, INF)]
    x = np.array([NAN, -NAN, INF, -INF, 0.0, -0.0, tiny, -tiny, 6, -6, *near, 1], dtype)

    def chosen(takes: np.ufunc, a: Array, b: Array) -> Array:
        return np.where(np.isnan(a) | takes(a, b), a, b)

    def equal(got: Array, want: Array) -> None:
        np.testing.assert_array_equal(got, want.astype(dtype))
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])

    cases: dict[str, tuple[Any, ...]] = {}
    for name, f, takes in (("max", te.max, np.greater), ("min", te.min, np.less)):
        for c in (0.0, -0.0, 6.0, -INF, NAN):
            limit = np.full(x.shape, c, dtype)
            second, first = chosen(takes, x, limit), chosen(takes, limit, x)
            cases[f"{name}(x, {c})"] = (lambda v, f=f, c=c: f(v, c), second, x)
            cases[f"{name}({c}, x)"] = (lambda v, f=f, c=c: f(c, v), first, x)
    compare(equal, cases)


@pytest.mark.parametrize("vector", [False, True])
def test_reductions_by_min_and_max_keep_nan(vector: bool) -> None:
    a = np.array([[1, 5, NAN, 2], [3, 4, 1, 2], [NAN, 1, 2, 3], [1, 2, 3, NAN]], "float32")
    A = te.placeholder(a.shape, name="A")
    k = te.reduce_axis(4, "k")
    for reducer, want in ((te.max, [NAN, 4, NAN, NAN]), (te.min, [NAN, 1, NAN, NAN])):
        B = te.compute((4,), lambda i, r=reducer: r(A[i, k], axis=k), name="B")
        s = create_schedule(B)
        s[B].reorder(k, B.op.axis[0])
        if vector:
            s[B].vectorize(B.op.axis[0])
        b = np.zeros(4, "float32")
        build(s, [A, B])(a, b)
        np.testing.assert_array_equal(b, np.array(want, "float32"))
        interpret(lower(s, [A, B]), [a, b])
        np.testing.assert_array_equal(b, np.array(want, "float32"))


def test_comparisons_with_nan_are_false_but_for_unequal() -> None:
    a = np.array([1, NAN, NAN, 2], "float32")
    b = np.array([NAN, 1, NAN, 2], "float32")
    check(
        (lambda x, y: x < y, [0, 0, 0, 0], a, b),
        (lambda x, y: x >= y, [0, 0, 0, 1], a, b),
        (te.equal, [0, 0, 0, 1], a, b),
        (te.not_equal, [1, 1, 1, 0], a, b),
    )


def test_floats_become_integers_by_truncation_within_limits() -> None:
    a = np.array([1.9, -1.9, 1e30, -1e30, INF, -INF, NAN, 300.0, -129.5], "float32")
    lo, hi, top = -(2**31), 2**31 - 1, 2**63 - 1
    want = [1, -1, top, -top - 1, top, -top - 1, 0, 300, -129]
    check(
        (lambda x: x.astype("int32"), [1, -1, hi, lo, hi, lo, 0, 300, -129], a),
        (lambda x: x.astype("int8"), [1, -1, 127, -128, 127, -128, 0, 127, -128], a),
        (lambda x: x.astype("uint8"), [1, 0, 255, 0, 255, 0, 0, 255, 0], a),
        (lambda x: x.astype("int64"), want, a.astype("float64")),
    )
    assert te.const(1e30, "float32").astype("int8").value == 127
    assert te.const(NAN, "float32").astype("int8").value == 0


def test_conversions_between_widths() -> None:
    a = np.array([0, 1, 127, 128, 255, 256, -1, -128, -129, 70000], "int32")
    b = np.array([0, 1, 127, 128, 255], "uint8")
    c = np.array([0.5, -1.25, 1e300, NAN], "float64")
    with np.errstate(over="ignore"):
        narrow = c.astype("float32")
    check(
        *(
            (lambda x, d=dtype: x.astype(d), a.astype(dtype), a)
            for dtype in ("int8", "uint8", "int16", "int64", "bool", "float32", "float64")
        ),
        *(
            (lambda x, d=dtype: x.astype(d), b.astype(dtype), b)
            for dtype in ("int8", "int16", "int32", "int64", "bool", "float32")
        ),
        (lambda x: x.astype("float32"), narrow, c),
        (lambda x: x.astype("bool"), [1, 1, 1, 1], c),
    )


# ---------------------------------------------------------------- integers


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_division_by_a_tensor_never_traps(dtype: str) -> None:
    lo, hi = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = [lo, hi, 0, 1, 7, lo + 1, hi - 1] + ([-1, -7] if lo else [])
    a, b = (np.array(x, dtype) for x in zip(*[(p, q) for p in values for q in values], strict=True))

    def by(f: Callable[[int, int], int]) -> list[int]:
        """Exact in Python, zero for a zero divisor, wrapped to the dtype."""
        exact = [0 if q == 0 else f(int(p), int(q)) for p, q in zip(a, b, strict=True)]
        return [int(np.array(v % 2 ** (8 * a.itemsize), "uint64").astype(dtype)) for v in exact]

    def trunc(p: int, q: int) -> int:
        return abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)

    check(
        (lambda x, y: x // y, by(lambda p, q: p // q), a, b),
        (lambda x, y: x % y, by(lambda p, q: p % q), a, b),
        (te.truncdiv, by(trunc), a, b),
        (te.truncmod, by(lambda p, q: p - q * trunc(p, q)), a, b),
    )


def test_division_by_a_constant() -> None:
    a = np.arange(-128, 128).astype("int8")
    cases: list[tuple[Any, ...]] = []
    for n in (1, 2, 3, 8, 127, -1, -2, -7):
        with np.errstate(over="ignore"):
            cases.append((lambda x, n=n: x // n, a // np.int8(n), a))
            cases.append((lambda x, n=n: x % n + (x - x), a % np.int8(n), a))
    check(*cases)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_integer_overflow_wraps(dtype: str) -> None:
    lo, hi = np.iinfo(dtype).min, np.iinfo(dtype).max
    a = np.array([hi, lo, hi, lo, 3], dtype)
    b = np.array([1, hi, hi, lo, 4], dtype)
    check(
        (lambda x, y: x + y, a + b, a, b),
        (lambda x, y: x - y, a - b, a, b),
        (lambda x, y: x * y, a * b, a, b),
        (lambda x: -x, -a, a),
        (te.abs, np.abs(a), a),
    )


def test_arithmetic_on_axes_wraps_as_any_other() -> None:
    """Also where it is divided or compared, which indices computed in 64 bits would get wrong."""
    n, big = 9, 2**29
    f = [
        (lambda i: i * big, lambda i: i * np.int32(big)),
        (lambda i: (i * big) // 3, lambda i: i * np.int32(big) // 3),
        (lambda i: te.select(i * big < 5, 1, 0), lambda i: (i * np.int32(big) < 5).astype("i4")),
        (lambda i: (i * big).astype("int64"), lambda i: (i * np.int32(big)).astype("i8")),
        (lambda i: i.astype("int64") * big // 3, lambda i: i.astype("i8") * big // 3),
        (lambda i: te.max(i * big, i) % 7, lambda i: np.maximum(i * np.int32(big), i) % 7),
    ]
    outs = [te.compute((n,), make, name="B") for make, _ in f]
    for vector in (False, True):
        s = create_schedule([B.op for B in outs])
        for B in outs if vector else ():
            s[B].vectorize(B.op.axis[0])
        for target in ("interpreter", *ELEMENTWISE):
            found = [np.zeros(n, B.dtype) for B in outs]
            if target == "interpreter":
                interpret(lower(s, outs), found)
            else:
                build(s, outs, target=target)(*found)
            for case, (got, (_, reference)) in enumerate(zip(found, f, strict=True)):
                want = reference(np.arange(n, dtype="int32"))
                np.testing.assert_array_equal(got, want, f"case {case}, {target}")


def test_inlining_does_not_change_what_wraps() -> None:
    A = te.compute((5,), lambda i: i * 2**28, name="A")
    B = te.compute((5,), lambda i: (A[i] * 4 + A[i]) // 5, name="B")
    a = np.arange(5, dtype="int32") * np.int32(2**28)
    want = (a * np.int32(4) + a) // np.int32(5)
    for inline in (False, True):
        s = create_schedule(B)
        if inline:
            s[A].compute_inline()
        got = np.zeros(5, "int32")
        build(s, [B])(got)
        np.testing.assert_array_equal(got, want)
        interpret(lower(s, [B]), [got])
        np.testing.assert_array_equal(got, want)


# ---------------------------------------------------------------- bool


def test_bool_tensors_are_bytes_in_memory() -> None:
    a = np.array([True, False] * 9 + [True], bool)
    b = np.array([True, True, False] * 6 + [False], bool)
    check(
        (lambda x, y: te.all(x, y), a & b, a, b),
        (lambda x, y: te.any(x, te.logical_not(y)), a | ~b, a, b),
        (lambda x, y: te.equal(x, y), a == b, a, b),
        (lambda x, y: te.select(x, y, te.logical_not(y)), np.where(a, b, ~b), a, b),
        (lambda x, y: x.astype("int32") + y.astype("float32"), a * 1 + b * 1, a, b),
    )


def test_any_nonzero_byte_of_a_bool_array_is_true() -> None:
    a = np.array([0, 1, 2, 128, 255], "uint8").view(bool)
    A = te.placeholder((5,), "bool", name="A")
    B = te.compute((5,), lambda i: te.select(A[i], 7, 3), name="B")
    got = np.zeros(5, "int32")
    build(create_schedule(B), [A, B])(a, got)
    assert got.tolist() == [3, 7, 7, 7, 7]


def test_a_strided_vector_of_bools(checker: Any) -> None:
    from fuzzing.differential import check_schedule

    A = te.placeholder((40,), "bool", name="A")
    B = te.compute((13, 3), lambda i, j: te.all(A[i * 3 + j], A[39 - i * 3]), name="B")
    s = create_schedule(B)
    s[B].vectorize(B.op.axis[0])
    check_schedule(s, [A, B], [np.arange(40) % 3 > 0], checker=checker)


# ---------------------------------------------------------------- promotion


def test_mixed_dtypes_promote_as_in_te() -> None:
    i8 = np.array([-3, 100, 7], "int8")
    u8 = np.array([250, 3, 9], "uint8")
    i64 = np.array([2**40, -5, 3], "int64")
    f32 = np.array([0.5, -2.0, 4.0], "float32")
    f64 = np.array([0.1, 1e-9, 3.0], "float64")
    check(
        (lambda x, y: x + y, i8.astype("f4") + f32, i8, f32),
        (lambda x, y: x * y, i8.astype("i8") * i64, i8, i64),
        (lambda x, y: x + y, i8.astype("u1") + u8, i8, u8),
        (lambda x, y: x + y, i64.astype("f4") + f32, i64, f32),
    )

    def near(got: Array, want: Array) -> None:
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, want, rtol=1e-15)

    compare(near, {"f32 * f64": (lambda x, y: x * y, f32.astype("f8") * f64, f32, f64)})


# ---------------------------------------------------------------- intrinsics

#: Sample points by function where not the default; all finite values there.
_POINTS: dict[str, Any] = {
    "exp": np.linspace(-20, 20, 33), "exp2": np.linspace(-20, 20, 33),
    "expm1": np.linspace(-5, 5, 33), "sinh": np.linspace(-8, 8, 33),
    "cosh": np.linspace(-8, 8, 33), "log": np.geomspace(1e-6, 1e6, 33),
    "log2": np.geomspace(1e-6, 1e6, 33), "log10": np.geomspace(1e-6, 1e6, 33),
    "log1p": np.linspace(-0.9, 30, 33), "sqrt": np.linspace(0, 50, 33),
    "rsqrt": np.linspace(0.01, 50, 33), "tan": np.linspace(-1.4, 1.4, 33),
}  # fmt: skip
_NUMPY: dict[str, Callable[..., Any]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": np.vectorize(math.erf),
    "atan": np.arctan,
    "round": np.rint,
    "pow": np.power,
}


#: A fourth of the functions is a kernel.
INTRINSICS_IN_PARTS = covering(
    [tuple(INTRINSICS)[n::4] for n in range(4)], ["float32", "float64"], strength=1
)


@pytest.mark.parametrize(("functions", "dtype"), INTRINSICS_IN_PARTS)
def test_intrinsics_against_numpy_in_float64(functions: tuple[str, ...], dtype: str) -> None:
    cases: dict[str, tuple[Any, ...]] = {}
    for fn in functions:
        x = _POINTS.get(fn, np.linspace(-6.25, 6.25, 33)).astype(dtype)
        args = [x]
        if fn in ("pow", "fmod"):
            args = [np.abs(x) + np.asarray(0.25, dtype), np.linspace(-3, 3.5, 33).astype(dtype)]
        want = _NUMPY.get(fn, getattr(np, fn, None))(*(a.astype("float64") for a in args))
        cases[fn] = (partial(te.call, fn), want, *args)

    def near(got: Array, want: Array) -> None:
        assert got.dtype == np.dtype(dtype)
        rtol = 4e-7 if dtype == "float32" else 2e-15
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-15)

    compare(near, cases)


@pytest.mark.parametrize(("functions", "dtype"), INTRINSICS_IN_PARTS)
def test_intrinsics_at_the_edges(functions: tuple[str, ...], dtype: str) -> None:
    """Infinities, NaN, zeros of both signs and denormals come out as NumPy has them."""
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([INF, -INF, NAN, 0.0, -0.0, tiny, -tiny, 1.0, -1.0], dtype)
    cases: dict[str, tuple[Any, ...]] = {}
    for fn in (f for f in functions if f not in ("pow", "fmod")):
        with np.errstate(all="ignore"):
            want = _NUMPY.get(fn, getattr(np, fn, None))(x.astype("float64")).astype(dtype)
        cases[fn] = (partial(te.call, fn), want, x)

    def near(got: Array, want: Array) -> None:
        np.testing.assert_allclose(got, want, rtol=4e-7 if dtype == "float32" else 2e-15)

    compare(near, cases)


def test_rounding_functions_are_exact() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2**23 + 1, -(2**25)], "float32")
    functions = {
        "floor": np.floor,
        "ceil": np.ceil,
        "trunc": np.trunc,
        "round": np.rint,
        "abs": np.abs,
    }
    check(*((partial(te.call, fn), reference(x), x) for fn, reference in functions.items()))


# ---------------------------------------------------------------- faults of LLVM


@pytest.mark.parametrize("rows", [2, 3, 4])
@pytest.mark.parametrize("points", [2, 3, 5])
def test_a_reduction_under_a_condition_on_its_row(rows: int, points: int) -> None:
    """Jump threading and InstCombine together lost the last point of the first row."""
    k = te.reduce_axis(points, "k")
    for modulus in (2, 3):
        R = te.compute(
            (1, rows),
            lambda i, j, m=modulus: te.sum(
                te.const(1.0, "float64"), axis=k, where=te.equal((j + 1) % m, 1)
            ),
            name="R",
        )
        N = te.compute((1, rows), lambda i, j, r=R: r[i, j] * 2, name="N")
        got = np.full((1, rows), NAN)
        build(create_schedule(N), [N], target="llvm -num-threads=1")(got)
        want = [2.0 * points if (j + 1) % modulus == 1 else 0.0 for j in range(rows)]
        assert got[0].tolist() == want
