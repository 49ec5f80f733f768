"""Contractions on CPUs by dot product instructions.

A step of the register tile takes a group of the reduction at once: four bytes (VNNI), or two int16,
into int32, two bfloat16 into float32 (AVX-512 BF16). The loaded operand is packed with each group
together, as oneDNN does, and the other one too unless it lies so, both padded with zeros to whole
groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import product
from math import prod
from typing import Any

from loopwright import te
from loopwright.ir.affine import Affine, to_affine
from loopwright.ir.expr import Binary, Cast, IterVar, Read, Var, position_of
from loopwright.ir.instructions import DOT_OPERANDS, DotProduct
from loopwright.ir.node import distinct
from loopwright.ir.reduction import Reduce
from loopwright.space.analysis import OperandUse, StageAnalysis, StageClass
from loopwright.space.expression import expressions, extents, reads_of
from loopwright.space.kernels import Kernel
from loopwright.space.rules.common_cpu import (
    ALONE,
    compute_in_vectors,
    compute_inline,
    cut_short,
    vector_lanes,
    vector_registers,
)
from loopwright.space.rules.contraction_cpu import (
    SHORT,
    TURNED,
    UNROLL,
    OuterProducts,
    Plan,
    Roles,
    by_one_thread,
    dimension_of,
    roles_of,
)
from loopwright.space.structure import Sketch, Variant, fused
from loopwright.target import Target


def dot_instruction_variants(kernel: Kernel) -> list[Variant]:
    """Variants of a contraction by dot products, best first; none for other kernels."""
    stage = kernel.single
    if stage is None or stage.kind is not StageClass.CONTRACTION:
        return []
    if stage.tensor.dtype not in ("int32", "float32") or not _multiplies_two(stage):
        return []
    lanes = Target.current().dot_lanes[stage.tensor.dtype]
    if not lanes:
        return []
    plans = [p for r in roles_of(kernel, stage) for p in _plans(r, lanes)]
    group = plans[0].roles.dot.group if plans else 1
    alone = by_one_thread(kernel, plans, group)
    little = bool(alone) and kernel.work <= ALONE * group

    def liking(p: DotPlan) -> tuple[bool, float, bool, bool]:
        # A build without a trial takes no copies that are made again and again.
        sensible = p.packing in ("none", "root") and p.order == "vectors"
        return p.alone is not little, p.roles.best_cost, not sensible, p.other_packed

    plans = sorted([*plans, *alone], key=liking)
    return [Variant(p.name, p.why, partial(_schedule, kernel, p)) for p in plans]


def _multiplies_two(stage: StageAnalysis) -> bool:
    """Whether a sum is one of products of two tensors, each converted to the type of the result."""
    body, dtype = getattr(stage.tensor.op, "body", None), stage.tensor.dtype
    if not isinstance(body, Reduce) or body.where is not None or body.init is not None:
        return False
    (source, *more) = body.source
    if more or stage.combiner != "sum" or not isinstance(source, Binary) or source.op != "*":
        return False
    factors = (source.a, source.b)
    converted = [isinstance(x, Cast) and isinstance(x.value, Read) for x in factors]
    different = len({o.tensor for o in stage.operands}) == len(stage.operands) == 2
    return all(converted) and different and all(x.dtype == dtype for x in factors)


@dataclass(frozen=True, eq=False, kw_only=True)
class DotRoles(Roles):
    """Roles where a step of the register tile is an instruction."""

    dot: DotProduct
    grouped: IterVar  # reduction loop whose iterations it takes in groups

    @property
    def other(self) -> OperandUse:
        """Operand of which all lanes share a group."""
        (other,) = [o for o in self.stage.operands if o is not self.loaded]
        return other

    @cached_property
    def best_cost(self) -> float:
        """Cost per useful element of the best register tile, and of transposing it."""
        whole = -(-self.grouped.count // self.dot.group) * self.dot.group
        turned = TURNED / extents(self.stage.reduced) if self.turned else 0.0
        return self.cost(self.best) * whole / self.grouped.count + turned

    def tiles(self) -> list[tuple[int, int]]:
        """Register tiles. Sums of operands of one sign need registers too, and so do the halves of
        bytes that are extended to 16 bits."""
        tiles = super().tiles()
        by_pairs = Target.current().has_dots_by_pairs
        if self.dot.group == 2 or not (by_pairs or self.dot.data == self.dot.kernel):
            return tiles
        lanes, room = self.dot.lanes, vector_registers()
        fits = [(r, w) for r, w in tiles if r * (w // lanes) + 2 * (w // lanes) + 2 <= room]
        return fits or tiles[:1]


@dataclass(frozen=True, eq=False)
class DotPlan(Plan):
    roles: DotRoles
    other_packed: bool = False  # whether the other operand is copied too

    @property
    def name(self) -> str:
        by = f"by dot products of {self.roles.dot.group}"
        other = [f"{self.roles.other.tensor.name} packed"] if self.other_packed else []
        return ", ".join([by, super().name, *other])

    @property
    def why(self) -> str:
        roles = self.roles
        return (
            f"the CPU has instructions for sums of {roles.dot.group} products of "
            f"{roles.dot.data} by {roles.dot.kernel}, here along {roles.grouped.name}"
        )


def _plans(roles: Roles, lanes: int) -> Iterator[DotPlan]:
    """Places of packed copies, and the outer loop."""
    (other,) = [o for o in roles.stage.operands if o is not roles.loaded]

    def liking(x: IterVar) -> tuple[bool, bool, int]:
        alone = all(dimension_of(o, x) is not None for o in roles.stage.operands)
        return alone or len(roles.stage.reduced) == 1, other.strides.get(x) == 1, x.count

    types = (other.tensor.dtype, roles.loaded.tensor.dtype)
    if types not in DOT_OPERANDS or roles.group or roles.vector.count < lanes:
        return
    dot = DotProduct(*types, lanes)
    # Groups of a long loop along the memory of the other operand; else, as of an image of three
    # colours, of the taps of a window.
    loop = max(roles.stage.reduced, key=liking)
    if loop.count % dot.group and loop.count < 2 * dot.group:
        long = [x for x in roles.stage.reduced if x.count >= dot.group]
        lying = [x for x in long if _lies_in_whole_groups(other, x, dot.group)]
        loop = max(lying, key=lambda x: x.count, default=loop)
    if dot.result != roles.stage.tensor.dtype or loop.count < dot.group:
        return
    every = {f.name: getattr(roles, f.name) for f in fields(Roles)}
    dot_roles = DotRoles(**every, dot=dot, grouped=loop)
    packings = ["none"] if _lies_in_groups(dot_roles) else []
    if dot_roles.dimension is not None and dimension_of(dot_roles.loaded, loop) is not None:
        constant = getattr(dot_roles.loaded.tensor.op, "constant", False)
        packings += ["root"] if constant else ["root", "task", "panel"]
    others = [False] if _lies_in_whole_groups(other, loop, dot.group) else []
    others += [True] if dimension_of(dot_roles.other, loop) is not None else []
    for packing in packings:
        often = packing in ("task", "panel")
        orders, placed = (["vectors"], others[:1]) if often else (["vectors", "rows"], others)
        for order, packed in product(orders, placed):
            yield DotPlan(dot_roles, packing, order, "inline", other_packed=packed)


def _lies_in_whole_groups(operand: OperandUse, loop: IterVar, group: int) -> bool:
    """Whether the elements of a group are contiguous in memory, also those of the last one, which
    may overrun the loop, but not the tensor."""
    last, more = operand.access.dims[-1], -loop.count % group
    if operand.strides.get(loop) != 1 or more == 0:
        return operand.strides.get(loop) == 1
    if last is None or last.offset or last.moves.get(loop) != 1:
        return False
    reach = sum(c * (x.count - 1) for x, c in last.moves.items() if c > 0)
    return reach + more < operand.tensor.static_shape[-1]


def _lies_in_groups(roles: DotRoles) -> bool:
    """Whether the loaded operand lies as the instruction takes it: lanes in a row, each a group."""
    lanes, group, loop = roles.dot.lanes, roles.dot.group, roles.grouped
    outer, lane, block, few = (Var(n) for n in ("outer", "lane", "block", "few"))
    env = {
        roles.vector.var: Affine.of(outer) * lanes + Affine.of(lane),
        loop.var: Affine.of(block) * group + Affine.of(few),
    }
    ranges = {x.var: (0, x.count - 1) for x in (*roles.stage.spatial, *roles.stage.reduced)}
    ranges |= {lane: (0, lanes - 1), outer: (0, -(-roles.vector.count // lanes) - 1)}
    ranges |= {few: (0, group - 1), block: (0, -(-loop.count // group) - 1)}
    reads = reads_of(expressions(roles.stage.tensor.op))
    (read,) = distinct(r for r in reads if r.source is roles.loaded.tensor)
    shape = roles.loaded.tensor.static_shape
    offset = Affine(0)
    for d, index in enumerate(read.indices):
        form = to_affine(index, env, ranges)
        if form is None:
            return False
        offset = offset + form * prod(shape[d + 1 :])
    return (offset.terms.get(lane), offset.terms.get(few)) == (group, 1)


def _schedule(kernel: Kernel, plan: DotPlan, sketch: Sketch) -> None:
    _DotTiles(sketch, kernel, plan).schedule()


class _DotTiles(OuterProducts):
    plan: DotPlan
    roles: DotRoles
    _sums: te.Tensor

    def schedule(self) -> None:
        s, plan, roles = self.s, self.plan, self.roles
        copied = [roles.loaded.tensor] if plan.packing != "none" else []
        copied += [roles.other.tensor] if plan.other_packed else []
        computed = [o.tensor for o in roles.stage.operands if self.kernel.computes(o.tensor)]
        compute_inline(s, self.kernel, computed)
        self._in_one()
        if plan.other_packed:
            self._pack_other()
        for t in computed:
            if t in copied:
                s[t].compute_inline()
            else:
                compute_in_vectors(s, t, roles.out, None)

    def _registers(self, t: te.Tensor, turned: bool) -> list[IterVar]:
        s, roles, spatial = self.s, self.roles, self.roles.stage.spatial
        if not s[t].op.reduce_axis:
            return super()._registers(t, turned)
        self._sums = t
        axis = dict(zip(spatial, s[t].op.axis, strict=True))
        if turned:
            at = position_of(roles.vector, spatial)
            s[t].transform_layout(lambda *x: (*x[:at], *x[at + 1 :], x[at]))
        blocks, lanes = s[t].split(axis[roles.vector], factor=roles.dot.lanes)
        reduce = list(s[t].op.reduce_axis)
        at = position_of(roles.grouped, roles.stage.reduced)
        reduce[at], few = s[t].split(reduce[at], factor=roles.dot.group)
        row = [axis[roles.row]] if roles.row is not None else []
        loops, written_out = self._steps(t, reduce)
        tile = [*written_out, *row, blocks]
        s[t].reorder(*(axis[x] for x in roles.others), *loops, *tile, lanes, few)
        for x in tile:
            s[t].unroll(x)
        cut_short(s, t, *row, blocks)
        dot = roles.dot
        s[t].tensorize(lanes, te.intrinsics.dot_products(dot.data, dot.kernel, dot.lanes))
        return loops

    def _steps(self, t: te.Tensor, loops: list[IterVar]) -> tuple[list[IterVar], list[IterVar]]:
        """Loops of the reduction, and the unrolled part of the last, without a rest to test for."""
        *before, last = loops
        if last.extent <= SHORT:
            return before, [last]
        steps = self.sketch.number("unroll", [u for u in UNROLL if last.extent % u == 0])
        outer, inner = self.s[t].split(last, factor=steps)
        return [*before, outer], [inner]

    def _pack(self, acc: te.Tensor, reader: te.Tensor, loop: IterVar) -> te.Tensor:
        """Copy the loaded operand in blocks of the register tile's width, each group together."""
        s, roles, width, group = self.s, self.roles, self.width, self.roles.dot.group
        d, g = roles.dimension, self._grouped(roles.loaded)
        assert d is not None
        root = self.plan.packing == "root"
        packed = s.cache_read(roles.loaded.tensor, "global" if root else "local", [acc])
        if not root:
            s[packed].compute_at(s[reader], loop)

        def layout(*x: Any) -> tuple[Any, ...]:
            rest = [i // group if q == g else i for q, i in enumerate(x) if q != d]
            return (x[d] // width, *rest, x[d] % width, x[g] % group)

        s[packed].transform_layout(layout, pad_value=0)
        axes = list(s[packed].op.axis)
        mine, along = axes[d], axes[g]
        block, mine = s[packed].split(mine, factor=width)
        rest = [x for q, x in enumerate(axes) if q not in (d, g)]
        if root:
            self._share_out(packed, block)
        if not root and roles.grouped.count % group:
            s[packed].reorder(block, *rest, along, mine)
            return packed
        along, few = s[packed].split(along, factor=group)
        if roles.side_by_side:
            s[packed].reorder(block, *rest, along, few, mine)
            s[packed].unroll(few)
            s[packed].vectorize(mine)
            return packed
        s[packed].reorder(block, *rest, mine, along, few)
        s[packed].vectorize(few)
        return packed

    def _pack_other(self) -> None:
        """Copy the other operand with each group together, before all tasks."""
        s, roles, group = self.s, self.roles, self.roles.dot.group
        other, g = roles.other, self._grouped(roles.other)
        d = roles.rows_dimension
        packed = s.cache_read(other.tensor, "global", [self._sums])
        s[packed].transform_layout(self._layout_of_other(other, d, g), pad_value=0)
        axes = list(s[packed].op.axis)
        along, few = s[packed].split(axes[g], factor=group)
        last = axes[-1] if g != len(axes) - 1 else None
        axes[g] = along
        if last is None:
            s[packed].vectorize(few)
        else:
            last, inner = s[packed].split(last, factor=vector_lanes("int32"))
            s[packed].reorder(*axes[:-1], last, few, inner)
            s[packed].unroll(few)
            s[packed].vectorize(inner)
        outer = axes[:-1]
        if outer:
            self._share_out(packed, fused(s, packed, outer[:2]))

    def _layout_of_other(self, other: OperandUse, d: int | None, g: int) -> Any:
        """Rows of a register tile together where the row loop indexes a dimension alone; else room
        behind each dimension for rows of a tile that overruns the edge."""
        group, rows, row = self.roles.dot.group, self.rows, self.roles.row
        shape = other.tensor.static_shape
        room = [0] * len(shape)
        if row is not None and dimension_of(other, row) is None:
            overrun = max(high for high, _ in self.roles.tiles()) - 1
            moves = [0 if x is None else abs(x.moves.get(row, 0)) for x in other.access.dims]
            room = [n * overrun for n in moves]

        def digits(q: int, i: Any) -> tuple[Any, ...]:
            if q == g:
                return (i // group,)
            if q == d:
                return (i // rows,)
            whole = shape[q] + room[q]
            return (i // whole, i % whole) if room[q] else (i,)

        def layout(*x: Any) -> tuple[Any, ...]:
            found = [part for q, i in enumerate(x) for part in digits(q, i)]
            return (*found, *((x[d] % rows,) if d is not None else ()), x[g] % group)

        return layout

    def _grouped(self, operand: OperandUse) -> int:
        d = dimension_of(operand, self.roles.grouped)
        assert d is not None
        return d
