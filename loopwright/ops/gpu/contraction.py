"""The rule for contractions: sums over products of operands that spatial loops share.

Each spatial loop that some operand does not move with is worth a tile: blocks, virtual threads,
threads and a register tile, from the outside in. What a block needs of the operands for some steps
of the reduction is copied to shared memory by all of its threads, what a thread needs for one step
to registers. This is the schedule of Volkov and Demmel (SC 2008) and of CUTLASS; TVM calls it
multi-level tiling with cooperative fetching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.ops.gpu.contraction_space import (
    ContractionSpace,
    Operand,
    define_contraction_space,
)
from loopwright.ops.gpu.launch import (
    MOST_BLOCKS_YZ,
    Device,
    common_width,
    copy_together,
    fused,
    inline_all,
)
from loopwright.schedule import Schedule
from loopwright.space.access import (
    Access,
    accesses,
    extents,
    is_computed,
    producers,
    readers,
)
from loopwright.task.template_config import TemplateConfig

#: Loops that are tiled, at most; the others are run by blocks.
_MOST_TILED = 3
#: Reuse of an operand below which a tile in shared memory is not worth its barriers.
_LEAST_REUSE = 4


@dataclass(frozen=True)
class Contraction:
    """A contraction as the rule sees it.

    Attributes:
        out: the result; elementwise over ``reduction``, or that itself.
        reduction: the sum.
        operands: what it reads.
        tiled: the spatial loops that get tiles, in their order.
        groups: for a loop that an operand moves with by blocks alone, their length: a tile lies in
            one of them.
    """

    out: te.Tensor
    reduction: te.Tensor
    operands: tuple[Access, ...]
    tiled: tuple[IterVar, ...]
    groups: Mapping[IterVar, int]


def contraction_of(out: te.Tensor, reduction: te.Tensor) -> Contraction | None:
    """The contraction in an expression, or None where its operands have too little in common.

    Args:
        out: the result.
        reduction: the one reduction below it, of the same shape.
    """
    operands = tuple(accesses(reduction))
    axes = reduction.op.axis
    shared = [x for x in axes if any(a.moves_with(x) for a in operands)]
    alone = [x for x in shared if not all(a.steps.get(x) == 1 for a in operands)]
    reuse = [extents(x for x in alone if a.steps.get(x) != 1) for a in operands]
    if len(operands) < 2 or min(reuse) < _LEAST_REUSE:
        return None
    groups = {x: n for x in alone for a in operands if (n := a.steps.get(x, 1)) > 1 and n < x.count}
    return Contraction(out, reduction, operands, _worth_tiles(axes, alone, operands), groups)


def _worth_tiles(
    axes: Sequence[IterVar], alone: Sequence[IterVar], operands: Sequence[Access]
) -> tuple[IterVar, ...]:
    """The last loop, along which memory runs, then the longest loop of each other set of operands,
    then whichever is longest."""
    ranked = sorted(alone, key=lambda x: (x is not axes[-1], -x.count))
    kinds: dict[frozenset[int], IterVar] = {}
    for x in ranked:
        kinds.setdefault(frozenset(n for n, a in enumerate(operands) if a.moves_with(x)), x)
    order = dict.fromkeys([*kinds.values(), *ranked])
    chosen = list(order)[:_MOST_TILED]
    return tuple(x for x in axes if x in chosen)


def schedule_contraction(cfg: TemplateConfig, s: Schedule, c: Contraction) -> None:
    """Define the knobs of a contraction and schedule it by them.

    Args:
        cfg: the configuration in force.
        s: the schedule of its result.
        c: the contraction.
    """
    space = _space_of(c)
    define_contraction_space(cfg, space)
    chain = producers(c.out)
    stages = [o.tensor for o in space.operands if o.computed]
    kept = {c.out, c.reduction, *stages}
    acc = s.cache_write(c.out, "local") if c.out is c.reduction else c.reduction
    if acc is c.reduction:
        s[acc].set_scope("local")
    inline_all(s, chain, lambda t: t in kept)
    s[acc].compute_at(s[c.out], _bind_result(cfg, s, c, space))
    _stage_operands(cfg, s, space, acc)


def _space_of(c: Contraction) -> ContractionSpace:
    device = Device.current()
    lengths = {x: c.groups.get(x, x.count) for x in c.tiled}
    chain = producers(c.out)
    operands = []
    for a in c.operands:
        twice = sum(b.tensor is a.tensor for b in c.operands) > 1
        computed = is_computed(a.tensor)
        alone = readers(a.tensor, chain) == [c.reduction]
        affine = None not in a.dims
        if affine and not twice and (alone or not computed):
            operands.append(Operand(a, computed, c.tiled, device.lanes(a.tensor.dtype)))
    axes = c.reduction.op.axis
    blocks = prod(x.count // lengths.get(x, 1) if x in c.groups else 1 for x in axes)
    blocks *= extents(x for x in axes if x not in c.tiled)
    last, width = axes[-1], 1
    if last in c.tiled:
        width = common_width(device.lanes(c.out.dtype), lengths[last], last.count)
    reduce = tuple(c.reduction.op.reduce_axis)
    return ContractionSpace(
        device, c.reduction.dtype, lengths, reduce, tuple(operands), blocks, width
    )


def _bind_result(
    cfg: TemplateConfig, s: Schedule, c: Contraction, space: ContractionSpace
) -> IterVar:
    """Tile the result and bind its loops; returns the loop of the threads."""
    out = c.out
    outer: list[IterVar] = []
    parts: list[list[IterVar]] = []
    for mine, axis in zip(s[out].op.axis, c.reduction.op.axis, strict=True):
        loop = mine
        if axis in c.groups:
            group, loop = s[out].split(loop, factor=c.groups[axis])
            outer.append(group)
        if axis in c.tiled:
            parts.append(cfg[f"tile_{axis.name}"].apply(s, out, loop))
        else:
            outer.append(loop)
    blocks, virtual, threads, inner = ([p[n] for p in parts] for n in range(4))
    s[out].reorder(*outer, *blocks, *virtual, *threads, *inner)
    count = prod(x.count for x in c.reduction.op.axis if x not in c.tiled)
    count *= prod(-(-x.count // n) for x, n in c.groups.items())
    if outer and count <= MOST_BLOCKS_YZ:
        s[out].bind(fused(s, out, outer), te.thread_axis("blockIdx.z"))
    else:
        blocks = [*outer, *blocks]
    s[out].bind(fused(s, out, blocks), te.thread_axis("blockIdx.x"))
    for loop in virtual:
        s[out].bind(loop, te.thread_axis("vthread"))
    thread = fused(s, out, threads)
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    for loop in inner[:-1]:
        s[out].unroll(loop)
    last = inner[-1]
    if cfg["vector"].val and space.store_width > 1:
        last, lanes = s[out].split(last, factor=space.store_width)
        s[out].vectorize(lanes)
    s[out].unroll(last)
    return thread


def _stage_operands(
    cfg: TemplateConfig, s: Schedule, space: ContractionSpace, acc: te.Tensor
) -> None:
    """Split the reduction, and copy the operands to shared memory and to registers."""
    outer: list[IterVar] = []
    middle: list[IterVar] = []
    inner: list[IterVar] = []
    for axis in s[acc].op.reduce_axis:
        first, *between, last = cfg[f"split_{axis.name}"].apply(s, acc, axis)
        outer.append(first)
        middle += between
        inner.append(last)
    # The longest reduction loop turns fastest around the stages: it is what fills them in turn.
    outer.append(outer.pop(space.main_position))
    tile = s[acc].op.axis
    s[acc].reorder(*outer, *middle, *inner, *tile)
    for loop in [*tile, *inner]:
        s[acc].unroll(loop)
    for o in space.operands:
        staged = _to_shared(cfg, s, space, o, acc)
        s[staged].compute_at(s[acc], outer[-1])
        own = s.cache_read(staged, "local", [acc])
        s[own].compute_at(s[acc], inner[-1])
        _to_registers(cfg, s, own, o)


def _to_shared(
    cfg: TemplateConfig, s: Schedule, space: ContractionSpace, o: Operand, acc: te.Tensor
) -> te.Tensor:
    """An operand in shared memory, in the layout that the configuration says."""
    if o.computed:
        staged = o.tensor
        s[staged].set_scope("shared")
    else:
        staged = s.cache_read(o.tensor, "shared", [acc])
    order = o.order(cfg["turn"].val)
    if list(order) != sorted(order):
        s[staged].transform_layout(lambda *x: tuple(x[d] for d in order))
    if cfg["pad"].val and len(order) > 1:
        s[staged].storage_align(len(order) - 2, 2 * space.widest, space.widest)
    width = o.fetch_width(space.device) if cfg["fetch"].val else 1
    copy_together(s, staged, space.threads(cfg), width)
    if cfg["double"].val:
        s[staged].double_buffer()
    return staged


def _to_registers(cfg: TemplateConfig, s: Schedule, own: te.Tensor, o: Operand) -> None:
    """Copy what a thread needs for one step; in vectors where it lies side by side."""
    turn: bool = cfg["turn"].val
    axes = list(s[own].op.axis)
    last = axes.pop(o.order(turn)[-1])
    if cfg["vector"].val and o.side_by_side(turn) is not None:
        last, lanes = s[own].split(last, factor=o.lanes)
        s[own].vectorize(lanes)
    for x in [*axes, last]:
        s[own].unroll(x)
