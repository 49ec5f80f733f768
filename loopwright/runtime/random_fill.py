"""`random_fill`: random data for an array, the same for the same seed everywhere."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np

from loopwright import dtypes
from loopwright.errors import ArgumentError


class Fillable(Protocol):
    """An array that takes the elements of another, as NDArray does."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str:
        """Name of the element type."""

    def copyfrom(self, source: object) -> Any: ...


_A = TypeVar("_A", bound=Fillable)


def random_fill(array: _A, seed: int = 0) -> _A:
    """Fill an array with random values for which no kernel is slow or undefined.

    Floats are uniform in 1 <= x < 10, as in TVM: no zero, denormal, infinity or NaN, and sums and
    products of a few hundred stay finite in float32. Whole numbers are 1 to 9, so that nothing is
    divided by zero; a bool is either with one half. The values depend on shape, dtype and seed
    alone, and are the same on every machine.

    Args:
        array: an `NDArray`, on any device.
        seed: a whole number, at least 0.

    Returns:
        The array.

    Raises:
        ArgumentError: it is no NDArray, or the seed is no such number.

    Example:
        >>> a = lw.nd.random_fill(lw.nd.empty((2, 3), "int8"), seed=1)
        >>> print(a.shape, 1 <= a.numpy().min(), a.numpy().max() <= 9)
        (2, 3) True True
    """
    if not hasattr(array, "copyfrom"):
        raise ArgumentError(
            f"random_fill: expected an NDArray, got a {type(array).__name__}; nd.empty makes one"
        )
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ArgumentError(f"random_fill: the seed is a whole number of at least 0, got {seed!r}")
    rng = np.random.default_rng(int(seed))
    array.copyfrom(_values(rng, array.shape, dtypes.check(array.dtype)))
    return array


def _values(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> np.ndarray[Any, np.dtype[Any]]:
    if dtype == "bool":
        return rng.integers(0, 2, shape, dtype=np.uint8).astype(np.bool_)
    if not dtypes.is_float(dtype):
        return rng.integers(1, 10, shape, dtype=np.int8).astype(dtype)
    # Cut before it is rounded to the dtype: 9.999 would become 10 in a format of few digits.
    values = 1 + 9 * rng.random(shape)
    return np.minimum(values, 10 * (1 - 2.0**-8)).astype(dtype)
