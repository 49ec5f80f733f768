"""Pieces that several rules share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.schedule import Schedule
from loopwright.space import registers
from loopwright.space.kernels import Kernel
from loopwright.space.sketch import Sketch

#: Parallel tasks that default configurations leave at least, where the shape allows.
MIN_TASKS = 8
#: Bytes of a result from which on it may leave all caches, and of a line.
LARGE, LINE = 1 << 23, 64
#: Points of a kernel up to which one thread may do all of it: some microseconds of multiply-adds,
#: in which others are hardly woken; and up to which it does by default.
MAY_BE_ALONE, ALONE = 1 << 21, 1 << 19


def compute_in_vectors(s: Schedule, t: te.Tensor, reader: te.Tensor, task: IterVar | None) -> None:
    """Compute what a kernel reads in vectors along memory, such as a padded input.

    Args:
        s: the schedule.
        t: what is computed.
        reader: the stage that needs it.
        task: the loop of the reader in which it is computed; None: before all of them, in parallel.
    """
    if not s[t].op.axis:  # one element, which is computed before all
        return
    if s.state.stages[s.stage_id(t, "compute_in_vectors")].attach.kind == "inline":
        return  # several kernels read it, each computes it where it does
    *outer, last = s[t].op.axis
    _, inner = s[t].split(last, factor=registers.lanes(t.dtype))
    s[t].vectorize(inner)
    if task is not None:
        s[t].compute_at(s[reader], task)
    elif outer:
        s[t].parallel(s[t].fuse(*outer[:2]) if len(outer) > 1 else outer[0])


def compute_inline(s: Schedule, kernel: Kernel, kept: Iterable[te.Tensor]) -> None:
    """Compute the stages of a kernel where they are read, but for some.

    Args:
        s: the schedule.
        kernel: the kernel.
        kept: what is computed on its own, beside the result and reductions.
    """
    own = {kernel.out, *kept, *(r.tensor for r in kernel.reductions)}
    for t in kernel.tensors:
        if t not in own:
            s[t].compute_inline()


def most_with_tasks(blocks: Sequence[int], count: int, others: int, wanted: int = 1 << 30) -> int:
    """The largest block that leaves enough tasks for the threads.

    Args:
        blocks: candidates.
        count: what is divided into blocks.
        others: tasks for each block.
        wanted: the largest that pays.
    """
    enough = [b for b in blocks if b <= wanted and others * -(-count // b) >= MIN_TASKS]
    return max(enough, default=blocks[0])


def fused(s: Schedule, t: te.Tensor, axes: Sequence[IterVar]) -> IterVar:
    """Some loops as one."""
    return s[t].fuse(*axes) if len(axes) > 1 else axes[0]


def run(s: Schedule, t: te.Tensor, tile: Sequence[IterVar]) -> None:
    """Run the loops of a tile in registers: vectors inside, all others written out."""
    for x in tile[:-1]:
        s[t].unroll(x)
    s[t].vectorize(tile[-1])


def cut_short(s: Schedule, t: te.Tensor, *loops: IterVar, multiple: int = 1) -> None:
    """Give what a tile leaves over at the edge a tile of its own, which needs no tests.

    Args:
        s: the schedule.
        t: what is tiled.
        loops: the insides of tiles.
        multiple: of what the iterations of the rest are a multiple: whole vectors.
    """
    for x in loops:
        s[t].pragma(x, "loop_partition_hint", multiple)


def past_the_caches(sketch: Sketch, t: te.Tensor, lane: IterVar) -> None:
    """Let a knob choose that a large result is stored past the caches.

    Args:
        sketch: the schedule and its knobs.
        t: the result; for small ones, and rows that begin within a line, there is no choice.
        lane: its vectorized loop.
    """
    size, row = registers.nbytes(t), t.static_shape[-1] * registers.nbytes(t)
    if prod(t.static_shape) * size >= LARGE and row % LINE == 0:
        past = sketch.number("nontemporal", [0, 1])
        sketch.s[t].pragma(lane, "nontemporal", past)


def rfactored(s: Schedule, t: te.Tensor, loop: IterVar) -> te.Tensor:
    """The stage of partial results along a reduction loop; a reduction of tuples has several."""
    made = s.rfactor(t, loop)
    return made if isinstance(made, te.Tensor) else made[0]
