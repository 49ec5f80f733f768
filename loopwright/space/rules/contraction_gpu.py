"""Rule for contractions: sums over products of operands that share spatial loops.

Each spatial loop that does not move some operand is worth a tile: blocks, virtual threads, threads
and a register tile, from the outside in. The operand tiles of a block for some steps of the
reduction are copied to shared memory by all of its threads, those of a thread for one step to
registers. This is the schedule of Volkov and Demmel (SC 2008) and of CUTLASS; TVM calls it
multi-level tiling with cooperative fetching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.schedule import Schedule
from loopwright.space.access import Access, accesses, extents, read_at_start, readers
from loopwright.space.rules.device_gpu import (
    MOST_BLOCKS_YZ,
    Device,
    common_width,
    copy_together,
    fused,
)
from loopwright.space.rules.kernel_gpu import Kernel
from loopwright.space.rules.knobs_gpu import Knobs, is_one, width_of
from loopwright.space.rules.operand_gpu import Operand
from loopwright.space.rules.tiles_gpu import ContractionSpace, define_contraction_space
from loopwright.task.entities import SplitEntity

#: Loops that are tiled, at most; the others are run by blocks.
_MOST_TILED = 3
#: Reuse of an operand below which a tile in shared memory is not worth its barriers.
_LEAST_REUSE = 4


@dataclass(frozen=True)
class Contraction:
    kernel: Kernel  # its stages; the result is elementwise over the reduction, or that itself
    reduction: te.Tensor  # the sum
    operands: tuple[Access, ...]  # its reads
    tiled: tuple[IterVar, ...]  # spatial loops that get tiles, in their order
    #: For a loop that moves an operand by blocks alone, their length: a tile lies in one of them.
    groups: Mapping[IterVar, int]

    @property
    def out(self) -> te.Tensor:
        return self.kernel.out


def contraction_of(kernel: Kernel, reduction: te.Tensor) -> Contraction | None:
    """Contraction in a kernel, or None where its operands have too little in common.

    ``reduction`` is the only one, of the shape of the result.
    """
    operands = tuple(accesses(reduction, start=False))
    axes = reduction.op.axis
    shared = [x for x in axes if any(a.moves_with(x) for a in operands)]
    alone = [x for x in shared if not all(a.steps.get(x) == 1 for a in operands)]
    reuse = [extents(x for x in alone if a.steps.get(x) != 1) for a in operands]
    if len(operands) < 2 or min(reuse) < _LEAST_REUSE:
        return None
    groups = {x: n for x in alone for a in operands if (n := a.steps.get(x, 1)) > 1 and n < x.count}
    return Contraction(kernel, reduction, operands, _worth_tiles(axes, alone, operands), groups)


def _worth_tiles(
    axes: Sequence[IterVar], alone: Sequence[IterVar], operands: Sequence[Access]
) -> tuple[IterVar, ...]:
    """The last loop, along which memory runs, then the longest loop of each other set of operands,
    then the longest of the rest.
    """
    ranked = sorted(alone, key=lambda x: (x is not axes[-1], -x.count))
    kinds: dict[frozenset[int], IterVar] = {}
    for x in ranked:
        kinds.setdefault(frozenset(n for n, a in enumerate(operands) if a.moves_with(x)), x)
    order = dict.fromkeys([*kinds.values(), *ranked])
    chosen = set(list(order)[:_MOST_TILED])
    return tuple(x for x in axes if x in chosen)


def schedule_contraction(knobs: Knobs, c: Contraction, prefix: str = "") -> None:
    """Define the knobs of a contraction, named with a prefix, and schedule it by them."""
    s, space = knobs.s, _space_of(c, prefix)
    define_contraction_space(knobs, space)
    stages = [o.tensor for o in space.operands if o.computed]
    acc = s.cache_write(c.out, "local") if c.out is c.reduction else c.reduction
    if acc is c.reduction:
        s[acc].set_scope("local")
    c.kernel.inline(s, but=[c.out, c.reduction, *stages])
    s[acc].compute_at(s[c.out], _bind_result(knobs, c, space))
    _stage_operands(knobs, space, acc)


def _space_of(c: Contraction, prefix: str) -> ContractionSpace:
    device = Device.current()
    lengths = {x: c.groups.get(x, x.count) for x in c.tiled}
    program = c.kernel.program
    operands = []
    early = read_at_start(c.reduction)
    for a in c.operands:
        again = a.tensor in early or sum(b.tensor is a.tensor for b in c.operands) > 1
        computed = c.kernel.computes(a.tensor)
        alone = readers(a.tensor, program) == [c.reduction]
        affine = bool(a.dims) and None not in a.dims  # one element needs no tile
        if affine and not again and (alone or not computed):
            operands.append(Operand(a, computed, c.tiled, device.lanes(a.tensor.dtype)))
    axes = c.reduction.op.axis
    blocks = prod(x.count // lengths.get(x, 1) if x in c.groups else 1 for x in axes)
    blocks *= extents(x for x in axes if x not in lengths)
    last, width = axes[-1], 1
    if last in lengths:
        width = common_width(device.lanes(*c.kernel.dtypes), lengths[last], last.count)
    reduce = tuple(c.reduction.op.reduce_axis)
    alone = len(c.kernel.stages) == len(program)
    return ContractionSpace(
        device, c.reduction.dtype, lengths, reduce, tuple(operands), blocks, alone, width, prefix
    )


def _bind_result(knobs: Knobs, c: Contraction, space: ContractionSpace) -> IterVar:
    """Tile the result and bind its loops; returns the loop of the threads."""
    s, out = knobs.s, c.out
    outer: list[IterVar] = []
    parts: list[list[IterVar]] = []
    for mine, axis in zip(s[out].op.axis, c.reduction.op.axis, strict=True):
        loop = mine
        if axis in c.groups:
            group, loop = s[out].split(loop, factor=c.groups[axis])
            outer.append(group)
        if axis in space.lengths:
            parts.append(_cut(s, out, loop, knobs.value(space.names[axis])))
        else:
            outer.append(loop)
    blocks, virtual, threads, inner = ([p[n] for p in parts] for n in range(4))
    s[out].reorder(*outer, *blocks, *virtual, *threads, *inner)
    count = prod(x.count for x in c.reduction.op.axis if x not in space.lengths)
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
    width = width_of(space.flag("vector", knobs.value), space.store_width)
    if not is_one(width):
        last, lanes = s[out].split(last, factor=width)
        s[out].vectorize(lanes)
    s[out].unroll(last)
    return thread


def _cut(s: Schedule, stage: te.Tensor, loop: IterVar, sizes: Sequence[Any]) -> list[IterVar]:
    """Split a loop into parts of these sizes, and the rest outside."""
    return SplitEntity([-1, *sizes]).apply(s, stage, loop)


def _stage_operands(knobs: Knobs, space: ContractionSpace, acc: te.Tensor) -> None:
    """Split the reduction, and copy the operands to shared memory and to registers."""
    s = knobs.s
    outer: list[IterVar] = []
    middle: list[IterVar] = []
    inner: list[IterVar] = []
    names = [space.names[k] for k in space.reduce]
    for name, axis in zip(names, s[acc].op.reduce_axis, strict=True):
        first, *between, last = _cut(s, acc, axis, knobs.value(name))
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
        staged = _to_shared(knobs, space, o, acc)
        s[staged].compute_at(s[acc], outer[-1])
        own = s.cache_read(staged, "local", [acc])
        s[own].compute_at(s[acc], inner[-1])
        _to_registers(knobs, space, own, o)


def _to_shared(knobs: Knobs, space: ContractionSpace, o: Operand, acc: te.Tensor) -> te.Tensor:
    """Copy of an operand in shared memory, in the layout of the configuration."""
    s, value = knobs.s, knobs.value
    if o.computed:
        staged = o.tensor
        s[staged].set_scope("shared")
    else:
        staged = s.cache_read(o.tensor, "shared", [acc])
    order = o.order(space.flag("turn", value))
    if list(order) != sorted(order):
        s[staged].transform_layout(lambda *x: tuple(x[d] for d in order))
    pad = space.flag("pad", value)
    if pad is not False and len(order) > 1:  # without a gap any stride is a multiple of 1
        gap = pad * space.widest
        s[staged].storage_align(len(order) - 2, 1 + pad * (2 * space.widest - 1), gap)
    width = width_of(space.flag("fetch", value), o.fetch_width(space.device))
    copy_together(s, staged, space.threads(value), width)
    if space.flag("double", value):
        s[staged].double_buffer()
    return staged


def _to_registers(knobs: Knobs, space: ContractionSpace, own: te.Tensor, o: Operand) -> None:
    """Copy the data of a thread for one step; in vectors where it is contiguous."""
    s, turn = knobs.s, space.flag("turn", knobs.value)
    axes = list(s[own].op.axis)
    last = axes.pop(o.order(turn)[-1])
    width = width_of(space.flag("vector", knobs.value), o.lanes)
    if not is_one(width) and o.side_by_side(turn) is not None:
        last, lanes = s[own].split(last, factor=width)
        s[own].vectorize(lanes)
    for x in [*axes, last]:
        s[own].unroll(x)
