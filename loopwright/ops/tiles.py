"""Candidates of tiles of the CPU templates, and the dtypes of sums and of results."""

from __future__ import annotations

from loopwright import dtypes
from loopwright.ops.operator import Array
from loopwright.te import shape_of

#: Blocks around a register tile, in register tiles.
BLOCKS = (1, 2, 4, 8, 16, 32, 64)


def check_sizes(dtype: str, **sizes: int) -> None:
    """Check sizes (positive integers) and the dtype of a default configuration before the template
    does."""
    dtypes.check(dtype)
    for name, size in sizes.items():
        shape_of((size,), name)


def blocked(extent: int, tiles: list[int]) -> list[list[int]]:
    """Candidates ``[-1, block, tile]`` of a split in three; blocks beyond the extent are out."""
    out = []
    for t in tiles:
        count = -(-extent // t)
        blocks = [b for b in BLOCKS if b < count] + [count]
        out += [[-1, b, t] for b in blocks]
    return out


#: Dtypes of sums, and of results, of operands of a narrow dtype.
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
