"""Unsigned integers of every width compute what NumPy computes, on targets without a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import dtypes, te

Array = np.ndarray[Any, Any]
TARGETS = ("llvm -num-threads=1", "c", "interp")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "add": (lambda x, y: x + y, np.add),
    "subtract": (lambda x, y: x - y, np.subtract),
    "multiply": (lambda x, y: x * y, np.multiply),
    "divide": (te.truncdiv, np.floor_divide),
    "floor": (te.floordiv, np.floor_divide),
    "remainder": (te.floormod, np.mod),
    "maximum": (te.max, np.maximum),
    "less": (lambda x, y: x < y, np.less),
    "and": (te.bitwise_and, np.bitwise_and),
    "xor": (te.bitwise_xor, np.bitwise_xor),
}


def _drawn(dtype: str) -> tuple[Array, Array]:
    """Numbers of the whole range, its ends among them, the second ones not 0."""
    rng, last = np.random.default_rng(0), np.iinfo(dtype).max
    a, b = (rng.integers(0, last, 40, dtype, endpoint=True) for _ in range(2))
    a[:3], b[:3] = (last, last, 0), (last, 1, last)
    return a, b | np.array(1, dtype)


Case = tuple[str, Callable[..., Any], tuple[Array, ...], Array]


def _check(target: str, cases: list[Case]) -> None:
    """Compile all functions of elements as one kernel, and compare each with NumPy."""
    inputs: list[te.Tensor] = []
    results: list[te.Tensor] = []
    for name, function, arrays, _ in cases:
        own = [te.placeholder(x.shape, str(x.dtype), name=f"x{n}") for n, x in enumerate(arrays)]
        results.append(_mapped(name, function, own))
        inputs += own
    f = lw.build(te.create_schedule([t.op for t in results]), [*inputs, *results], target)
    found = [np.empty(t.static_shape, t.dtype) for t in results]
    f(*(x for _, _, arrays, _ in cases for x in arrays), *found)
    for (name, _, _, wanted), array in zip(cases, found, strict=True):
        np.testing.assert_array_equal(array, wanted, name, strict=True)


def _mapped(name: str, function: Callable[..., Any], inputs: list[te.Tensor]) -> te.Tensor:
    result: te.Tensor = te.compute(
        inputs[0].shape, lambda i: function(*(t[i] for t in inputs)), name=name
    )
    return result


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("target", TARGETS)
def test_arithmetic_wraps_around_and_nothing_is_taken_for_negative(target: str, dtype: str) -> None:
    a, b = _drawn(dtype)
    _check(target, [(name, f, (a, b), wanted(a, b)) for name, (f, wanted) in BINARY.items()])


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("target", TARGETS)
def test_shifts_fill_with_zeros_and_conversions_keep_large_numbers(target: str, dtype: str) -> None:
    a, _ = _drawn(dtype)
    places = (np.arange(len(a)) % dtypes.bits(dtype)).astype(dtype)
    cases: list[Case] = [
        ("left", te.shift_left, (a, places), np.left_shift(a, places)),
        ("right", te.shift_right, (a, places), np.right_shift(a, places)),
    ]
    for other in ("float32", "float64", "int8", "int64", "uint16"):
        cases.append((f"to_{other}", lambda x, t=other: x.astype(t), (a,), a.astype(other)))
    real = (a // 3).astype("float64")
    cases.append(("from_float64", lambda x: x.astype(dtype), (real,), real.astype(dtype)))
    limit = np.iinfo(dtype).max - 1
    wanted = np.minimum(a, np.array(limit, dtype))
    cases.append(("constant", lambda x: te.min(x, te.const(limit, dtype)), (a,), wanted))
    _check(target, cases)


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("target", TARGETS)
def test_sums_and_extremes_of_rows(target: str, dtype: str) -> None:
    a = _drawn(dtype)[0].reshape(5, 8)
    x = te.placeholder(a.shape, dtype, name="x")
    results = []
    for reduce in (te.sum, te.max, te.min):
        k = te.reduce_axis((0, 8), name="k")
        results.append(te.compute((5,), lambda i, r=reduce, k=k: r(x[i, k], axis=k), name="y"))
    f = lw.build(te.create_schedule([y.op for y in results]), [x, *results], target)
    found = [np.empty(5, dtype) for _ in results]
    f(a, *found)
    for array, reference in zip(found, (np.sum, np.max, np.min), strict=True):
        wanted = reference(a, axis=1).astype(dtype)  # type: ignore[operator]
        np.testing.assert_array_equal(array, wanted, reference.__name__)
