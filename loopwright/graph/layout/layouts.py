"""Layouts of images: the order of a tensor's dimensions in memory, and transforms between two.

They are named as in TVM: ``NCHW`` (N, C, ...), ``NHWC`` (N, ..., C), and blocked ``NCHW8c``
(N, C / 8, ..., 8). H and W stand for the dimensions of the image, however many there are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.ir.expr import Constant, Expr, const
from loopwright.graph.registry import get_op


@dataclass(frozen=True)
class Layout:
    name: str  # ``NCHW``, ``NHWC``, or ``NCHW`` with the size of a block of channels and ``c``

    def __post_init__(self) -> None:
        if not re.fullmatch(r"NCHW|NHWC|NCHW[1-9][0-9]*c", self.name):
            raise GraphError(
                f"there is no layout {self.name!r}; there are NCHW, NHWC, and blocks of channels "
                "such as NCHW8c"
            )

    @property
    def block(self) -> int:
        """Channels in a block; 0 where there are no blocks."""
        return int(self.name[4:-1]) if len(self.name) > 4 else 0

    def fits(self, shape: Sequence[Any]) -> bool:
        """Whether a tensor (N, C, ...) can have it; one channel, which is broadcast, always can."""
        if len(shape) < 3:
            return False
        if not self.block:
            return True
        static = all(isinstance(n, int) for n in shape)
        return static and (shape[1] == 1 or shape[1] % self.block == 0)

    def shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        batch, channels, *image = shape
        if self == LAST:
            return (batch, *image, channels)
        if self == FIRST:
            return tuple(shape)
        block = self._block_of(channels)
        return (batch, channels // block, *image, block)

    def axes(self, axis: int, rank: int) -> tuple[int, ...]:
        """The axes here of an axis of a tensor (N, C, ...) of some rank; channels may have two."""
        at = axis % rank
        if self.block:
            return (1, rank) if at == 1 else (at,)
        return ((0, *range(2, rank), 1).index(at),) if self == LAST else (at,)

    def moved(self, e: Expr, shape: Sequence[Any], to: Layout) -> Expr:
        """A tensor (N, C, ...) from this layout in another one; constants are moved at once."""
        if self == to:
            return e
        rank = len(shape)
        image = tuple(range(2, rank))
        if {self, to} == {FIRST, LAST}:
            return turned(e, (0, *image, 1) if to == LAST else (0, rank - 1, *range(1, rank - 1)))
        n = len(image)
        if to.block and not self.block:
            batch, channels, *extents = shape
            block = to._block_of(channels)
            if self == LAST:
                apart = reshaped(e, (batch, *extents, channels // block, block))
                return turned(apart, (0, n + 1, *range(1, n + 1), n + 2))
            apart = reshaped(e, (batch, channels // block, block, *extents))
            return turned(apart, (0, 1, *range(3, n + 3), 2))
        if self.block and not to.block:
            order = (0, *image, 1, n + 2) if to == LAST else (0, 1, n + 2, *image)
            return reshaped(turned(e, order), to.shape(shape))
        return FIRST.moved(self.moved(e, shape, FIRST), shape, to)

    def _block_of(self, channels: int) -> int:
        return 1 if channels == 1 else self.block

    def __str__(self) -> str:
        return self.name


FIRST, LAST = Layout("NCHW"), Layout("NHWC")


def blocked(block: int) -> Layout:
    return Layout(f"NCHW{block}c")


def turned(e: Expr, axes: tuple[int, ...]) -> Expr:
    """A tensor with its dimensions permuted; constants at once."""
    if isinstance(e, Constant):
        return const(np.transpose(e.data, axes), name=e.name)
    return get_op("transpose")(e, axes=axes)


def reshaped(e: Expr, shape: tuple[int, ...]) -> Expr:
    """A tensor in another shape; constants at once."""
    if isinstance(e, Constant):
        return const(e.data.reshape(shape), name=e.name)
    return get_op("reshape")(e, newshape=shape)
