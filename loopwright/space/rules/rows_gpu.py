"""Rule for reductions and their chains: the threads of a block reduce a row together.

A chain (softmax, layer normalisation) stays in one kernel: every thread keeps the single numbers of
a row, intermediate rows lie in shared memory or are recomputed. Few long rows, and reductions that
form no chain, take a kernel for each; several blocks then share a row (Harris, "Optimizing parallel
reduction in CUDA", 2007).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from loopwright import dtypes, te
from loopwright.ir.expr import IterVar
from loopwright.schedule import Schedule
from loopwright.space.expression import accesses, extents, is_computed
from loopwright.space.kernels import RowChain, row_chain
from loopwright.space.rules.common_gpu import (
    KernelStages,
    Knobs,
    LaunchLimits,
    Values,
    common_width,
    is_one,
    powers,
    width_of,
)
from loopwright.space.structure import fused

#: Threads of a row that the default takes, along and across memory, and elements worth a thread.
_THREADS, _ACROSS, _WORTH = 256, 8, 4
#: Rows of a block, and threads that a block has at least where the shape allows.
_ROWS, _FEWEST = (1, 2, 4, 8, 16, 32, 64), 32
_UNROLLED = (1, 2, 4)  #: unrolled elements that a thread adds up in turn
#: Elements of a row from which on several blocks reduce it, where there are few rows.
_LONG = 1 << 14
_MOST_PARTS = 256  #: blocks that share a row, at most


@dataclass(frozen=True)
class RowReductions(RowChain):
    along: bool = True  # whether memory runs along the rows, not across them
    #: inputs that each reduction reads contiguously
    loads: tuple[tuple[te.Tensor, ...], ...] = ((),)
    unit: int = 0  # a length that vectors divide besides those of the rows; 0 for none

    @property
    def length(self) -> int:
        """Elements of the shortest row that threads share."""
        rows = [extents(r.op.reduce_axis) for r in self.reductions]
        rows += [prod(t.static_shape[self.rank :]) for t in (*self.whole, self.out)]
        return min(n for n in rows if n > 1 or max(rows) == 1)

    @property
    def count(self) -> int:
        return prod(self.reductions[0].static_shape)


def rows_of(out: te.Tensor) -> RowReductions | None:
    chain = row_chain(out)
    if chain is None:
        return None
    return RowReductions(
        out,
        chain.reductions,
        chain.whole,
        chain.single,
        chain.along_memory,
        _lies_along(chain.reductions[0]),
        tuple(map(_side_by_side, chain.reductions)),
    )


def is_long(rows: RowReductions) -> bool:
    """Whether there are too few rows for the processors, and each is long."""
    return rows.length >= _LONG and rows.count < LaunchLimits.current().processors


def _lies_along(reduction: te.Tensor) -> bool:
    reads = [a.contiguous for a in accesses(reduction) if a.contiguous is not None]
    return not reads or not set(reduction.op.reduce_axis).isdisjoint(reads)


def _side_by_side(reduction: te.Tensor) -> tuple[te.Tensor, ...]:
    """Inputs along whose memory the last loop of a reduction runs."""
    reads = accesses(reduction)
    once = [a for a in reads if [b.tensor for b in reads].count(a.tensor) == 1]
    last = reduction.op.reduce_axis[-1]
    return tuple(a.tensor for a in once if a.contiguous is last and not is_computed(a.tensor))


def schedule_rows(knobs: Knobs, rows: RowReductions, prefix: str = "") -> None:
    """Schedule a chain of reductions in one kernel, by knobs that it defines: ``threads`` of a row,
    ``rows`` of a block, ``vector`` (read neighbours at once), ``unroll``, and for each intermediate
    row ``keep_<name>`` (in shared memory, or recomputed where it is needed)."""
    s, sizes = knobs.s, _Sizes(knobs, rows, prefix)
    out, rank = rows.out, rows.rank
    reductions = [s.cache_write(r, "local") if r is out else r for r in rows.reductions]
    loops = list(s[out].op.axis)
    block, row = s[out].split(fused(s, out, loops[:rank]), factor=sizes.rows)
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[out].bind(row, te.thread_axis(sizes.row_tag))
    if loops[rank:]:
        sizes.bind_columns(s, out, loops[rank:])
    for t in (*rows.whole, *rows.single, *reductions):
        if t in rows.whole and t not in sizes.kept:
            s[t].compute_inline()
            continue
        s[t].compute_at(s[out], row)
        s[t].set_scope("shared" if t in rows.whole else "local")
    for t in sizes.kept:
        own = list(s[t].op.axis)
        s[t].bind(fused(s, t, own[:rank]), te.thread_axis(sizes.row_tag))
        sizes.bind_columns(s, t, own[rank:])
    for r, sources in zip(reductions, rows.loads, strict=True):
        sizes.reduce_together(s, r, sources)


class _Sizes:
    """Knobs of `schedule_rows`, and their effects on a stage."""

    def __init__(self, knobs: Knobs, rows: RowReductions, prefix: str) -> None:
        self.knobs, self.prefix, self.device = knobs, prefix, LaunchLimits.current()
        # Neighbouring threads take neighbouring elements of memory.
        tags = ("threadIdx.x", "threadIdx.y")
        #: thread axis over the rows of a block
        self.along_tag, self.row_tag = tags if rows.along else tags[::-1]
        self._define_threads(rows)
        self.kept = self._define_kept(rows)  # intermediate rows in shared memory
        self.rows = self._value("rows")  # of a block

    def _value(self, name: str) -> Any:
        return self.knobs.value(self.prefix + name)

    def _define_threads(self, rows: RowReductions) -> None:
        most, p = self.device.threads, self.prefix
        width = self._widest(rows)
        threads = [t for t in powers(most) if t <= max(1, rows.length // width)]
        counts = [n for n in _ROWS if n <= min(rows.count, most)]
        wanted = min(_THREADS if rows.along else _ACROSS, max(1, rows.length // _WORTH))
        chosen = max(t for t in threads if t <= wanted)
        together = max(1, min(most, 2 * _FEWEST if rows.along else most) // chosen)
        several = min(together, _FEWEST)
        least = min(_FEWEST, most, max(threads) * max(counts))
        self.knobs.numbers(
            f"{p}block",
            {
                f"{p}threads": (threads, chosen),
                f"{p}rows": (counts, max(n for n in counts if n <= several)),
            },
            lambda value: least <= value(f"{p}threads") * value(f"{p}rows") <= most,
        )
        self.knobs.number(f"{p}unroll", _UNROLLED)
        flag = self.knobs.flag(f"{p}vector", [True, False] if width > 1 else [False])
        self.width = width_of(flag, width)  # elements that a thread reads at once

    def _widest(self, rows: RowReductions) -> int:
        if not rows.along:
            return 1
        lengths = [t.static_shape[-1] for t in (*rows.whole, rows.out) if len(t.shape) > rows.rank]
        inputs = [source for sources in rows.loads for source in sources]
        lengths += [source.static_shape[-1] for source in inputs] + [rows.unit] * (rows.unit > 0)
        stages = (*rows.reductions, *rows.whole, *rows.single, rows.out)
        read = [x.dtype for t in stages for x in t.op.input_tensors]
        width = self.device.lanes(rows.out.dtype, *read)
        return common_width(width, *lengths) if lengths else 1

    def _define_kept(self, rows: RowReductions) -> list[te.Tensor]:
        p, shared = self.prefix, self.device.shared
        sizes = {t: prod(t.static_shape[rows.rank :]) * dtypes.nbytes(t.dtype) for t in rows.whole}
        for t, size in sizes.items():
            self.knobs.choice(f"{p}keep_{t.name}", [True, False] if 2 * size <= shared else [False])
        # Each reduction across threads has a place for each thread.
        trees = sum(dtypes.nbytes(r.dtype) for r in rows.reductions)

        def fits(value: Values) -> bool:
            kept = sum(size for t, size in sizes.items() if value(f"{p}keep_{t.name}"))
            row: int = kept + trees * value(f"{p}threads")
            return row * int(value(f"{p}rows")) <= shared

        if sizes:
            self.knobs.keep(fits)
        return [t for t in rows.whole if self._value(f"keep_{t.name}")]

    def bind_columns(self, s: Schedule, stage: te.Tensor, columns: Sequence[IterVar]) -> None:
        """Let the threads of a row compute its elements, neighbours side by side."""
        rest = fused(s, stage, columns)
        if not is_one(self.width):
            rest, lanes = s[stage].split(rest, factor=self.width)
            s[stage].vectorize(lanes)
        _, thread = s[stage].split(rest, factor=self._value("threads"))
        s[stage].bind(thread, te.thread_axis(self.along_tag))

    def reduce_together(self, s: Schedule, stage: te.Tensor, sources: Sequence[te.Tensor]) -> None:
        """Let the threads of a row add up its elements; vectors are read through registers."""
        rest = fused(s, stage, s[stage].op.reduce_axis)
        wide = bool(sources) and not is_one(self.width)
        if wide:
            rest, lanes = s[stage].split(rest, factor=self.width)
            s[stage].unroll(lanes)
        rest, thread = s[stage].split(rest, factor=self._value("threads"))
        s[stage].bind(thread, te.thread_axis(self.along_tag))
        _, again = s[stage].split(rest, factor=self._value("unroll"))
        s[stage].unroll(again)
        for source in sources if wide else ():
            own = s.cache_read(source, "local", [stage])
            s[own].compute_at(s[stage], thread)
            s[own].vectorize(s[own].op.axis[-1])


def schedule_alone(knobs: Knobs, kernel: KernelStages, prefix: str = "") -> None:
    """Kernel for one reduction, its result, by the knobs of `schedule_rows`, and ``parts`` (blocks
    that share a row) for long ones."""
    s, r = knobs.s, kernel.out
    kernel.inline(s, but=[r])
    rows = RowReductions(r, (r,), along=_lies_along(r))
    parts = 1
    if is_long(rows):  # one part would need other knobs than several: there are two at least
        choices = [n for n in powers(_MOST_PARTS) if 2 <= n <= rows.length // 1024]
        wanted = max(2, 2 * LaunchLimits.current().processors // rows.count)
        chosen = max((n for n in choices if n <= wanted), default=choices[0])
        parts = knobs.choice(f"{prefix}parts", choices, chosen)
    if parts > 1:
        loop, _ = s[r].split(fused(s, r, s[r].op.reduce_axis), nparts=parts)
        partial = s.rfactor(r, loop)
        assert isinstance(partial, te.Tensor)
        unit = extents(r.op.reduce_axis) // _MOST_PARTS
        loads = (_side_by_side(r),) if extents(r.op.reduce_axis) % _MOST_PARTS == 0 else ((),)
        part = RowReductions(partial, (partial,), along=rows.along, loads=loads, unit=unit)
        schedule_rows(knobs, part, f"{prefix}part_")
        rows = RowReductions(r, (r,), along=False)
    if r.shape:
        schedule_rows(knobs, rows, prefix)
        return
    # One block for a result without dimensions.
    loop = fused(s, r, s[r].op.reduce_axis)
    most = max(1, extents(r.op.reduce_axis) // _WORTH)
    threads = powers(min(LaunchLimits.current().threads, most))
    count = knobs.number(f"{prefix}threads", threads, max(n for n in threads if n <= _THREADS))
    _, thread = s[r].split(loop, factor=count)
    s[r].bind(thread, te.thread_axis("threadIdx.x"))


def schedule_several(knobs: Knobs, kernel: KernelStages, prefix: str = "") -> None:
    """A thread for each element of an operation with several results, by the knob ``threads`` (of a
    block); stages are inlined but for the results."""
    s, out = knobs.s, kernel.out
    kernel.inline(s, but=[out])
    if not out.shape:
        s[out].env_threads([te.thread_axis((0, 1), "threadIdx.x")])
        return
    threads = powers(LaunchLimits.current().threads, min(_FEWEST, LaunchLimits.current().threads))
    count = knobs.number(f"{prefix}threads", threads, max(n for n in threads if n <= _THREADS))
    block, thread = s[out].split(fused(s, out, s[out].op.axis), factor=count)
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
