"""Steps and register tiles that the rules for CPUs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from loopwright import dtypes, te
from loopwright.ir.expr import IterVar
from loopwright.schedule import Schedule
from loopwright.space.kernels import Kernel
from loopwright.space.structure import Sketch
from loopwright.target import Target

MIN_TASKS = 8  #: parallel tasks that default configurations leave at least, where the shape allows
LARGE, LINE = 1 << 23, 64  #: bytes of a result from which on it may leave all caches, and of a line
#: Points of a kernel up to which one thread may do all of it (some microseconds of multiply-adds,
#: in which others are hardly woken), and up to which it does by default.
MAY_BE_ALONE, ALONE = 1 << 21, 1 << 19


def compute_in_vectors(s: Schedule, t: te.Tensor, reader: te.Tensor, task: IterVar | None) -> None:
    """Compute an input of a kernel, such as a padded one, in vectors along memory, at the loop
    ``task`` of the reader, or, if None, before all of them, in parallel."""
    if not s[t].op.axis:  # one element, which is computed before all
        return
    if s.state.stages[s.stage_id(t, "compute_in_vectors")].attach.kind == "inline":
        return  # several kernels read it, each computes it where it does
    *outer, last = s[t].op.axis
    _, inner = s[t].split(last, factor=vector_lanes(t.dtype))
    s[t].vectorize(inner)
    if task is not None:
        s[t].compute_at(s[reader], task)
    elif outer:
        s[t].parallel(s[t].fuse(*outer[:2]) if len(outer) > 1 else outer[0])


def compute_inline(s: Schedule, kernel: Kernel, kept: Iterable[te.Tensor]) -> None:
    """Inline the stages of a kernel, but for the result, reductions and ``kept``."""
    own = {kernel.out, *kept, *(r.tensor for r in kernel.reductions)}
    for t in kernel.tensors:
        if t not in own:
            s[t].compute_inline()


def most_with_tasks(blocks: Sequence[int], count: int, others: int, wanted: int = 1 << 30) -> int:
    """Largest block of at most ``wanted`` that leaves enough tasks for the threads. ``count`` is
    the size that is divided into blocks; each block has ``others`` tasks."""
    enough = [b for b in blocks if b <= wanted and others * -(-count // b) >= MIN_TASKS]
    return max(enough, default=blocks[0])


def run(s: Schedule, t: te.Tensor, tile: Sequence[IterVar]) -> None:
    """Run the loops of a tile in registers: vectors inside, all others unrolled."""
    *outer, lane = tile
    for x in outer:
        s[t].unroll(x)
    s[t].vectorize(lane)


def cut_short(s: Schedule, t: te.Tensor, *loops: IterVar, multiple: int = 1) -> None:
    """Give the remainder of a tile at the edge a separate tile, which needs no tests. Iterations of
    the rest are a multiple of ``multiple``: whole vectors."""
    for x in loops:
        s[t].pragma(x, "loop_partition_hint", multiple)


def past_the_caches(sketch: Sketch, t: te.Tensor, lane: IterVar) -> None:
    """Let a knob choose streaming stores for a large result, whose vectorized loop is ``lane``. For
    small results, and rows that begin within a line, there is no choice."""
    size = element_bytes(t)
    if prod(t.static_shape) * size >= LARGE and t.static_shape[-1] * size % LINE == 0:
        sketch.s[t].pragma(lane, "nontemporal", sketch.number("nontemporal", [0, 1]))


def rfactored(s: Schedule, t: te.Tensor, loop: IterVar) -> te.Tensor:
    """Stage of partial results along a reduction loop; a reduction of tuples has several."""
    partial = s.rfactor(t, loop)
    return partial if isinstance(partial, te.Tensor) else partial[0]


def vector_lanes(dtype: str) -> int:
    """Lanes of a vector register of the target in force."""
    return max(1, Target.current().vector_bytes // dtypes.nbytes(dtype))


def vector_registers() -> int:
    return Target.current().vector_registers


def row_tiles(extent: int, choices: tuple[int, ...]) -> list[int]:
    """Tile heights worth trying for an extent: the choices below it, and itself if it is small."""
    heights = {t for t in choices if t <= extent}
    return sorted(heights | ({extent} if extent <= choices[-1] else set())) or [1]


def column_tiles(extent: int, dtype: str, vectors: tuple[int, ...] = (1, 2, 3, 4, 6)) -> list[int]:
    """Tile widths: whole vectors that do not over-run the extent by more than a vector."""
    w = vector_lanes(dtype)
    limit = -(-extent // w) * w
    return [w * v for v in vectors if w * v <= limit] or [w]


def fits_registers(dtype: str) -> Callable[[int, int], bool]:
    """Test of (rows, columns): accumulators, operands and a broadcast fit the vector registers."""
    # Filters of a space run later, when no target is in force. A tile of 14 x 32 floats (28
    # accumulators of 32 registers) was measured to spill.
    width, room = vector_lanes(dtype), vector_registers()

    def fits(rows: int, columns: int) -> bool:
        wide = -(-columns // width)
        return rows * wide + wide + 1 <= room

    return fits


def run_in_tiles(extent: int, tile: int, multiple: int = 1, at_least: int = 1) -> int:
    """Iterations that tiles of an extent run: of the last tile the rest, rounded up to a
    ``multiple``; a tile takes as long as ``at_least`` iterations."""
    whole, rest = divmod(extent, tile)
    last = min(max(-(-rest // multiple) * multiple, at_least), tile) if rest else 0
    return whole * tile + last


def element_bytes(tensor: te.Tensor) -> int:
    return dtypes.nbytes(tensor.dtype)
