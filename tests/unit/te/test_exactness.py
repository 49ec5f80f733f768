"""What is said to be exact is: NumPy in other orders of summation gives the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import dtypes, te
from loopwright.measure.inputs import make_input
from loopwright.te.exact_sums import Exactness, exactness


def found(make: Callable[..., Any], shape: tuple[int, ...] = (8, 8), dtype: str = "float32") -> Any:
    a, b = (te.placeholder(shape, dtype, name=n) for n in "AB")
    return exactness(te.create_schedule(make(a, b).op).dag)


def elementwise(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: te.compute(a.shape, lambda i, j: f(a[i, j], b[i, j]))


def dot(a: Any, b: Any, accumulate: str = "") -> Any:
    n = int(a.shape[1])
    k, wide = te.reduce_axis((0, n), name="k"), accumulate or a.dtype
    c = te.compute(
        (int(a.shape[0]),) * 2,
        lambda i, j: te.sum(a[i, k].astype(wide) * b[j, k].astype(wide), axis=k),
    )
    return te.compute(c.shape, lambda i, j: c[i, j].astype(a.dtype)) if accumulate else c


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a * b + 1.0,
        lambda a, b: te.select(a > b, a, -b),
        lambda a, b: (a - b) * 0.5,
        lambda a, b: (a + b) / 4.0,
        lambda a, b: te.floor(a * 0.25) + te.abs(b),
        lambda a, b: te.select(a > b, a, float("-inf")),
    ],
)
def test_exact_expressions(f: Any) -> None:
    assert found(elementwise(f)) is not None


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a / b,
        lambda a, b: te.exp(a),
        lambda a, b: a * 0.1 + b,
        lambda a, b: te.sqrt(a * a),
        lambda a, b: a.astype("float16").astype("float32") * 16777217.0 + b * 3.0,
        lambda a, b: (a * 301.0).astype("bfloat16").astype("float32") + b,
    ],
)
def test_what_depends_on_rounding_is_not_exact(f: Any) -> None:
    assert found(elementwise(f)) is None


@pytest.mark.parametrize(
    ("n", "dtype", "largest"),
    [
        (2**20, "float32", 4),  # 2**20 terms of at most 16: the significand is full
        (2**20 + 1, "float32", 3),
        (2**24, "float32", 1),
        (2**24 + 1, "float32", None),
        (128, "float16", 4),
        (2**11, "float16", 1),
        (2**8 + 1, "bfloat16", None),
    ],
)
def test_long_sums_need_small_numbers(n: int, dtype: str, largest: int | None) -> None:
    exact = found(dot, (1, n), dtype)
    assert (exact and exact.largest) == largest


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_type_of_the_sum_counts(dtype: str) -> None:
    exact = found(lambda a, b: dot(a, b, "float32"), (4, 5000), dtype)
    assert isinstance(exact, Exactness)
    assert list(exact.steps.values())[-1] is None  # the result is rounded once


def test_choices_among_equal_values_are_left_alone() -> None:
    a, k = te.placeholder((4, 8), name="A"), te.reduce_axis((0, 8), name="k")
    at, _ = te.compute((4,), lambda i: te.argmax((k, a[i, k]), axis=k))
    assert exactness(te.create_schedule(at.op).dag) is None


@pytest.mark.parametrize(("dtype", "n"), [("float32", 2000), ("float16", 100), ("bfloat16", 12)])
def test_any_order_gives_the_same_bits(dtype: str, n: int) -> None:
    exact = found(dot, (6, n), dtype)
    assert exact is not None
    a, b = (
        make_input((6, n), dtype, 5, i, largest=exact.largest).astype(np.float32) for i in (0, 1)
    )
    rng = np.random.default_rng(0)
    short = np.dtype(dtypes.check(dtype))
    for _ in range(3):
        total = np.zeros((6, 6), np.float32)
        for k in rng.permutation(n):
            total = (total + np.outer(a[:, k], b[:, k])).astype(short).astype(np.float32)
        np.testing.assert_array_equal(total, a.astype(np.int64) @ b.T.astype(np.int64))
