"""Contractions on CPUs: an enumerated register tile, with packed operands around it.

The kernel is the one of Goto and van de Geijn (ACM TOMS 2008), told from access maps: vectors run
along a loop that one operand alone moves with, rows along one that this operand does not move with,
so that each vector of it is used for every row, and each element of the others for every vector.
What TVM's rules for CPUs cannot do, a packed copy of that operand at a level of tiles, is here one
more structure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.space import registers
from loopwright.space.access import extents, is_computed, producers
from loopwright.space.analysis import OperandUse, StageAnalysis, StageClass, analyze
from loopwright.space.rules.pieces import compute_in_vectors
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)
_VECTORS = (1, 2, 3, 4, 6)
_BLOCKS = (1, 2, 4, 8, 16, 32, 64)
_UNROLL = (1, 2, 4, 8)
#: A reduction loop that is no longer is written out as a whole.
_SHORT = 8
#: Parallel tasks that the default configuration leaves at least, where the shape allows.
_MIN_TASKS = 8

Packing = Literal["none", "panel", "task", "root"]
Order = Literal["vectors outside", "rows outside"]


@dataclass(frozen=True)
class Roles:
    """What the loops and operands of a contraction do in a kernel.

    Attributes:
        out: the result, elementwise over the reduction, or that itself.
        stage: the reduction.
        loaded: the operand that is loaded in vectors.
        vector: the loop along which vectors run.
        row: the loop of the rows of the register tile; None: there is one row.
    """

    out: te.Tensor
    stage: StageAnalysis
    loaded: OperandUse
    vector: IterVar
    row: IterVar | None

    @property
    def others(self) -> list[IterVar]:
        """The loops of the result beside these two."""
        return [x for x in self.stage.spatial if x is not self.vector and x is not self.row]

    @property
    def dimension(self) -> int | None:
        """The dimension of the loaded operand that the vector loop alone indexes, one by one."""
        for d, index in enumerate(self.loaded.access.dims):
            if index is not None and dict(index.moves) == {self.vector: 1}:
                return d
        return None

    @property
    def side_by_side(self) -> bool:
        """Whether vectors of the loaded operand lie in memory as they are."""
        return self.loaded.strides.get(self.vector) == 1


def contractions(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """The structures of an expression whose one reduction is a contraction.

    Args:
        outputs: the results; one, elementwise over the reduction.
        args: the arguments in calling order.

    Returns:
        The structures; none where the expression is something else.
    """
    (out,) = outputs
    stages = [s for s in analyze(out) if s.reduced]
    if len(stages) != 1 or stages[0].kind is not StageClass.CONTRACTION:
        return []
    return [
        _structure(roles, args, packing, order, padding)
        for roles in _roles(out, stages[0])
        for packing, order, padding in _choices(roles)
    ]


def _roles(out: te.Tensor, stage: StageAnalysis) -> Iterator[Roles]:
    """For each operand its longest loop of its own as that of the vectors, and a row loop for it.

    The last loop of the result is one of the two: a tile is then written along memory.
    """
    last = stage.spatial[-1]
    for operand in stage.operands:
        alone = [x for x in stage.alone(operand) if x.count > 1]
        still = [x for x in stage.spatial if not operand.access.moves_with(x) and x.count > 1]
        if not alone:
            continue
        vector = last if last in alone else max(alone, key=lambda x: x.count)
        if vector is not last and last not in still:
            continue
        row = last if last in still else _nearest(still, stage, operand)
        yield Roles(out, stage, operand, vector, row)


def _nearest(still: Sequence[IterVar], stage: StageAnalysis, operand: OperandUse) -> IterVar | None:
    """The loop in which the other operands move least: what rows read lies together."""
    others = [o for o in stage.operands if o is not operand]

    def distance(x: IterVar) -> int:
        return max(abs(o.strides.get(x, 1 << 40)) for o in others if o.access.moves_with(x))

    moved = [x for x in still if any(o.access.moves_with(x) for o in others)]
    return min(moved, key=distance, default=None)


def _choices(roles: Roles) -> Iterator[tuple[Packing, Order, str]]:
    """How the loaded operand is packed, which loop stands outside, where producers go."""
    packings: list[Packing] = ["none"] if roles.side_by_side else []
    if roles.dimension is not None:
        packings += ["panel", "task", "root"]
    orders: list[Order] = ["vectors outside", "rows outside"]
    computed = [o for o in roles.stage.operands if is_computed(o.tensor)]
    yield from product(packings, orders, ["root", "task"] if computed else ["inline"])


def _structure(
    roles: Roles, args: Sequence[te.Tensor], packing: Packing, order: Order, padding: str
) -> Structure:
    sketch = Sketch([roles.out], args)
    _Kernel(sketch, roles, packing, order, padding).schedule()
    row = roles.row.name if roles.row is not None else "1"
    tensor = roles.loaded.tensor.name
    packed = "as it is" if packing == "none" else f"packed at {packing}"
    sketch.why.append(
        f"{tensor} alone moves with {roles.vector.name}: vectors of it serve every {row}"
    )
    name = f"{row} x {roles.vector.name}, {tensor} {packed}, {order}"
    return sketch.finished(name if padding == "inline" else f"{name}, producers at {padding}")


class _Kernel:
    """One structure while it is scheduled."""

    def __init__(
        self, sketch: Sketch, roles: Roles, packing: Packing, order: Order, padding: str
    ) -> None:
        self.sketch, self.s, self.roles = sketch, sketch.s, roles
        self.packing, self.order, self.padding = packing, order, padding
        dtype = roles.stage.tensor.dtype
        self.lanes = registers.lanes(dtype)
        self.rows, self.width = self._tile(dtype)

    def _tile(self, dtype: str) -> tuple[Any, ...]:
        """The register tile: all that fits the registers, by default with the fewest loads."""
        row, vector = self.roles.row, self.roles.vector
        fits = registers.fitting(dtype)
        heights = registers.row_tiles(row.count, _ROWS) if row is not None else [1]
        widths = registers.column_tiles(vector.count, dtype, _VECTORS)
        found = [(r, w) for r in heights for w in widths if fits(r, w)]

        def cost(tile: tuple[int, int]) -> float:
            r, w = tile
            n = row.count if row is not None else 1
            covered = -(-n // r) * r * -(-vector.count // w) * w
            vectors = w // self.lanes
            return covered / (n * vector.count) * (1 + (r + vectors) / (2 * r * vectors) + 0.5 / r)

        return self.sketch.numbers("tile", found, min(found, key=cost))

    def schedule(self) -> None:
        """Make the steps."""
        s, out, stage = self.s, self.roles.out, self.roles.stage.tensor
        kept = {out, stage, *(o.tensor for o in self.roles.stage.operands)}
        for t in producers(out):
            if t not in kept:
                s[t].compute_inline()
        acc = s.cache_write(out, "local") if out is stage else stage
        turned = self.roles.vector is not self.roles.stage.spatial[-1]
        block = acc
        if turned:
            acc = s.cache_write(acc, "local")
        position, task, at = self._result()
        for t in dict.fromkeys([block, acc]):
            s[t].compute_at(s[out], at)
            self._registers(t, turned)
        if self.packing != "none":
            self._pack(acc, task, position)
        for o in self.roles.stage.operands:
            if is_computed(o.tensor):
                at_task = task if self.padding == "task" else None
                compute_in_vectors(s, o.tensor, out, at_task)

    def _result(self) -> tuple[IterVar, IterVar, IterVar]:
        """Tile the result; the loops of a panel, of a task and of a register tile."""
        s, out, roles = self.s, self.roles.out, self.roles
        axis = dict(zip(roles.stage.spatial, s[out].op.axis, strict=True))
        v1, v2 = s[out].split(axis[roles.vector], factor=self.width)
        v0, v1 = s[out].split(v1, factor=self._block("vector_block", roles.vector.count, 1))
        others = [axis[x] for x in roles.others]
        if roles.row is None:
            s[out].reorder(*others, v0, v1, v2)
            task = s[out].fuse(*others, v0) if others else v0
            s[out].parallel(task)
            s[out].vectorize(v2)
            return v1, task, v1
        r1, r2 = s[out].split(axis[roles.row], factor=self.rows)
        r0, r1 = s[out].split(r1, factor=self._block("row_block", roles.row.count, 64))
        inner = (r2, v2) if roles.vector is roles.stage.spatial[-1] else (v2, r2)
        outer = (v0, r0) if self.order == "vectors outside" else (r0, v0)
        s[out].reorder(*others, *outer, v1, r1, *inner)
        task = s[out].fuse(*others, *outer)
        s[out].parallel(task)
        s[out].unroll(inner[0])
        s[out].vectorize(inner[1])
        return v1, task, r1

    def _block(self, name: str, extent: int, wanted: int) -> Any:
        """Register tiles of a task along a loop; by default as many as leave enough tasks."""
        blocks = [b for b in _BLOCKS if b <= extent]
        others = extents(self.roles.others)
        leave = [b for b in blocks if b <= wanted and others * extent >= _MIN_TASKS * b * _SHORT]
        return self.sketch.number(name, blocks, max(leave, default=1))

    def _registers(self, t: te.Tensor, turned: bool) -> None:
        s, spatial = self.s, self.roles.stage.spatial
        axis = dict(zip(spatial, s[t].op.axis, strict=True))
        vector = axis[self.roles.vector]
        row = [axis[self.roles.row]] if self.roles.row is not None else []
        others = [axis[x] for x in self.roles.others]
        if turned:
            at = spatial.index(self.roles.vector)
            s[t].transform_layout(lambda *x: (*x[:at], *x[at + 1 :], x[at]))
        reduce, written_out = self._unrolled(t)
        s[t].reorder(*others, *reduce, *written_out, *row, vector)
        for x in [*written_out, *row]:
            s[t].unroll(x)
        s[t].vectorize(vector)

    def _unrolled(self, t: te.Tensor) -> tuple[list[IterVar], list[IterVar]]:
        """The reduction loops of a stage, and those that are written out: a short last one, else
        some steps of it."""
        reduce = list(self.s[t].op.reduce_axis)
        if not reduce or reduce[-1].count <= _SHORT:
            return reduce[:-1], reduce[-1:]
        unroll = [u for u in _UNROLL if u <= reduce[-1].count]
        steps = self.sketch.number("unroll", unroll)
        outer, inner = self.s[t].split(reduce[-1], factor=steps)
        return [*reduce[:-1], outer], [inner]

    def _pack(self, acc: te.Tensor, task: IterVar, panel: IterVar) -> None:
        """Copy the loaded operand as the register tile reads it: blocks of its width, the reduction
        outside of them."""
        s, roles, width = self.s, self.roles, self.width
        d = roles.dimension
        assert d is not None
        source = roles.loaded.tensor
        packed = s.cache_read(source, "local" if self.packing != "root" else "global", [acc])
        if self.packing != "root":
            s[packed].compute_at(s[roles.out], task if self.packing == "task" else panel)
        s[packed].transform_layout(lambda *x: (x[d] // width, *x[:d], *x[d + 1 :], x[d] % width))
        axes = list(s[packed].op.axis)
        mine = axes.pop(d)
        lanes = registers.lanes(source.dtype)
        block, mine = s[packed].split(mine, factor=width)
        if self.packing == "root":
            s[packed].parallel(block)
        if roles.side_by_side:
            s[packed].reorder(block, *axes, mine)
            s[packed].vectorize(mine)
            return
        outer, inner = s[packed].split(mine, factor=lanes)
        if not axes:
            s[packed].vectorize(inner)
            return
        # Memory runs along another dimension: squares are turned on the way.
        k0, k1 = s[packed].split(axes.pop(), factor=lanes)
        s[packed].reorder(block, outer, *axes, k0, k1, inner)
        s[packed].unroll(k1)
        s[packed].vectorize(inner)
