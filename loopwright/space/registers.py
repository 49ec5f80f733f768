"""Vector registers of the target CPU: width, number, and the tiles that fit them."""

from __future__ import annotations

from collections.abc import Callable

from loopwright import dtypes, te
from loopwright.target import Target


def lanes(dtype: str) -> int:
    """Lanes of a vector register of the target in force."""
    target = Target.current()
    return max(1, target.vector_bytes // dtypes.nbytes(dtype))


def registers() -> int:
    """Vector registers of the target in force: 32 with AVX-512, else 16 (aarch64: 32)."""
    return Target.current().vector_registers


def row_tiles(extent: int, choices: tuple[int, ...]) -> list[int]:
    """Tile heights worth trying for an extent: the choices below it, and itself if it is small."""
    found = sorted(
        {t for t in choices if t <= extent} | ({extent} if extent <= choices[-1] else set())
    )
    return found or [1]


def column_tiles(extent: int, dtype: str, vectors: tuple[int, ...] = (1, 2, 3, 4, 6)) -> list[int]:
    """Tile widths: whole vectors that do not over-run the extent by more than a vector."""
    w = lanes(dtype)
    limit = -(-extent // w) * w
    return [w * v for v in vectors if w * v <= limit] or [w]


def fitting(dtype: str) -> Callable[[int, int], bool]:
    """Test of (rows, columns): accumulators, operands and one broadcast fit the vector registers.

    The registers are those of the target in force now: filters of a space run later, when no target
    is. A tile of 14 x 32 floats (28 accumulators of 32 registers) was measured to spill.
    """
    width, room = lanes(dtype), registers()

    def fits(rows: int, columns: int) -> bool:
        wide = -(-columns // width)
        return rows * wide + wide + 1 <= room

    return fits


def run_in_tiles(extent: int, tile: int, multiple: int = 1, at_least: int = 1) -> int:
    """Iterations that tiles of an extent run: the last tile only the rest.

    Its iterations are rounded up to a ``multiple``; a tile takes as long as ``at_least``
    iterations.
    """
    whole, rest = divmod(extent, tile)
    last = min(max(-(-rest // multiple) * multiple, at_least), tile) if rest else 0
    return whole * tile + last


def nbytes(tensor: te.Tensor) -> int:
    """Bytes of an element."""
    return dtypes.nbytes(tensor.dtype)
