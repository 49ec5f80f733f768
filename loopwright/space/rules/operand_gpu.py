"""Operand of a contraction that goes through shared memory, and the reads of its tiles.

Functions of tiles take one tile or arrays of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from loopwright import dtypes, te
from loopwright.ir.expr import IterVar
from loopwright.space.access import Access
from loopwright.space.rules.device_gpu import Device, common_width

#: A tile (virtual threads, threads, registers) of one loop, or arrays of each.
Tile = tuple[Any, Any, Any]
#: A number, or an array of one for each of many tiles.
Count = Any
#: Bytes that memory is read in.
_SECTOR = 32


@dataclass(frozen=True)
class Operand:
    """Operand that goes through shared memory."""

    access: Access  # its read in the reduction
    computed: bool  # whether it is computed there, not copied
    tiled: tuple[IterVar, ...]  # loops that have tiles
    lanes: int  # elements that a thread reads at once

    @property
    def tensor(self) -> te.Tensor:
        return self.access.tensor

    @property
    def turned(self) -> bool:
        """Whether tiles move in another than the last dimension, so that transposing it helps."""
        return list(self.order(True)) != sorted(self.order(True))

    def order(self, turn: bool) -> tuple[int, ...]:
        """Order of dimensions in shared memory: with ``turn`` those that tiles move come last."""
        dims = range(len(self.access.dims))
        return tuple(sorted(dims, key=self._in_tile) if turn else dims)

    def _in_tile(self, dim: int) -> bool:
        index = self.access.dims[dim]
        return index is not None and any(x in index.moves for x in self.tiled)

    def side_by_side(self, turn: bool) -> IterVar | None:
        """Tiled loop whose register tile is contiguous in shared memory, if any."""
        index = self.access.dims[self.order(turn)[-1]]
        if index is None or list(index.moves.values()) != [1]:
            return None
        (axis,) = index.moves
        return axis if any(x is axis for x in self.tiled) else None

    def box(self, sizes: Mapping[IterVar, Count]) -> list[Count]:
        """Extents of the box that a tile reads; a dimension that is not affine counts in full."""
        found: list[Count] = []
        for index, whole in zip(self.access.dims, self.tensor.static_shape, strict=True):
            moves = {} if index is None else index.moves
            reach = 1 + sum(abs(c) * (sizes.get(x, 1) - 1) for x, c in moves.items())
            found.append(whole if index is None else least(reach, whole))
        return found

    def fetch_width(self, device: Device) -> int:
        """Elements that may be copied at once: none crosses the end of a row of the tensor."""
        if self.computed or self.access.contiguous is None:
            return 1
        index, whole = self.access.dims[-1], self.tensor.static_shape[-1]
        assert index is not None
        return common_width(device.lanes(self.tensor.dtype), whole, index.offset)

    def bytes(self, sizes: Mapping[IterVar, Count], pad: int, threads: Count, width: int) -> Count:
        """Most bytes of shared memory, with gaps, and rows that the last copy round overruns."""
        box = self.box(sizes)
        row, at_once = prod(box[1:]), threads * width
        box[0] = ceil_div(ceil_div(box[0] * row, at_once) * at_once, row)
        # The gaps cost most where the rows are shortest.
        line = reduce(least, box) if self.turned else box[-1]
        return prod(box) // line * (line + 2 * pad) * dtypes.nbytes(self.tensor.dtype)


def least(a: Count, b: Count) -> Count:
    """Minimum of two numbers, or elementwise of arrays."""
    arrays = isinstance(a, np.ndarray) or isinstance(b, np.ndarray)
    return np.minimum(a, b) if arrays else min(a, b)


def ceil_div(a: Count, b: Count) -> Count:
    """``ceil(a / b)`` of whole numbers or arrays, b positive."""
    return -(-a // b)


def sectors(o: Operand, sizes: Mapping[IterVar, Count]) -> Count:
    """Loaded elements per element of a row of a tile, since whole sectors are loaded."""
    row = o.box(sizes)[-1] * dtypes.nbytes(o.tensor.dtype)
    return -least(-1.0, -_SECTOR / row)
