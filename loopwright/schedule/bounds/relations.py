"""Extents and values of the loops of a stage: the effect of splits and fusions, in one place.

A schedule keeps splits and fusions as relations (`SplitRel`, `FuseRel`). `loop_extents` walks
them forwards, from the axes of the stage to the loops that remain. `loop_values` walks them
backwards: it writes every loop, and so every axis, in terms of the loops that remain.

The walks do not know what a number is. The arithmetic is passed in:

* `loopwright.schedule.bounds.exact`: extents are ints or affine forms over size variables, values
  are affine forms over loop variables. Lowering builds the program from them.
* `loopwright.cost.symbolic.index_steps`: an extent may stand for those of many candidates at once,
  values are sums of steps. Features and the analytical model are derived from them.
* `loopwright.schedule.rules.loops`: only extents, those that a stage has while it covers its whole
  tensor. Printed schedules show them, and some rules compare them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar, assert_never

from loopwright.schedule.state import FuseRel, SplitRel, StageState

N = TypeVar("N")
V = TypeVar("V")


class ExtentArithmetic(Protocol[N]):
    """Arithmetic on extents: an extent is an int, or an N where it is not a number."""

    def times(self, a: N | int, b: N | int) -> N | int: ...

    def ceil_div(self, a: N | int, b: N | int) -> N | int:
        """``ceil(a / b)``; ``b`` is at least 1."""
        ...

    def clipped(self, factor: int, n: N | int) -> N | int:
        """The smaller of a split factor and the extent that is split.

        The factor itself where it is not known which one is smaller.
        """
        ...

    def split_extents(
        self, n: N | int, factor: int | None, nparts: int | None
    ) -> tuple[N | int, N | int]:
        """Extents of the outer and the inner loop that a loop of ``n`` iterations is split into.

        The rule of splits, the same for every arithmetic: ``nparts`` is the outer extent where
        ``factor``, the wanted inner one, is None.
        """
        if factor is not None:
            inner = self.clipped(factor, n)
            return self.ceil_div(n, inner), inner
        assert nparts is not None
        return nparts, self.ceil_div(n, nparts)


class LoopArithmetic(ExtentArithmetic[N], Protocol[N, V]):
    """Arithmetic on extents (an int or an N) and on values of loops (of type V)."""

    def split_value(self, loop: str, outer: V, length: N | int, inner: V) -> V:
        """``outer * length + inner``, the value of ``loop``, which was split."""
        ...

    def fused_values(self, loop: str, value: V, outer: N | int, length: N | int) -> tuple[V, V]:
        """``value // length`` and ``value % length``: values of the loops fused into ``loop``."""
        ...


def loop_extents(
    stage: StageState,
    spatial: Sequence[N | int],
    reduce: Sequence[N | int],
    arithmetic: ExtentArithmetic[N],
) -> dict[str, N | int]:
    """Extents of all loops of a stage by id, those that later steps consumed included."""
    extents = {f"a{d}": n for d, n in enumerate(spatial)}
    extents |= {f"r{d}": n for d, n in enumerate(reduce)}
    for rel in stage.relations:
        match rel:
            case SplitRel():
                extents[rel.outer], extents[rel.inner] = arithmetic.split_extents(
                    extents[rel.parent], rel.factor, rel.nparts
                )
            case FuseRel():
                extents[rel.fused] = arithmetic.times(extents[rel.outer], extents[rel.inner])
            case _:
                assert_never(rel)
    return extents


def loop_values(
    stage: StageState,
    leaves: Mapping[str, V],
    extents: Mapping[str, N | int],
    arithmetic: LoopArithmetic[N, V],
) -> dict[str, V]:
    """Values of all loops of a stage by id, from ``leaves``: those of the loops that remain."""
    values = dict(leaves)
    for rel in reversed(stage.relations):
        match rel:
            case SplitRel():
                values[rel.parent] = arithmetic.split_value(
                    rel.parent, values[rel.outer], extents[rel.inner], values[rel.inner]
                )
            case FuseRel():
                values[rel.outer], values[rel.inner] = arithmetic.fused_values(
                    rel.fused, values[rel.fused], extents[rel.outer], extents[rel.inner]
                )
            case _:
                assert_never(rel)
    return values
