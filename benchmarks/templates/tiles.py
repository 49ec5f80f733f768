"""Candidates of tiles for the vector registers of the target in force."""

from __future__ import annotations

from collections.abc import Callable

import loopwright as lw
from loopwright import dtypes


def lanes(dtype: str) -> int:
    """Lanes of a vector register."""
    return max(1, lw.Target.current().vector_bytes // dtypes.nbytes(dtype))


def row_tiles(extent: int, choices: tuple[int, ...]) -> list[int]:
    """Tile heights worth trying for an extent: the choices below it, and itself if it is small."""
    found = sorted(
        {t for t in choices if t <= extent} | ({extent} if extent <= choices[-1] else set())
    )
    return found or [1]


def column_tiles(extent: int, dtype: str, vectors: tuple[int, ...]) -> list[int]:
    """Tile widths: whole vectors that do not over-run the extent by more than a vector."""
    w = lanes(dtype)
    limit = -(-extent // w) * w
    return [w * v for v in vectors if w * v <= limit] or [w]


def fitting(dtype: str) -> Callable[[int, int], bool]:
    """A test of (rows, columns): accumulators, operands and one broadcast fit the registers."""
    width, room = lanes(dtype), lw.Target.current().vector_registers

    def fits(rows: int, columns: int) -> bool:
        wide = -(-columns // width)
        return rows * wide + wide + 1 <= room

    return fits
