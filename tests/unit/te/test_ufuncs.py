"""Functions and operators of NumPy on elements and on whole tensors, beside NumPy itself."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import driver, te
from loopwright.errors import TensorError
from loopwright.ir.expr import NUMPY
from loopwright.te.ufuncs import FUNCTIONS
from tests.kernels import build

INF, NAN = math.inf, math.nan
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, 7.5, 1e-3, 300.0, INF, -INF, NAN]


def edges(dtype: str) -> np.ndarray[Any, Any]:
    """Numbers of a dtype where functions differ."""
    if dtype == "bool":
        return np.array([False, True])
    if np.issubdtype(dtype, np.floating):
        return np.array(FLOATS, dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    numbers = [0, 1, 2, 3, 7, 31, 33, high - 1, high, low, low + 1, -1, -2, -7, 64]
    return (
        np.array(numbers).astype(dtype) if low < 0 else np.array([abs(n) for n in numbers], dtype)
    )


def check(made: list[tuple[Any, Any, str]], inputs: list[Any], arrays: list[Any]) -> None:
    """Compile all results as one kernel, and compare each with that of NumPy."""
    tensors = [t for t, _, _ in made]
    outs = [np.empty(t.static_shape, t.dtype) for t in tensors]
    ops = list(dict.fromkeys(t.op for t in tensors))
    build(te.create_schedule(ops), [*inputs, *tensors], "llvm")(*arrays, *outs)
    for (t, expected, text), out in zip(made, outs, strict=True):
        assert t.dtype == expected.dtype.name, text
        if t.dtype.startswith("float"):
            eps = 4 * np.finfo(t.dtype).eps
            np.testing.assert_allclose(out, expected, eps, 0, err_msg=text)
            zeros = (expected == 0) & (out == 0)
            alike = (np.signbit(out) == np.signbit(expected))[zeros].all()
            assert alike or text.startswith(("maximum", "minimum", "fmax", "fmin")), text
        else:
            np.testing.assert_array_equal(out, expected, text)


def of_all(functions: list[Callable[..., Any]], dtypes: list[str]) -> None:
    """Every function of one or two operands of these dtypes, that NumPy has."""
    arrays = [edges(d) for d in dtypes]
    if len(arrays) == 2:
        arrays = [arrays[0][:, None], arrays[1][None, :]]
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"x{n}") for n, a in enumerate(arrays)]
    made = []
    for f in functions:
        try:
            expected = f(*arrays)
        except (TypeError, ValueError):
            with pytest.raises(TensorError):
                f(*inputs)
            continue
        got = f(*inputs)
        several = got if isinstance(got, tuple) else (got,)
        wanted = expected if isinstance(got, tuple) else (expected,)
        made += [(t, w, f"{f.__name__} {dtypes}") for t, w in zip(several, wanted, strict=True)]
    check(made, inputs, arrays)


UFUNCS = [f for f in FUNCTIONS if isinstance(f, np.ufunc)]
UNARY = [f for f in UFUNCS if f.nin == 1 and f is not np.reciprocal]
BINARY = [f for f in UFUNCS if f.nin == 2 and f not in (np.power, np.float_power)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_functions_of_one_operand(dtype: str) -> None:
    of_all(UNARY, [dtype])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtypes", [["float32", "float32"], ["int32", "int32"], ["bool", "bool"]])
def test_functions_of_two_operands(dtypes: list[str]) -> None:
    of_all(BINARY, dtypes)


@pytest.mark.slow  # the other dtypes and pairs of them: 20 more kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "left", ["int8", "int32", "uint8", "int64", "uint64", "float16", "float64"]
)
def test_functions_of_other_dtypes(left: str) -> None:
    of_all(UNARY, [left])
    for right in ("int8", "uint8", "uint64", "int64", "float32", "float16", "bool", left):
        of_all(BINARY, [left, right])


X = np.array(FLOATS, "float32")
N = np.array([0, 1, 2, 3, -1, -7, 46341, 2**31 - 1, -(2**31)], "int32")
EXPONENTS = [1, 3, 5, -2, 0.0, 1.0, 2.0, -1.0, -0.5, True]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "exponents",
    [[0, 2, -1, 0.5], pytest.param(EXPONENTS, marks=pytest.mark.slow)],  # a function of pow each
)
def test_constant_powers_of_elements_and_tensors(exponents: list[float]) -> None:
    x, n = te.placeholder(X.shape, name="x"), te.placeholder(N.shape, "int32", name="n")
    made: list[tuple[Any, Any, str]] = []
    for tensor, array in ((x, X), (n, N)):
        for e in exponents:
            try:
                expected = array**e
            except ValueError:  # a negative power of integers
                for refused in (tensor, tensor[0]):
                    with pytest.raises(TensorError, match="integers have no negative powers"):
                        _ = refused**e
                continue
            element = te.compute(array.shape, lambda i, t=tensor, e=e: t[i] ** e, name="p")
            made += [(element, expected, f"element ** {e!r}"), (tensor**e, expected, f"** {e!r}")]
    check(made, [x, n], [X, N])


@pytest.mark.slow  # a function of pow each
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_of_expressions() -> None:
    x, n = te.placeholder(X.shape, name="x"), te.placeholder(N.shape, "int32", name="n")
    exponents = te.placeholder(N.shape, "int32", name="e")
    E = np.abs(N) % 9
    made = [
        (x**x, X**X, "x ** x"),
        (2**x, 2**X, "2 ** x"),
        (te.compute(X.shape, lambda i: 0.5 ** x[i], name="p"), 0.5**X, "0.5 ** x[i]"),
        (n**exponents, N**E, "n ** e"),
        (n ** te.const(2, "int8"), N ** np.int8(2), "n ** const"),
        (te.compute(N.shape, lambda i: n[i] ** exponents[i], name="p"), N**E, "n[i] ** e[i]"),
        (n**1.5, N**1.5, "n ** 1.5"),
    ]
    check(made, [x, n, exponents], [X, N, E])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_beside_tensors_and_broadcasting() -> None:
    rng = np.random.default_rng(0)
    P, Q = rng.random((2, 1, 3), "float32") - 0.5, rng.random((4, 1), "float32")
    U, B, S = np.array([0, 7, 255], "uint8"), np.array([True, False, True]), np.float32(3)
    arrays = [P, Q, U, B, np.array(S)]
    inputs = [
        te.placeholder(a.shape, a.dtype.name, name=n) for n, a in zip("pqubs", arrays, strict=True)
    ]
    functions: list[Callable[..., Any]] = [
        lambda p, q, u, b, s: p + q * 2 - 1,
        lambda p, q, u, b, s: (p + s) / (q - u),
        lambda p, q, u, b, s: np.float64(0.1) * p,
        lambda p, q, u, b, s: u + 1,
        lambda p, q, u, b, s: u * 1.5,
        lambda p, q, u, b, s: u < 300,
        lambda p, q, u, b, s: u <= -1,
        lambda p, q, u, b, s: b + 1,
        lambda p, q, u, b, s: b + True,
        lambda p, q, u, b, s: ~b | (u > 7),
        lambda p, q, u, b, s: np.where(b & (p > 0), p, 0),
        lambda p, q, u, b, s: np.where(p > 0, 1, 0),
        lambda p, q, u, b, s: np.clip(p, -0.25, 0.25),
        lambda p, q, u, b, s: np.clip(u, None, 9),
        lambda p, q, u, b, s: np.round(p * 7),
        lambda p, q, u, b, s: abs(p) + +q,
        lambda p, q, u, b, s: (p * 9).astype("int32") + u,
        lambda p, q, u, b, s: sum([p, p, q]),
        lambda p, q, u, b, s: -s // q,
        lambda p, q, u, b, s: divmod(p, 0.3)[1],
        lambda p, q, u, b, s: p + 2**64 - np.where(p > 0, p, 2**63),
        lambda p, q, u, b, s: p < 2**70,
        lambda p, q, u, b, s: (p * 9).astype("int32") * np.uint64(2**63) / 2**63,
        lambda p, q, u, b, s: np.float32(0) < p,
        lambda p, q, u, b, s: np.array(2.0) * p,
        lambda p, q, u, b, s: q ** np.float64(0.5),
        lambda p, q, u, b, s: b**2,
        lambda p, q, u, b, s: np.clip(np.round(p, 0, out=None), 0, 1, out=None) + q,
    ]
    made = [(f(*inputs), f(*arrays), f"case {k}") for k, f in enumerate(functions)]
    check(made, inputs, arrays)


def test_in_place_names_a_new_tensor() -> None:
    A = B = te.placeholder((3,), name="A")
    B += 1
    assert A.name == "A"
    assert str(B.op.body) == "A[i0] + 1.0"


@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 2)),
     ((1, 4), (6, 4, 1))],
)  # fmt: skip
def test_products_of_matrices(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, a, "int32"), rng.integers(-9, 9, b, "int16")]
    x, y = (te.placeholder(z.shape, z.dtype.name) for z in arrays)
    check([(x @ y, np.asarray(arrays[0] @ arrays[1]), "@")], [x, y], arrays)


A = te.placeholder((4,), name="A")
M = te.placeholder((2, 3), name="M")
J = te.placeholder((4,), "int32", name="J")
KEY = te.reduce_axis((0, 4), name="k")


def test_functions_of_elements() -> None:
    functions = [f for f in NUMPY if isinstance(f, np.ufunc) and f.nin == 1]
    assert {np.exp, np.sqrt, np.floor, np.negative} < set(functions)
    x = np.linspace(0.125, 4, 5, dtype="float32")
    X5 = te.placeholder((5,), name="X")
    made = []
    for f in functions:
        if f is not np.invert:
            t = te.compute((5,), lambda i, f=f: f(X5[i]), name=f.__name__)
            made.append((t, f(x), f.__name__))
    made.append(
        (te.compute((5,), lambda i: abs(round(-X5[i])), name="r"), abs(np.rint(-x)), "round")
    )
    made.append((round(X5), np.rint(x), "round of a tensor"))
    made.append(
        (te.compute((5,), lambda i: np.maximum(X5[i], 1), name="m"), np.maximum(x, 1), "max")
    )
    check(made, [X5], [x])


def test_scalars_and_arrays_of_numpy_beside_elements() -> None:
    assert str(np.float32(2) * A[0]) == "2.0 * A[0]"
    assert (np.int64(3) + J[0]).dtype == "int32"
    assert [str(e) for e in np.arange(3) * J[0]] == ["0 * J[0]", "J[0]", "2 * J[0]"]
    assert [str(e) for e in divmod(J[0], 3)] == ["J[0] // 3", "J[0] % 3"]
    assert float(te.const(2.5)) == 2.5
    assert int(te.const(7)) == 7
    assert float(np.maximum(A[0], 2**64).b) == 2.0**64
    for dtype in ("uint8", "uint32", "uint64"):
        wide = te.placeholder((2,), dtype)[0] + 2**63
        assert (wide.dtype, int(wide.b)) == ("uint64", 2**63)
    for dtype, n, becomes in (("uint8", -1, "int32"), ("uint32", -(2**31) - 1, "int64")):
        wide = te.placeholder((2,), dtype)[0] + n
        assert (wide.dtype, int(wide.b)) == (becomes, n)
    assert float((A[0] * np.uint64(2**63)).b) == 2.0**63
    assert [str(e) for e in divmod(7, J[0])] == ["7 // J[0]", "7 % J[0]"]
    assert np.maximum(A[0], np.float64(0.1)).dtype == "float64"


def test_numpys_own_functions_of_elements() -> None:
    assert (np.shape(A[0]), np.ndim(te.var("n"))) == ((), 0)
    assert [str(e) for e in np.stack([J[0], J[1]])] == ["J[0]", "J[1]"]
    assert [str(e) for e in np.multiply.outer(np.arange(2), J[0])] == ["0 * J[0]", "J[0]"]
    assert str(np.add(J[0], 1, dtype=object)) == "J[0] + 1"
    array = np.zeros(2, object)
    array += J[0]
    assert str(array[1]) == "J[0]"


def test_elements_left_of_a_tensor() -> None:
    n = te.var("n")
    bodies = [str(t.op.body) for t in (n * J, te.const(2.0) * A, A[0] + A, n < J, divmod(n, J)[0])]
    assert bodies == ["n * J[i0]", "2.0 * A[i0]", "A[0] + A[i0]", "J[i0] > n", "n // J[i0]"]
    X, Y = te.placeholder((n + 1,)), te.placeholder((1 + n,))
    assert (X + Y).ndim - (X @ Y).ndim == 1


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: math.sqrt(A[0]), r"A\[0\] is no number yet.* use te.sqrt"),
        (lambda: math.floor(A[0] * 2), "no number yet"),
        (lambda: float(A), r"Tensor\(A.* is no number yet"),
        (lambda: int(J[0]), "no number yet"),
        (lambda: round(A[0], 2), "whole numbers"),
        (lambda: np.arcsin(A[0]), "np.arcsin has no counterpart .*write te.compute"),
        (lambda: np.hypot(A, A), "np.hypot has no counterpart"),
        (lambda: np.sum(A), "np.sum has no counterpart"),
        (lambda: np.add.reduce(A), "np.add.reduce of a tensor expression"),
        (lambda: np.exp(A[0], dtype="float64"), "does not take dtype="),
        (lambda: np.add(A, 1, out=np.empty(4)), "does not take out="),
        (lambda: A + np.ones(4), "an array.*te.placeholder"),
        (lambda: A * [1, 2], "an array.*te.placeholder"),
        (lambda: A + M, r"\[4\] and \[2, 3\] do not broadcast"),
        (lambda: M @ M, "differ in length"),
        (lambda: M @ 2, "np.matmul: both are tensors"),
        (lambda: A - "x", "cannot use 'x'"),
        (lambda: A**1j, "cannot use 1j"),
        (lambda: te.compute((4,), lambda i: A + A[i]), "an element of a tensor such as A"),
        (lambda: te.compute((4,), lambda i: A + A), "an element of a tensor such as A"),
        (lambda: A + te.reduce_axis(4, "k"), "'add': axis 'k' does not belong to it"),
        (lambda: A * te.sum(A[KEY], axis=KEY), "a reduction must be the whole body"),
        (lambda: A + A[J[0] * 0 + 9], "'add': index 0 of A"),
        (lambda: np.add(A, A, out=A), "does not take out="),
        (lambda: np.exp(A, A), "does not take out="),
        (lambda: np.clip(A, 0, 1, dtype="float32"), "np.clip .*'dtype'"),
        (lambda: np.where(A > 0), "np.where of a tensor expression: missing"),
        (lambda: np.where(A[0] > 0), "np.where of a tensor expression: missing"),
        (lambda: np.mean(A[0]), "np.mean has no counterpart"),
        (lambda: round(A, 2), "whole numbers"),
        (lambda: te.maximum(A, A), "np.maximum and its like take whole tensors"),
        (lambda: te.const(2**64), "fits no integer of 64 bits"),
        *(
            (lambda dtype=dtype, n=n: te.placeholder((2,), dtype)[0] + n, text)
            for dtype, n, text in (
                ("int64", 2**63, f"{2**63} does not fit int64, the dtype of"),
                ("int8", 2**64 - 1, "does not fit int8"),
                ("int64", np.uint64(2**63), "does not fit int64"),
                ("uint32", -1, "-1 does not fit uint32, the dtype of the other"),
                ("uint64", -(2**40), "does not fit uint64"),
                ("uint64", np.int8(-1), "-1 does not fit uint64"),
                ("int64", 2**64, "fits no integer of 64 bits"),
                ("uint64", 2**64, "fits no integer of 64 bits"),
                ("int32", -(2**63) - 1, "fits no integer of 64 bits"),
            )
        ),
        (lambda: np.maximum(te.placeholder((2,), "int64")[0], 2**63), "does not fit int64"),
        (lambda: te.placeholder((2,), "int64")[0] > 2**63, "does not fit int64"),
        (lambda: te.placeholder((2,), "uint32")[0] > -1, "does not fit uint32"),
        (lambda: A + 10**400, "a number of 401 digits is no float32"),
        (lambda: M[0] ** 2, "M with 1 of its 2 indices"),
        (lambda: te.placeholder((2,), "uint8") + 300, "300 does not fit uint8"),
        (lambda: -te.placeholder((2,), "bool"), "boolean negative"),
        (lambda: A & 1, "not supported"),
        (lambda: [0] if A < 2 else [1], "has no truth value; te.select"),
    ],
)
def test_refusals(make: Callable[[], object], text: str) -> None:
    with pytest.raises(TensorError, match=text):
        make()


def test_tensors_of_symbolic_shape() -> None:
    n = te.size_var("n")
    X, Y = te.placeholder((n, 3), name="X"), te.placeholder((1, 3), name="Y")
    Z = X * Y + X
    f = driver.build(te.create_schedule(Z.op), [n, X, Y, Z], "llvm")
    x, y, z = (
        np.ones((5, 3), "float32"),
        np.arange(3, dtype="float32")[None],
        np.empty((5, 3), "float32"),
    )
    f(5, x, y, z)
    np.testing.assert_array_equal(z, x * y + x)
    with pytest.raises(TensorError, match=r"\[n, 3\] and \[4, 3\] do not broadcast"):
        _ = X + te.placeholder((4, 3))


def test_equality_of_tensors_is_identity() -> None:
    assert A == A
    assert A != M
    assert operator.eq(A, M) is False
    assert A not in [np.float32(1), np.ones(4), np.ones(())]
    assert (np.float32(2) != A) is True
    assert str(np.equal(A, 2).op.body) == "A[i0] == 2.0"


@pytest.mark.parametrize("divisor", [NAN, INF, -INF, 0.0, -0.0])
def test_remainders_by_special_numbers(divisor: float) -> None:
    n = te.placeholder((4,), "int32", name="n")
    numbers = np.array([0, 1, -3, 7], "int32")
    special, plain = te.const(divisor, "float64"), te.const(2.0, "float64")
    for choose in (lambda i: special, lambda i: te.if_then_else(n[i] > 0, special, plain)):
        t = te.compute((4,), lambda i, b=choose: te.fmod(n[i].astype("float64"), b(i)))
        out = np.empty(4)
        build(te.create_schedule(t.op), [n, t], "llvm")(numbers, out)
        divisors = np.where((numbers > 0) | (t.op.body.args[1] is special), divisor, 2.0)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(out, np.fmod(numbers, divisors))
