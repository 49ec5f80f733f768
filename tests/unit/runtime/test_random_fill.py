"""Random data: in range, never what kernels are slow or undefined on, the same for a seed."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright import dtypes
from loopwright.errors import ArgumentError
from loopwright.runtime import NDArray


def filled(dtype: str, seed: int = 0, shape: tuple[int, ...] = (64, 257)) -> NDArray:
    return lw.nd.random_fill(lw.nd.empty(shape, dtype), seed)


@pytest.mark.parametrize("dtype", dtypes.SUPPORTED)
def test_values_are_in_range_and_differ(dtype: str) -> None:
    a = filled(dtype).numpy()
    assert a.dtype == np.dtype(dtype)
    wide = a.astype("float64")
    if dtype == "bool":
        assert 0.45 < wide.mean() < 0.55
        return
    assert 1 <= wide.min() < 2
    assert 8.9 < wide.max() < (10 if dtypes.is_float(dtype) else 9.5)
    assert 4.8 < wide.mean() < 5.7  # uniform has 5.5, whole numbers 5
    assert len(np.unique(wide)) >= 9


def test_a_seed_gives_the_same_values() -> None:
    a, again, other = (filled("float32", seed).numpy() for seed in (3, 3, 4))
    np.testing.assert_array_equal(a, again)
    assert (a != other).mean() > 0.99


def test_the_array_itself_is_filled() -> None:
    a = lw.nd.empty((3,), "int32")
    assert lw.nd.random_fill(a, 1) is a
    assert filled("float32", shape=()).numpy() >= 1
    assert filled("float32", shape=(0, 3)).shape == (0, 3)


def test_what_cannot_be_filled() -> None:
    with pytest.raises(ArgumentError, match="expected an NDArray, got a list"):
        lw.nd.random_fill([1, 2])
    for seed in (-1, 1.5, True):
        with pytest.raises(ArgumentError, match="the seed is a whole number"):
            lw.nd.random_fill(lw.nd.empty((1,)), seed)
