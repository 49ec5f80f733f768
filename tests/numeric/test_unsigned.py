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


def _computed(target: str, function: Callable[..., Any], *arrays: Array) -> Array:
    inputs = [te.placeholder(x.shape, str(x.dtype), name=f"x{n}") for n, x in enumerate(arrays)]
    result = te.compute(arrays[0].shape, lambda i: function(*(t[i] for t in inputs)), name="y")
    f = lw.build(te.create_schedule(result.op), [*inputs, result], target)
    found = np.empty(arrays[0].shape, result.dtype)
    f(*arrays, found)
    return found


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("target", TARGETS)
def test_arithmetic_wraps_around_and_nothing_is_taken_for_negative(target: str, dtype: str) -> None:
    a, b = _drawn(dtype)
    for function, reference in BINARY.values():
        wanted = reference(a, b)
        found = _computed(target, function, a, b)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("target", TARGETS)
def test_shifts_fill_with_zeros(target: str, dtype: str) -> None:
    a, _ = _drawn(dtype)
    places = (np.arange(len(a)) % dtypes.bits(dtype)).astype(dtype)
    np.testing.assert_array_equal(
        _computed(target, te.shift_left, a, places), np.left_shift(a, places)
    )
    np.testing.assert_array_equal(
        _computed(target, te.shift_right, a, places), np.right_shift(a, places)
    )


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("target", TARGETS)
def test_conversions_keep_large_numbers(target: str, dtype: str) -> None:
    a, _ = _drawn(dtype)
    for other in ("float32", "float64", "int8", "int64", "uint16"):
        np.testing.assert_array_equal(
            _computed(target, lambda x, t=other: x.astype(t), a), a.astype(other)
        )
    real = (a // 3).astype("float64")
    np.testing.assert_array_equal(
        _computed(target, lambda x: x.astype(dtype), real), real.astype(dtype)
    )
    limit = np.iinfo(dtype).max - 1
    np.testing.assert_array_equal(
        _computed(target, lambda x: te.min(x, te.const(limit, dtype)), a),
        np.minimum(a, np.array(limit, dtype)),
    )


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("target", TARGETS)
def test_sums_and_extremes_of_rows(target: str, dtype: str) -> None:
    a = _drawn(dtype)[0].reshape(5, 8)
    x = te.placeholder(a.shape, dtype, name="x")
    for reduce, reference in ((te.sum, np.sum), (te.max, np.max), (te.min, np.min)):
        k = te.reduce_axis((0, 8), name="k")
        y = te.compute((5,), lambda i, r=reduce, k=k: r(x[i, k], axis=k), name="y")
        f = lw.build(te.create_schedule(y.op), [x, y], target)
        found = np.empty(5, dtype)
        f(a, found)
        np.testing.assert_array_equal(found, reference(a, axis=1).astype(dtype))  # type: ignore[operator]
