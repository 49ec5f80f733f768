"""Arrays as bytes: equal bits, and arrays that lie one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.measure.checking.check import Array
from loopwright.runtime import Arg


def same_bytes(a: Array, b: Array) -> bool:
    """Whether two arrays of one type hold the same bits; a NaN equals itself."""
    return bool(np.array_equal(_bits(a), _bits(b)))


def _bits(a: Array) -> Array:
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8)


def split(data: bytes, args: Sequence[Arg]) -> list[Array]:
    """Read-only arrays over bytes that lie one after the other."""
    arrays, at = [], 0
    for arg in args:
        size = arg.nbytes // arg.dtype.itemsize
        arrays.append(np.frombuffer(data, arg.dtype, size, at).reshape(arg.shape))
        at += arg.nbytes
    return arrays


def guard_pattern(number: int) -> int:
    """The byte that guards the array of an argument.

    It differs from array to array: a kernel that runs past the end of all of them copies the guards
    of one into those of another.
    """
    return (0x5A + 29 * number) % 256


def outside_text(names: Sequence[str]) -> str | None:
    """One line about writes beside the arrays of these arguments; None where there are none."""
    return f"it wrote outside the memory of {', '.join(names)}" if names else None
