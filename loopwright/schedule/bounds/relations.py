"""Extents and values of the loops of a stage: the effect of splits and fusions, in one place.

`loop_extents` walks relations forwards, from the axes of the stage to the loops that remain;
`loop_values` walks them backwards and writes every axis in terms of the loops that remain. The
walks do not know what a number is; there are three arithmetics: `ExactArithmetic`, from which the
program is built, that of estimates for many candidates (`loopwright.cost.symbolic.index_steps`),
and that of nominal extents (`loopwright.schedule.primitives.loops`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar, assert_never

from loopwright.ir import affine
from loopwright.ir.affine import Affine, Extent, div_mod, form_expr
from loopwright.ir.expr import Expr, Var, binary, cast
from loopwright.ir.sizes import Sizes
from loopwright.ir.visitor import free_vars
from loopwright.schedule.bounds.results import StageBounds
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
        """The smaller of the size of a split and the extent; the size where that is not known."""
        ...

    def split_extents(
        self, n: N | int, factor: int | None, nparts: int | None, may_shrink: bool = True
    ) -> tuple[N | int, N | int]:
        """Extents of the outer and the inner loop that a loop of ``n`` iterations is split into.

        ``may_shrink`` says whether ``nparts`` beyond ``n`` is cut to it.
        """
        if factor is not None:
            inner = self.clipped(factor, n)
            return self.ceil_div(n, inner), inner
        assert nparts is not None
        outer = self.clipped(nparts, n) if may_shrink else nparts
        return outer, self.ceil_div(n, outer)


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
    may_shrink: bool = True,
) -> dict[str, N | int]:
    """Extents of all loops of a stage by id, those that later steps consumed included.

    ``may_shrink`` says whether ``nparts`` beyond an extent is cut to it, but for loops of threads.
    """
    extents = {f"a{d}": n for d, n in enumerate(spatial)}
    extents |= {f"r{d}": n for d, n in enumerate(reduce)}
    whole = _loops_of_threads(stage) if may_shrink else stage.loops
    for rel in stage.relations:
        match rel:
            case SplitRel():
                extents[rel.outer], extents[rel.inner] = arithmetic.split_extents(
                    extents[rel.parent], rel.factor, rel.nparts, rel.outer not in whole
                )
            case FuseRel():
                extents[rel.fused] = arithmetic.times(extents[rel.outer], extents[rel.inner])
            case _:
                assert_never(rel)
    return extents


def _loops_of_threads(stage: StageState) -> set[str]:
    """Loops from which one came that runs as threads: stages that share these agree on a number."""
    loops = {loop for loop, mark in stage.marks.items() if mark.kind == "thread"}
    for rel in reversed(stage.relations) if loops else ():
        match rel:
            case SplitRel() if loops & {rel.outer, rel.inner}:
                loops.add(rel.parent)
            case FuseRel() if rel.fused in loops:
                loops |= {rel.outer, rel.inner}
    return loops


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


def loop_var(name: str, extent: Extent, sizes: Sizes, dtype: str = "int32") -> Var:
    """A variable that runs below an extent, with its bounds entered; int64 for a long extent."""
    most = extent if isinstance(extent, int) else extent.bounds(sizes.ranges)[1]
    var = Var(name, dtype if most < affine.NARROW else "int64")
    sizes.ranges.enter(var, extent)
    return var


class ExactArithmetic(LoopArithmetic[Affine, Affine]):
    """Extents are ints or forms over size variables, values are forms over loop variables.

    Variables for what is not affine are entered in ``position``, which must have the loops, and in
    ``lets``, which must have room for every loop.
    """

    def __init__(self, sb: StageBounds) -> None:
        self._sb, self._sizes = sb, sb.sizes

    def times(self, a: Extent, b: Extent) -> Extent:
        return self._sizes.times(a, b)

    def ceil_div(self, a: Extent, b: Extent) -> Extent:
        """``ceil(a / b)`` with an int ``b``: split factors are ints."""
        assert isinstance(b, int)
        return self._sizes.ceil_div(a, b)

    def clipped(self, factor: int, n: Extent) -> int:
        return min(factor, n) if isinstance(n, int) else factor

    def split_value(self, loop: str, outer: Affine, length: Extent, inner: Affine) -> Affine:
        if isinstance(length, int):
            return outer * length + inner
        if not outer.terms:
            return self._sizes.times(outer.const, length) + inner
        largest = self._sizes.times(self._sizes.span(outer)[1], length)
        return self._variable(f"{self._name(loop)}.start", largest + 1, "*", outer, length) + inner

    def fused_values(
        self, loop: str, value: Affine, outer: Extent, length: Extent
    ) -> tuple[Affine, Affine]:
        if not isinstance(length, int):
            over = self._over_run(value, self._sizes.times(outer, length))
            return (
                self._variable(f"{self._name(loop)}.q", outer + over, "//", value, length),
                self._variable(f"{self._name(loop)}.r", length, "%", value, length),
            )
        if outer == 1:
            # What the fused loop over-runs is guarded: there is nothing to divide.
            return Affine(0), value
        lets: list[tuple[Var, Expr]] = []
        q, r = div_mod(value, length, self._sizes.ranges, lets, self._name(loop))
        for var, definition in lets:
            self._define(var, definition)
        if lets and isinstance(outer, Affine) and q == Affine.of(lets[0][0]):
            # The quotient is below the outer extent, but for what the fused loop over-runs.
            over = self._over_run(value, outer * length)
            self._sizes.ranges.enter(lets[0][0], outer + -(-over // length))
        return q, r

    def _name(self, loop: str) -> str:
        return self._sb.stage.loops[loop].name

    def _define(self, var: Var, value: Expr) -> None:
        """Make a definition just inside the innermost loop that it depends on."""
        sb = self._sb
        pos = max((sb.position.get(v, -1) for v in free_vars(value)), default=-1)
        sb.position[var] = pos
        if sb.kernel is not None:
            sb.kernel.depends(var, value)
        sb.lets[pos + 1].append((var, value))

    def _over_run(self, value: Affine, length: Extent) -> int:
        """Iterations by which a fused loop may run beyond the product of its parts."""
        return max(0, (Affine(1) + value - length).bounds(self._sizes.ranges)[1])

    def _variable(self, name: str, extent: Extent, op: str, x: Affine, length: Affine) -> Affine:
        """A variable for ``x op length``, which is computed in int64, where nothing wraps."""
        var = loop_var(name, extent, self._sizes, "int64")
        a, b = form_expr(x, self._sizes.ranges), form_expr(length, self._sizes.ranges)
        self._define(var, binary(op, cast(a, "int64"), cast(b, "int64")))
        return Affine.of(var)
