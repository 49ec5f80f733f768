"""Contractions on CPUs: roles of loops and operands, and the structures that follow.

The kernel is that of Goto and van de Geijn (ACM TOMS 2008), derived from access maps: vectors run
along a loop that moves one operand alone, rows along one that does not move this operand. A packed
copy of that operand at a level of tiles is one more structure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from math import prod
from typing import Any, TypeVar

from loopwright import te
from loopwright.ir.expr import IterVar, position_of
from loopwright.space.analysis import OperandUse, StageAnalysis, StageClass
from loopwright.space.expression import extents
from loopwright.space.kernels import Kernel
from loopwright.space.rules.common_cpu import (
    ALONE,
    MAY_BE_ALONE,
    column_tiles,
    compute_in_vectors,
    compute_inline,
    cut_short,
    element_bytes,
    fits_registers,
    most_with_tasks,
    rfactored,
    row_tiles,
    run,
    run_in_tiles,
    vector_lanes,
    vector_registers,
)
from loopwright.space.rules.rows_cpu import dot_variants, pays_by_dots
from loopwright.space.structure import Sketch, Variant, fused

_BLOCKS = (1, 2, 4, 8, 16, 32, 64)
_BESIDE = (1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64)
UNROLL = (1, 2, 4, 8)
_USUAL_STEPS = 384  #: usual steps of a block of a reduction
_LARGE_COPY = 1 << 16  #: bytes of a packed copy from which on its panels are worth prefetching
SHORT = 8  #: longest reduction loop that is fully unrolled


class OuterProducts:
    def __init__(self, sketch: Sketch, kernel: Kernel, plan: Plan) -> None:
        self.sketch, self.s, self.kernel, self.plan = sketch, sketch.s, kernel, plan
        self.roles = plan.roles
        self.rows, self.width = sketch.numbers("tile", self.roles.tiles(), self.roles.best)

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
        cut_short(self.s, t, vector, multiple=vector_lanes(t.dtype))

    def _share_out(self, t: te.Tensor, loop: IterVar) -> None:
        """Run a loop in parallel, unless one thread does all."""
        if not self.plan.alone:
            self.s[t].parallel(loop)

    def _blocks(self) -> tuple[Any, Any, Any]:
        """Register tiles of a task along rows and vectors, and iterations of the loop beside; by
        default as many of the latter, and of rows, as leave enough tasks."""
        roles, (high, wide) = self.roles, self.roles.best
        beside = roles.beside.count if roles.beside is not None else 1
        panels = -(-roles.vectors // wide) * extents(roles.others) // beside
        panels *= roles.vector.count // roles.group if roles.group else 1
        count = -(-roles.row.count // high) if roles.row is not None else 1
        narrowest = min(w for _, w in roles.tiles())
        columns = [b for b in _BLOCKS if b <= -(-roles.vectors // narrowest)]
        rows = [b for b in _BLOCKS if roles.row is not None and b <= roles.row.count] or [1]
        liked = most_with_tasks(rows, count, panels * beside)
        panels *= -(-count // liked)
        run_here = [b for b in _BESIDE if b <= beside]
        return (
            self.sketch.number("row_block", rows, liked),
            self.sketch.number("vector_block", columns),
            self.sketch.number("beside", run_here, most_with_tasks(run_here, beside, panels)),
        )

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
        if not reduce:
            return [], []
        *before, last = reduce
        count = last.extent  # the steps of a block are a symbol, and many
        if not isinstance(count, int) or count > SHORT:
            unroll = [u for u in UNROLL if not isinstance(count, int) or u <= count]
            outer, inner = self.s[t].split(last, factor=self.sketch.number("unroll", unroll))
            return [*before, outer], [inner]
        # The loop outside a short one may be unrolled too, but not where next to nothing of the
        # reduction is left: compilers would unroll that as well, and hold all of a local copy in
        # registers, that is on the stack.
        count = before[-1].extent if before else 0
        rest = prod(x.extent for x in before[:-1] if isinstance(x.extent, int))
        if not isinstance(count, int) or not 1 < count <= SHORT or rest <= SHORT:
            return before, [last]
        outer, inner = self.s[t].split(before[-1], factor=self.sketch.number("taps", [1, count]))
        return [*before[:-1], outer], [inner, last]

    def _in_blocks(self, blocked: IterVar) -> IterVar:
        """Compute partial sums of a block in registers, and add them up in memory."""
        s, roles, out, stage = self.s, self.roles, self.roles.out, self.roles.stage.tensor
        at = position_of(blocked, roles.stage.reduced)
        steps = roles.block_steps(blocked)
        step = self.sketch.number("steps", steps, min(steps, key=lambda n: abs(n - _USUAL_STEPS)))
        loop, _ = s[stage].split(s[stage].op.reduce_axis[at], factor=step)
        sums = rfactored(s, stage, loop)
        s[sums].set_scope("local")
        row_block, vector_block, _ = self._blocks()
        task = self._task(row_block, vector_block) if out is not stage else None
        own, position, block, inner = self._accumulated(row_block, vector_block, task is None)
        if task is not None:
            s[stage].compute_at(s[out], task)
        s[sums].compute_at(s[stage], inner)
        spatial = dict(zip(roles.stage.spatial, s[sums].op.axis[1:], strict=True))
        reduce, written_out = self._unrolled(sums)
        tile = [*written_out, spatial[roles.row], spatial[roles.vector]]  # type: ignore[index]
        s[sums].reorder(s[sums].op.axis[0], *(spatial[x] for x in roles.others), *reduce, *tile)
        run(s, sums, tile)
        self._cut_short(sums, *tile[-2:])
        cut_short(s, sums, reduce[-1])
        if self.plan.packing != "none":
            packed = self._pack(sums, stage, position)
            host, loop = (stage, own) if task is None else (out, task)
            self._fetch_ahead(packed, sums, reduce, host, loop)
        if self.plan.rows_packed:
            self._pack_rows(sums, stage, block)
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
        """Tile the sums over blocks; returns the loops of a task (inside another stage's task: of a
        block), of a panel, of a block and of a register tile."""
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
        large = prod(packed.static_shape) * element_bytes(packed) >= _LARGE_COPY
        if self.plan.packing == "root" and self.plan.order == "vectors" and large and reduce:
            ahead = self.sketch.number("ahead", [1, 0])
            self.s[acc].prefetch_next(packed, reduce[-1], host, task, ahead)

    def _turn(self, packed: te.Tensor, block: IterVar, axes: list[IterVar], mine: IterVar) -> None:
        """Copy an operand that lies along another dimension, with squares transposed on the way."""
        s, lanes = self.s, vector_lanes(packed.dtype)
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
            _, inner = s[packed].split(last, factor=vector_lanes(packed.dtype))
            s[packed].vectorize(inner)


_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)
_VECTORS = (1, 2, 3, 4, 6)
#: Fewest and most steps of a block of a reduction; the fewest where there are few rows, so that the
#: loaded operand is read along its rows, several of them side by side.
_STEPS, _FEW_ROWS, _FEWEST = (64, 1024), 32, 4
#: Number of even blocks that are enough to choose from; else numbers of blocks, and a divisor of
#: their steps, so that they can be partly unrolled.
_EVEN, _PARTS, _MULTIPLE = 3, (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128), 8


@dataclass(frozen=True, eq=False)
class Roles:
    out: te.Tensor  # result, elementwise over the reduction, or that itself
    stage: StageAnalysis  # the reduction
    loaded: OperandUse  # operand that is loaded in vectors
    vector: IterVar  # loop along which vectors run
    row: IterVar | None  # loop of the rows of the register tile; None: there is one row
    #: Iterations of the vector loop for which the other operands stand still, where it moves them
    #: in blocks; 0 where it does not.
    group: int = 0

    @property
    def others(self) -> list[IterVar]:
        return [x for x in self.stage.spatial if x is not self.vector and x is not self.row]

    @property
    def turned(self) -> bool:
        """Whether memory of the result runs along the rows of the register tile."""
        return self.vector is not self.stage.spatial[-1]

    @property
    def dimension(self) -> int | None:
        """Dimension of the loaded operand that the vector loop alone indexes, one by one."""
        return dimension_of(self.loaded, self.vector)

    @property
    def rows_dimension(self) -> int | None:
        """Dimension of the only other operand that the row loop alone indexes, one by one; None
        where it is the loaded one, of which there is a copy already."""
        others = [o for o in self.stage.operands if o is not self.loaded]
        if len(others) != 1 or self.row is None or others[0].tensor is self.loaded.tensor:
            return None
        return dimension_of(others[0], self.row)

    @property
    def vectors(self) -> int:
        """Iterations of the vector loop, those of a group where there are groups."""
        return self.group or self.vector.count

    @property
    def beside(self) -> IterVar | None:
        """Another loop of the result that a task may run, since the loaded operand is the same."""
        still = [x for x in self.others if not self.loaded.access.moves_with(x) and x.count > 1]
        return still[-1] if still and not self.group else None

    @property
    def moves_with_others(self) -> bool:
        """Whether a task needs another part of the loaded operand for each of the other loops."""
        return any(self.loaded.access.moves_with(x) for x in self.others)

    @property
    def side_by_side(self) -> bool:
        """Whether vectors of the loaded operand are contiguous in memory."""
        return self.loaded.strides.get(self.vector) == 1

    @cached_property
    def best(self) -> tuple[int, int]:
        """Register tile with the least cost."""
        return min(self.tiles(), key=self.cost)

    def tiles(self) -> list[tuple[int, int]]:
        dtype = self.stage.tensor.dtype
        fits = fits_registers(dtype)
        heights = row_tiles(self.row.count, _ROWS) if self.row is not None else [1]
        widths = column_tiles(self.vectors, dtype, _VECTORS)
        return [(r, w) for r in heights for w in widths if fits(r, w)]

    def block_steps(self, reduced: IterVar) -> list[int]:
        """Steps of a block of a reduction: those that divide it, and, of few, those of about equal
        blocks."""
        count, (low, high) = reduced.count, _STEPS
        if self.row is not None and self.row.count <= _FEW_ROWS:
            low = _FEWEST
        even = [n for n in range(low, min(high, count - 1) + 1) if count % n == 0]
        if len(even) >= _EVEN:
            return even
        near = (-(-count // (n * _MULTIPLE)) * _MULTIPLE for n in _PARTS)
        return sorted({*even, *(n for n in near if low <= n <= min(high, count - 1))})

    def cost(self, tile: tuple[int, int]) -> float:
        """Multiplications and loads of a register tile for each useful multiplication."""
        r, w = tile
        n, m = self.row.count if self.row is not None else 1, self.vectors
        lanes = vector_lanes(self.stage.tensor.dtype)
        vectors = w // lanes
        covered = run_in_tiles(n, r, 1, _IN_FLIGHT // vectors)
        covered *= run_in_tiles(m, w, lanes, _IN_FLIGHT // r * lanes)
        # A multiplication waits some cycles for the one before it in its accumulator; compilers
        # need some registers of their own.
        waiting = max(1.0, _IN_FLIGHT / (r * vectors))
        loads = (r + vectors) / (2 * r * vectors) + 0.5 / r
        crowded = 0.3 if r * vectors > 3 * vector_registers() // 4 else 0.0
        return covered / (n * m) * (waiting + loads + crowded)


_IN_FLIGHT = 8  #: accumulators that keep the multipliers of a core busy


def dimension_of(operand: OperandUse, axis: IterVar | None) -> int | None:
    """Dimension of an operand that a loop alone indexes, one by one."""
    for d, index in enumerate(operand.access.dims):
        if index is not None and dict(index.moves) == {axis: 1}:
            return d
    return None


@dataclass(frozen=True, eq=False)
class Plan:
    roles: Roles
    packing: str  # place of the copy of the loaded operand: "none", "panel", "task" or "root"
    order: str  # outer loop, "vectors" or "rows"
    place: str  # place of computed operands: "root", "task", or "inline", where they are copied
    blocked: IterVar | None = None  # reduction loop that is run in blocks
    rows_packed: bool = False  # whether the other operand is copied for each block
    alone: bool = False  # whether one thread does all of it, since waking others takes longer

    @property
    def name(self) -> str:
        roles = self.roles
        row = roles.row.name if roles.row is not None else "1"
        packed = "as it is" if self.packing == "none" else f"packed at {self.packing}"
        parts = [f"{row} x {roles.vector.name}", f"{roles.loaded.tensor.name} {packed}"]
        parts += [f"{self.order} outside"]
        if self.place != "inline":
            parts += [f"producers at {self.place}"]
        if self.blocked is not None:
            parts += [f"{self.blocked.name} in blocks"]
        parts += ["rows packed"] if self.rows_packed else []
        return ", ".join(parts + (["one thread"] if self.alone else []))

    @property
    def why(self) -> str:
        roles, loaded = self.roles, self.roles.loaded.tensor.name
        return (
            f"{loaded} alone moves with {roles.vector.name}: vectors along it are used for every "
            f"{roles.row.name if roles.row is not None else 'point'}"
        )


PlanT = TypeVar("PlanT", bound=Plan)

_UNPACKED_ROWS = 16  #: most rows of a result for which packing does not pay
#: Operations (multiplications, or instructions of dots) per element to transpose a register tile.
TURNED = 10
_SHORT_REDUCTION = 512  #: longest reduction that is not split into blocks


def contraction_variants(kernel: Kernel) -> list[Variant]:
    """Variants of a contraction, the most sensible first; none for other kernels."""
    stage = kernel.single
    if stage is None or stage.kind is not StageClass.CONTRACTION:
        return []

    def cost(roles: Roles) -> float:
        """Cost per point of the best register tile, with a transpose if memory is across."""
        turned = TURNED / extents(stage.reduced) if roles.turned else 0.0
        return min(map(roles.cost, roles.tiles())) + turned

    roles = sorted(roles_of(kernel, stage), key=cost)
    plans = [p for r in roles for p in _plans(kernel, r)]
    if roles:
        plans += _blocked(kernel, roles)
        plans += by_one_thread(kernel, plans)
        alone = any(p.alone for p in plans) and kernel.work <= ALONE
        plans.sort(key=lambda p: p.alone is not alone or not _is_sensible(p, roles[0]))
    outer = [Variant(p.name, p.why, partial(_schedule, kernel, p)) for p in plans]
    dots = dot_variants(kernel)
    return [*dots, *outer] if pays_by_dots(stage) else [*outer, *dots]


def roles_of(kernel: Kernel, stage: StageAnalysis) -> Iterator[Roles]:
    """Roles for each operand: its longest loop of its own for the vectors, and a row loop. The last
    loop of the result is one of the two, so that a tile is written along memory."""
    last = stage.spatial[-1]
    for operand in stage.operands:
        alone = [x for x in stage.alone(operand) if x.count > 1]
        if not alone:
            yield from _grouped(kernel, stage, operand)
            continue
        still = [x for x in stage.spatial if not operand.access.moves_with(x) and x.count > 1]
        vector = last if last in set(alone) else max(alone, key=lambda x: x.count)
        if vector is not last and last not in set(still):
            continue
        row = last if last in set(still) else _nearest(still, stage, operand)
        yield Roles(kernel.out, stage, operand, vector, row)


def _grouped(kernel: Kernel, stage: StageAnalysis, operand: OperandUse) -> Iterator[Roles]:
    """Vectors along a loop that moves the others in blocks: one group after another."""
    others = [o for o in stage.operands if o is not operand]
    for x in stage.spatial:
        steps = {o.access.steps.get(x, x.count) for o in others}
        still = [y for y in stage.spatial if not operand.access.moves_with(y) and y.count > 1]
        group = min(steps, default=1)
        if len(steps) != 1 or group in (1, x.count) or operand.access.steps.get(x) != 1:
            continue
        last = stage.spatial[-1]
        if x is last or last in set(still):
            row = last if last in set(still) else _nearest(still, stage, operand)
            yield Roles(kernel.out, stage, operand, x, row, group)


def _nearest(still: Sequence[IterVar], stage: StageAnalysis, operand: OperandUse) -> IterVar | None:
    """Loop that moves the other operands least: the data of rows lies together."""
    others = [o for o in stage.operands if o is not operand]

    def distance(x: IterVar) -> int:
        return max(abs(o.strides.get(x, 1 << 40)) for o in others if o.access.moves_with(x))

    moved = [x for x in still if any(o.access.moves_with(x) for o in others)]
    return min(moved, key=distance, default=None)


def _plans(kernel: Kernel, roles: Roles) -> Iterator[Plan]:
    """Packing of the loaded operand, outer loop, and place of producers."""
    computed = [o for o in roles.stage.operands if kernel.computes(o.tensor)]
    packings = ["none"] if roles.side_by_side else []
    packings += ["panel", "task", "root"] if roles.dimension is not None else []
    places = ["root", "task"] if computed else ["inline"]
    loaded = kernel.computes(roles.loaded.tensor)
    for packing, order, place in product(packings, ["vectors", "rows"], places):
        # A copy that is made before all tasks reads what is computed before them too.
        if not (loaded and packing == "root" and place == "task"):
            yield Plan(roles, packing, order, place)
    if loaded and roles.dimension is not None:
        for packing, order in product(["panel", "root"], ["vectors", "rows"]):
            yield Plan(roles, packing, order, "inline")


def _blocked(kernel: Kernel, roles: Sequence[Roles]) -> Iterator[Plan]:
    """Long reduction in blocks: data of a block of rows and of a panel then stays in cache."""
    fitting = [r for r in roles if not (r.turned or r.group or r.row is None)]
    longest = max(roles[0].stage.reduced, key=lambda x: x.count)
    if not fitting or longest.count <= _SHORT_REDUCTION or not fitting[0].block_steps(longest):
        return
    for plan in list(_plans(kernel, fitting[0])):
        if plan.order == "vectors" and plan.packing != "task":
            yield replace(plan, blocked=longest)
            if fitting[0].rows_dimension is not None:
                yield replace(plan, blocked=longest, rows_packed=True)


def by_one_thread(kernel: Kernel, plans: Sequence[PlanT], group: int = 1) -> list[PlanT]:
    """Plans for little work without threads, whose waking takes longer. An instruction takes
    ``group`` points at once."""
    assert kernel.single is not None
    computed = any(kernel.computes(o.tensor) for o in kernel.single.operands)
    if computed or kernel.work > MAY_BE_ALONE * group:
        return []
    fitting = [p for p in plans if p.order == "vectors" and p.blocked is None]
    return [replace(p, alone=True) for p in fitting if p.packing != "task"]


def _is_sensible(plan: Plan, best: Roles) -> bool:
    """Whether a plan is the one for a build without a trial."""
    roles = plan.roles
    rows = roles.row.count if roles.row is not None else 1
    packing = "panel"
    if roles.side_by_side and rows * extents(roles.others) <= _UNPACKED_ROWS:
        packing = "none"
    elif roles.beside is not None or (roles.turned and not roles.moves_with_others):
        packing = "root"
    sensible = (best, packing, "vectors", None)
    choices = (roles, plan.packing, plan.order, plan.blocked)
    return plan.place in ("root", "inline") and choices == sensible


def _schedule(kernel: Kernel, plan: Plan, sketch: Sketch) -> None:
    OuterProducts(sketch, kernel, plan).schedule()
