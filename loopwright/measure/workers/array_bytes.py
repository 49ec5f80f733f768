"""Arrays as bytes: bitwise comparison, and arrays that lie one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.measure.checking.check import Array, KnownElements
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


def known_bytes(sets: Sequence[Sequence[KnownElements]]) -> bytes:
    """Expected outputs, set after set, output after output; see `known_from`."""
    parts = [
        part
        for outputs in sets
        for known in outputs
        for part in (np.array([known.places.size, known.values.dtype.kind == "f"]), *known)
    ]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def known_from(data: bytes, outputs: int) -> list[list[KnownElements]]:
    """Decode `known_bytes`, of sets of so many outputs."""
    words, at, found = np.frombuffer(data, np.int64), 0, []
    while at < words.size:
        count, is_float = int(words[at]), bool(words[at + 1])
        places, values, errors = words[at + 2 : at + 2 + 3 * count].reshape(3, count)
        values = values.view(np.float64) if is_float else values
        found.append(KnownElements(places, values, errors.view(np.float64)))
        at += 2 + 3 * count
    return [found[i : i + outputs] for i in range(0, len(found), outputs)]


def guard_pattern(number: int) -> int:
    """The byte that guards the array of an argument.

    It differs from array to array: a kernel that runs past the end of all of them copies the guards
    of one into those of another.
    """
    return (0x5A + 29 * number) % 256


def outside_text(names: Sequence[str]) -> str | None:
    """One line about writes outside of the arrays of these arguments; None where there are none."""
    return f"it wrote outside the memory of {', '.join(names)}" if names else None
