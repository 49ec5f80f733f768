"""Pieces that the CPU templates share: candidates of tiles, and the register tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopwright import dtypes, te
from loopwright.ir.expr import IterVar
from loopwright.ops.operator import Array
from loopwright.schedule import Schedule
from loopwright.target import Target
from loopwright.te.tensor import shape_of

#: Blocks around a register tile, in register tiles.
BLOCKS = (1, 2, 4, 8, 16, 32, 64)


def check_sizes(dtype: str, **sizes: int) -> None:
    """Check what a default configuration is computed from, before the template itself does.

    Raises:
        TensorError: a size is not a positive integer, or the dtype is not supported.
    """
    dtypes.check(dtype)
    for name, size in sizes.items():
        shape_of((size,), name)


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


def blocked(extent: int, tiles: list[int]) -> list[list[int]]:
    """Candidates ``[-1, block, tile]`` of a split in three; blocks beyond the extent are out."""
    out = []
    for t in tiles:
        count = -(-extent // t)
        blocks = [b for b in BLOCKS if b < count] + [count]
        out += [[-1, b, t] for b in blocks]
    return out


def fitting(dtype: str) -> Callable[[int, int], bool]:
    """A test of (rows, columns): accumulators, operands and one broadcast fit the vector registers.

    The registers are those of the target in force now: filters of a space run later, when no target
    is. A tile of 14 x 32 floats (28 accumulators of 32 registers) was measured to spill.
    """
    width, room = lanes(dtype), registers()

    def fits(rows: int, columns: int) -> bool:
        wide = -(-columns // width)
        return rows * wide + wide + 1 <= room

    return fits


def register_tile(
    s: Schedule, stage: te.Tensor, rows: IterVar, columns: IterVar, before: Sequence[IterVar]
) -> None:
    """Order a stage as ``before..., rows, columns`` with rows unrolled and columns as vectors."""
    s[stage].reorder(*before, rows, columns)
    s[stage].unroll(rows)
    s[stage].vectorize(columns)


#: Where sums of a narrow dtype are made, and what is returned.
_WIDE = {"int8": "int32", "uint8": "int32", "float16": "float32", "bfloat16": "float32"}


def wide_dtype(dtype: str) -> str:
    """Dtype in which products of operands of ``dtype`` are summed."""
    return _WIDE.get(dtype, dtype)


def out_dtype(dtype: str) -> str:
    """Dtype of a product of operands of ``dtype``: int32 for bytes, else their own."""
    return "int32" if dtype in ("int8", "uint8") else dtype


def widen(x: Array, dtype: str) -> Array:
    """A NumPy operand of narrow ``dtype`` in the dtype in which its products are summed."""
    wide = wide_dtype(dtype)
    return x if wide == dtype else x.astype(wide)


def narrow(y: Array, dtype: str) -> Array:
    """A NumPy result in the dtype that operands of ``dtype`` give; `widen` went before."""
    return y if wide_dtype(dtype) == dtype else y.astype(out_dtype(dtype), copy=False)
