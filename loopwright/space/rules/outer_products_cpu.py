"""Register tile of a contraction by outer products, with loops and packed copies around it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from loopwright import te
from loopwright.ir.expr import IterVar, position_of
from loopwright.space import registers
from loopwright.space.access import extents
from loopwright.space.kernels import Kernel
from loopwright.space.rules.pieces import (
    compute_in_vectors,
    compute_inline,
    cut_short,
    fused,
    most_with_tasks,
    rfactored,
    run,
)
from loopwright.space.rules.roles_cpu import Plan, Roles
from loopwright.space.sketch import Sketch

__all__ = ["OuterProducts", "Plan", "Roles"]

_BLOCKS = (1, 2, 4, 8, 16, 32, 64)
_BESIDE = (1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64)
_UNROLL = (1, 2, 4, 8)
#: Usual steps of a block of a reduction.
_USUAL_STEPS = 384
#: Bytes of a packed copy from which on its panels are worth prefetching.
_LARGE_COPY = 1 << 16
#: Longest reduction loop that is fully unrolled.
_SHORT = 8


class OuterProducts:
    """Scheduler of one structure."""

    def __init__(self, sketch: Sketch, kernel: Kernel, plan: Plan) -> None:
        self.sketch, self.s, self.kernel, self.plan = sketch, sketch.s, kernel, plan
        self.roles = plan.roles
        found = self.roles.tiles()
        self.rows, self.width = sketch.numbers("tile", found, self.roles.best)

    def schedule(self) -> None:
        plan, stage = self.plan, self.roles.stage
        kept = [o.tensor for o in stage.operands if self.kernel.computes(o.tensor)]
        # A copied operand is computed where it is copied: inline, once there is a copy.
        copied = [t for t in kept if plan.place == "inline" and t is self.roles.loaded.tensor]
        kept = [t for t in kept if t not in copied]
        compute_inline(self.s, self.kernel, [*kept, *copied])
        task = self._in_one() if plan.blocked is None else self._in_blocks(plan.blocked)
        for t in copied:
            self.s[t].compute_inline()
        for t in dict.fromkeys(kept):
            compute_in_vectors(self.s, t, self.roles.out, task if plan.place == "task" else None)

    # ------------------------------------------------------------ the whole reduction at once

    def _in_one(self) -> IterVar:
        s, roles, out, stage = self.s, self.roles, self.roles.out, self.roles.stage.tensor
        acc = s.cache_write(out, "local") if out is stage else stage
        block = acc
        if roles.turned:
            acc = s.cache_write(acc, "local")
        position, task, at = self._result()
        reduce: list[IterVar] = []
        for t in dict.fromkeys([block, acc]):
            s[t].compute_at(s[out], at)
            reduce = self._registers(t, block is not acc)
        if self.plan.packing != "none":
            packed = self._pack(acc, out, task if self.plan.packing == "task" else position)
            self._fetch_ahead(packed, acc, reduce, out, task)
        return task

    def _result(self) -> tuple[IterVar, IterVar, IterVar]:
        """Tile the result; returns the loops of a panel, of a task and of a register tile."""
        s, out, roles = self.s, self.roles.out, self.roles
        axis = dict(zip(roles.stage.spatial, s[out].op.axis, strict=True))
        others = [axis[x] for x in roles.others if x is not roles.beside]
        row_block, vector_block, beside_block = self._blocks()
        vector, beside = axis[roles.vector], []
        if roles.group:
            group, vector = s[out].split(vector, factor=roles.group)
            others.append(group)
        if roles.beside is not None:
            more, run_here = s[out].split(axis[roles.beside], factor=beside_block)
            others.append(more)
            beside.append(run_here)
        v1, v2 = s[out].split(vector, factor=self.width)
        v0, v1 = s[out].split(v1, factor=vector_block)
        if roles.row is None:
            s[out].reorder(*others, v0, v1, *beside, v2)
            task = fused(s, out, [*others, v0])
            self._share_out(out, task)
            s[out].vectorize(v2)
            self._cut_short(out, None, v2)
            return v1, task, [v1, *beside][-1]
        r1, r2 = s[out].split(axis[roles.row], factor=self.rows)
        r0, r1 = s[out].split(r1, factor=row_block)
        inner = (v2, r2) if roles.turned else (r2, v2)
        outer = [*others, v0, r0]
        if self.plan.order == "vectors":
            outer = [v0, *others, r0] if beside else outer
        else:
            outer = [*others, r0, v0]
        s[out].reorder(*outer, v1, *beside, r1, *inner)
        task = fused(s, out, outer)
        self._share_out(out, task)
        run(s, out, inner)
        self._cut_short(out, r2, v2)
        return v1, task, r1

    def _cut_short(self, t: te.Tensor, row: IterVar | None, vector: IterVar) -> None:
        """Make a separate register tile of the remainders along rows and vectors."""
        if row is not None:
            cut_short(self.s, t, row)
        cut_short(self.s, t, vector, multiple=registers.lanes(t.dtype))

    def _share_out(self, t: te.Tensor, loop: IterVar) -> None:
        """Run a loop in parallel, unless one thread does all."""
        if not self.plan.alone:
            self.s[t].parallel(loop)

    def _blocks(self) -> tuple[Any, Any, Any]:
        """Register tiles of a task along rows and vectors, and iterations of the loop beside them;
        by default as many of the latter, and of rows, as leave enough tasks.
        """
        roles, (high, wide) = self.roles, self.roles.best
        beside = roles.beside.count if roles.beside is not None else 1
        panels = -(-roles.vectors // wide) * extents(roles.others) // beside
        panels *= roles.vector.count // roles.group if roles.group else 1
        count = -(-roles.row.count // high) if roles.row is not None else 1
        columns = [b for b in _BLOCKS if b <= -(-roles.vectors // self._narrowest())]
        rows = [b for b in _BLOCKS if roles.row is not None and b <= roles.row.count] or [1]
        liked = most_with_tasks(rows, count, panels * beside)
        panels *= -(-count // liked)
        run_here = [b for b in _BESIDE if b <= beside]
        return (
            self.sketch.number("row_block", rows, liked),
            self.sketch.number("vector_block", columns),
            self.sketch.number("beside", run_here, most_with_tasks(run_here, beside, panels)),
        )

    def _narrowest(self) -> int:
        return min(w for _, w in self.roles.tiles())

    def _registers(self, t: te.Tensor, turned: bool) -> list[IterVar]:
        """Compute a register tile; returns the reduction loops that stay loops."""
        s, spatial = self.s, self.roles.stage.spatial
        axis = dict(zip(spatial, s[t].op.axis, strict=True))
        if turned:
            at = position_of(self.roles.vector, spatial)
            s[t].transform_layout(lambda *x: (*x[:at], *x[at + 1 :], x[at]))
        row = [axis[self.roles.row]] if self.roles.row is not None else []
        others = [axis[x] for x in self.roles.others]
        reduce, written_out = self._unrolled(t)
        tile = [*written_out, *row, axis[self.roles.vector]]
        s[t].reorder(*others, *reduce, *tile)
        run(s, t, tile)
        self._cut_short(t, row[0] if row else None, tile[-1])
        return reduce

    def _unrolled(self, t: te.Tensor) -> tuple[list[IterVar], list[IterVar]]:
        """Reduction loops of a stage, and the unrolled ones: a short last one, else some steps."""
        reduce = list(self.s[t].op.reduce_axis)
        # The steps of a block are a symbol, and many.
        count = reduce[-1].extent if reduce else 0
        if isinstance(count, int) and count <= _SHORT:
            return self._short(t, reduce)
        unroll = [u for u in _UNROLL if not isinstance(count, int) or u <= count]
        steps = self.sketch.number("unroll", unroll)
        outer, inner = self.s[t].split(reduce[-1], factor=steps)
        return [*reduce[:-1], outer], [inner]

    def _short(self, t: te.Tensor, reduce: list[IterVar]) -> tuple[list[IterVar], list[IterVar]]:
        """Unroll a short last loop, and perhaps the one outside it.

        Not where next to nothing of the reduction is left outside: compilers would unroll that too,
        and hold all of a local copy in registers, that is on the stack.
        """
        if not reduce:
            return [], []
        *before, last = reduce
        count = before[-1].extent if before else 0
        rest = prod(x.extent for x in before[:-1] if isinstance(x.extent, int))
        if not isinstance(count, int) or not 1 < count <= _SHORT or rest <= _SHORT:
            return before, [last]
        outer, inner = self.s[t].split(before[-1], factor=self.sketch.number("taps", [1, count]))
        return [*before[:-1], outer], [inner, last]

    # ------------------------------------------------------------ the reduction in blocks

    def _in_blocks(self, blocked: IterVar) -> IterVar:
        """Compute partial sums of a block in registers and add them to the result in memory, or to
        a task's copy of it.
        """
        s, roles, out, stage = self.s, self.roles, self.roles.out, self.roles.stage.tensor
        at = position_of(blocked, roles.stage.reduced)
        steps = roles.block_steps(blocked)
        step = self.sketch.number("steps", steps, min(steps, key=lambda n: abs(n - _USUAL_STEPS)))
        loop, _ = s[stage].split(s[stage].op.reduce_axis[at], factor=step)
        partial = rfactored(s, stage, loop)
        s[partial].set_scope("local")
        row_block, vector_block, _ = self._blocks()
        task = self._task(row_block, vector_block) if out is not stage else None
        own, position, block, inner = self._accumulated(row_block, vector_block, task is None)
        if task is not None:
            s[stage].compute_at(s[out], task)
        s[partial].compute_at(s[stage], inner)
        spatial = dict(zip(roles.stage.spatial, s[partial].op.axis[1:], strict=True))
        reduce, written_out = self._unrolled(partial)
        tile = [*written_out, spatial[roles.row], spatial[roles.vector]]  # type: ignore[index]
        others = [spatial[x] for x in roles.others]
        s[partial].reorder(s[partial].op.axis[0], *others, *reduce, *tile)
        run(s, partial, tile)
        self._cut_short(partial, *tile[-2:])
        cut_short(s, partial, reduce[-1])
        if self.plan.packing != "none":
            packed = self._pack(partial, stage, position)
            host, loop = (stage, own) if task is None else (out, task)
            self._fetch_ahead(packed, partial, reduce, host, loop)
        if self.plan.rows_packed:
            self._pack_rows(partial, stage, block)
        return block if task is None else task

    def _task(self, row_block: Any, vector_block: Any) -> IterVar:
        """Tile a result that is elementwise over the reduction; returns the loop of a task."""
        s, out, roles = self.s, self.roles.out, self.roles
        axis = dict(zip(roles.stage.spatial, s[out].op.axis, strict=True))
        assert roles.row is not None
        v1, v2 = s[out].split(axis[roles.vector], factor=self.width)
        v0, v1 = s[out].split(v1, factor=vector_block)
        r1, r2 = s[out].split(axis[roles.row], factor=self.rows)
        r0, r1 = s[out].split(r1, factor=row_block)
        others = [axis[x] for x in roles.others]
        s[out].reorder(*others, v0, r0, r1, r2, v1, v2)
        s[out].vectorize(v2)
        self._cut_short(out, r2, v2)
        task = fused(s, out, [*others, v0, r0])
        s[out].parallel(task)
        return task

    def _accumulated(
        self, row_block: Any, vector_block: Any, parallel: bool
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Tile the sums over blocks; returns the loops of a task (in a task of another stage: of a
        block), of a panel, of a block and of a register tile.
        """
        s, roles, stage = self.s, self.roles, self.roles.stage.tensor
        axis = dict(zip(roles.stage.spatial, s[stage].op.axis, strict=True))
        assert roles.row is not None
        (block,) = s[stage].op.reduce_axis
        others = [axis[x] for x in roles.others]
        v1, v2 = s[stage].split(axis[roles.vector], factor=self.width)
        r1, r2 = s[stage].split(axis[roles.row], factor=self.rows)
        outer: Sequence[IterVar] = ()
        if parallel:
            v0, v1 = s[stage].split(v1, factor=vector_block)
            r0, r1 = s[stage].split(r1, factor=row_block)
            outer = (v0, r0)
        s[stage].reorder(*others, *outer, block, v1, r1, r2, v2)
        task = block
        if parallel:
            task = fused(s, stage, [*others, *outer])
            s[stage].parallel(task)
        run(s, stage, (r2, v2))
        self._cut_short(stage, r2, v2)
        return task, v1, block, r1

    # ------------------------------------------------------------ copies

    def _pack(self, acc: te.Tensor, reader: te.Tensor, loop: IterVar) -> te.Tensor:
        """Copy the loaded operand in blocks of the tile's width, the reduction outside them."""
        s, roles, width = self.s, self.roles, self.width
        d = roles.dimension
        assert d is not None
        source, root = roles.loaded.tensor, self.plan.packing == "root"
        packed = s.cache_read(source, "global" if root else "local", [acc])
        if not root:
            s[packed].compute_at(s[reader], loop)
        s[packed].transform_layout(lambda *x: (x[d] // width, *x[:d], *x[d + 1 :], x[d] % width))
        axes = list(s[packed].op.axis)
        mine = axes.pop(d)
        block, mine = s[packed].split(mine, factor=width)
        if root:
            self._share_out(packed, block)
        if roles.side_by_side:
            s[packed].reorder(block, *axes, mine)
            s[packed].vectorize(mine)
        else:
            self._turn(packed, block, axes, mine)
        return packed

    def _fetch_ahead(
        self,
        packed: te.Tensor,
        acc: te.Tensor,
        reduce: Sequence[IterVar],
        host: te.Tensor,
        task: IterVar,
    ) -> None:
        """Prefetch the next panels of a large packed copy while the rows of one are computed."""
        large = prod(packed.static_shape) * registers.nbytes(packed) >= _LARGE_COPY
        if self.plan.packing == "root" and self.plan.order == "vectors" and large and reduce:
            ahead = self.sketch.number("ahead", [1, 0])
            self.s[acc].prefetch_next(packed, reduce[-1], host, task, ahead)

    def _turn(self, packed: te.Tensor, block: IterVar, axes: list[IterVar], mine: IterVar) -> None:
        """Copy an operand that lies along another dimension, with squares transposed on the way."""
        s, lanes = self.s, registers.lanes(packed.dtype)
        outer, inner = s[packed].split(mine, factor=lanes)
        if not axes:
            s[packed].vectorize(inner)
            return
        k0, k1 = s[packed].split(axes.pop(), factor=lanes)
        s[packed].reorder(block, outer, *axes, k0, k1, inner)
        run(s, packed, (k1, inner))

    def _pack_rows(self, acc: te.Tensor, reader: te.Tensor, loop: IterVar) -> None:
        """Copy the data of the rows of a block, in the order in which it is read."""
        s, roles, rows = self.s, self.roles, self.rows
        d = roles.rows_dimension
        assert d is not None
        (other,) = [o for o in roles.stage.operands if o is not roles.loaded]
        packed = s.cache_read(other.tensor, "local", [acc])
        s[packed].compute_at(s[reader], loop)
        s[packed].transform_layout(lambda *x: (x[d] // rows, *x[:d], *x[d + 1 :], x[d] % rows))
        *_, last = s[packed].op.axis
        if d != len(s[packed].op.axis) - 1:
            _, inner = s[packed].split(last, factor=registers.lanes(packed.dtype))
            s[packed].vectorize(inner)
