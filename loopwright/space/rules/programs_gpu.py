"""Any expression on GPUs: into kernels, each scheduled by the rule that its access maps allow.

Every stage is part of a kernel, so that nothing runs unbound. Kernels are reductions with the
elementwise stages over them, stages too large to be recomputed for each reader, and the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from loopwright import te
from loopwright.ir.expr import position_of
from loopwright.space.expression import AccessMap, accesses, extents
from loopwright.space.rules.common_gpu import (
    KernelStages,
    Knobs,
    LaunchLimits,
    Values,
    common_width,
    every_structure,
    is_elementwise_over,
    is_one,
    kernel_of,
    last_elementwise,
    powers,
    unique_name,
    whole_program,
    width_of,
)
from loopwright.space.rules.contraction_gpu import contraction_of, schedule_contraction
from loopwright.space.rules.rows_gpu import (
    RowReductions,
    is_long,
    rows_of,
    schedule_alone,
    schedule_rows,
    schedule_several,
)
from loopwright.space.structure import Structure, fused

#: Elements that a thread computes one after the other; unrolled loops of a window.
_ELEMENTS, _UNROLLED_WINDOW = 8, 64
_THREADS = 256  #: threads of a block that the default takes
#: Sides of a transposed tile, and its rows that a thread copies.
_SIDES, _ROWS = (8, 16, 32, 64), (1, 2, 4, 8)
_SIDE, _COPIED = 32, 4


# Threads lie side by side along the last dimension, so that neighbours touch neighbouring elements
# of memory. A window (pooling, depthwise convolution) is summed by one thread in registers.


def schedule_injective(
    knobs: Knobs, kernel: KernelStages, window: te.Tensor | None = None, prefix: str = ""
) -> None:
    """One thread for some neighbouring elements, by the knobs ``vector`` (compute neighbours),
    ``elements`` (computed in turn) and ``threads`` (of a block). Stages are inlined but for the
    result and the window, a reduction that a thread does by itself."""
    s, out = knobs.s, kernel.out
    kernel.inline(s, but=[out] if window is None else [out, window])
    if not out.shape:
        s[out].env_threads([te.thread_axis((0, 1), "threadIdx.x")])
        return
    device = LaunchLimits.current()
    *_, last = out.static_shape or (1,)
    total = prod(out.static_shape)
    width = common_width(device.lanes(*kernel.dtypes), last)
    vector = [window is None, window is not None] if width > 1 else [False]
    flag = knobs.flag(f"{prefix}vector", vector)
    elements = knobs.number(f"{prefix}elements", powers(_ELEMENTS), 1)
    threads = powers(device.threads, min(32, device.threads))
    few = [t for t in threads if t <= max(_THREADS // 2, total // device.processors)]
    default = max((t for t in few if t <= _THREADS), default=threads[0])
    count = knobs.number(f"{prefix}threads", threads, default)
    acc = s.cache_write(out, "local") if window is out else window
    if acc is not None and acc is window:
        s[acc].set_scope("local")
    loops = list(s[out].op.axis)
    lanes = None
    width = width_of(flag, width)
    if not is_one(width):
        loops[-1], lanes = s[out].split(loops[-1], factor=width)
        s[out].vectorize(lanes)
    rest, thread = s[out].split(fused(s, out, loops), factor=count)
    block, again = s[out].split(rest, factor=elements)
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    s[out].reorder(block, thread, again, *([] if lanes is None else [lanes]))
    s[out].unroll(again)
    if acc is not None:
        s[acc].compute_at(s[out], again)
        spatial, reduce = list(s[acc].op.axis), list(s[acc].op.reduce_axis)
        s[acc].reorder(*reduce, *spatial)
        for loop in spatial:
            s[acc].unroll(loop)
        points = 1
        for loop in reversed(reduce):
            points *= loop.count
            if points <= _UNROLLED_WINDOW:
                s[acc].unroll(loop)


def turned_axis(kernel: KernelStages) -> tuple[AccessMap, int] | None:
    """Read of an elementwise result that goes across memory, and the axis of the result along which
    that input lies, or None."""
    out = kernel.out
    reads = accesses(out) if out.shape else []
    for a in reads:
        along, last = a.contiguous, out.op.axis[-1]
        alone = [b.tensor for b in reads].count(a.tensor) == 1
        if kernel.computes(a.tensor) or along is None or not alone:
            continue
        if along is not last and min(along.count, last.count) >= _SIDES[0] and a.moves_with(last):
            return a, position_of(along, out.op.axis)
    return None


def schedule_transpose(
    knobs: Knobs, kernel: KernelStages, read: AccessMap, across: int, prefix: str = ""
) -> None:
    """Transpose squares of the input through shared memory, by the knobs ``side`` (of a square),
    ``rows`` (that a thread copies) and ``pad`` (a gap, so that columns lie in different banks).
    ``read`` is an input's read across memory, ``across`` the axis along which that input lies."""
    s, out, p = knobs.s, kernel.out, prefix
    device = LaunchLimits.current()
    kernel.inline(s, but=[out])
    most = min(device.threads, out.op.axis[across].count, out.op.axis[-1].count)
    sides = [n for n in _SIDES if n <= most]

    def fits(value: Values) -> bool:
        side: int = value(f"{p}side")
        rows: int = value(f"{p}rows")
        return device.warp <= side * side // rows <= device.threads

    chosen = {
        f"{p}side": (sides, max(n for n in sides if n <= _SIDE)),
        f"{p}rows": (_ROWS, _COPIED),
    }
    knobs.numbers(f"{p}square", chosen, fits)
    pad = knobs.flag(f"{p}pad", [True, False])
    side, rows = knobs.value(f"{p}side"), knobs.value(f"{p}rows")
    axes = list(s[out].op.axis)
    row, column = axes[across], axes[-1]
    others = [x for n, x in enumerate(axes[:-1]) if n != across]
    ro, ri = s[out].split(row, factor=side)
    co, tx = s[out].split(column, factor=side)
    again, ty = s[out].split(ri, factor=side // rows)
    s[out].reorder(*others, ro, co, ty, tx, again)
    block = fused(s, out, [*others, ro, co])
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[out].bind(ty, te.thread_axis("threadIdx.y"))
    s[out].bind(tx, te.thread_axis("threadIdx.x"))
    s[out].unroll(again)
    tile = s.cache_read(read.tensor, "shared", [out])
    s[tile].compute_at(s[out], block)
    columns = [n for n, d in enumerate(read.dims) if d is not None and out.op.axis[-1] in d.moves]
    if pad is not False and columns:
        s[tile].storage_align(columns[0], 1 + pad * (side - 1), pad * 1)
    rest, tx = s[tile].split(fused(s, tile, s[tile].op.axis), factor=side)
    rounds, ty = s[tile].split(rest, factor=side // rows)
    s[tile].bind(tx, te.thread_axis("threadIdx.x"))
    s[tile].bind(ty, te.thread_axis("threadIdx.y"))
    s[tile].unroll(rounds)


#: Elements of a window from which on several threads sum it, and threads that keep a processor
#: busy, each with a window of its own.
_WINDOW, _BUSY = 32, 1024
_MOST_INLINED = 64  #: most stages, counted once per read, that are inlined into one
#: Names of structures, and their reasons.
_NAMES = {
    "contraction": ("tiles in shared memory", "each operand stays along some loop of the result"),
    "window": ("windows in registers", "a thread reduces what its element needs"),
    "rows": ("rows of a block", "every stage needs its own row of the others alone"),
    "transpose": ("squares through shared memory", "an input lies in memory along another loop"),
    "injective": ("threads along memory", "no reduction: each element is computed where it is"),
    "apart": ("several kernels", "not all can be computed where it is read"),
}


def programs(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """Structures of any expression: all of its stages in kernels."""
    if len(outputs) > 1:
        return every_structure(outputs, args, *_NAMES["apart"], partial(_schedule_apart, outputs))
    (out,) = outputs
    kind = kind_of(out)
    schedule = partial(schedule_program, out=out, kind=kind)
    structures = every_structure(outputs, args, *_NAMES[kind], schedule)
    chain = rows_of(out)
    if kind == "rows" and chain is not None and len(chain.reductions) > 1:
        why = "each reduction may take as many threads as it likes"
        apart = partial(_schedule_apart, [out])
        structures += every_structure(outputs, args, _NAMES["apart"][0], why, apart)
    return structures


def kind_of(out: te.Tensor) -> str:
    """Rule of an expression: "contraction", "window", "rows", "transpose" or "injective" of
    programs of one kernel; "apart" of others."""
    kernel = whole_program(out)
    if _heavy(kernel.stages, [out]) or any(t.op.num_outputs > 1 for t in kernel.stages):
        return "apart"
    if not kernel.reductions:
        return "injective" if turned_axis(kernel) is None else "transpose"
    if len(kernel.reductions) == 1 and is_elementwise_over(kernel, kernel.reductions[0]):
        kind = _tiled_or_window(kernel)
        if kind is not None:
            return kind
    rows = rows_of(out)
    return "apart" if rows is None or is_long(rows) else "rows"


def schedule_program(knobs: Knobs, out: te.Tensor, kind: str) -> None:
    """Schedule an expression by a rule that applies; see `kind_of`."""
    if kind == "apart":
        _schedule_apart([out], knobs)
    elif kind == "rows":
        rows = rows_of(out)
        assert isinstance(rows, RowReductions)
        schedule_rows(knobs, rows)
    else:
        _schedule_kernel(knobs, whole_program(out), "")


def _schedule_apart(outs: Sequence[te.Tensor], knobs: Knobs) -> None:
    for kernel, prefix in knobs.once("kernels", lambda: _kernels(outs)):
        _schedule_kernel(knobs, kernel, prefix)


def _kernels(outs: Sequence[te.Tensor]) -> list[tuple[KernelStages, str]]:
    """Kernels of a program, inputs first, and the prefixes of the names of their knobs."""
    program = whole_program(*outs).stages
    results = _results(outs, program)
    taken = set[str]()
    prefixes = ["" if t is outs[-1] else unique_name(t.name, taken) + "_" for t in results]
    kernels = [kernel_of(t, program, results) for t in results]
    return list(zip(kernels, prefixes, strict=True))


def _results(outs: Sequence[te.Tensor], program: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Tensors that kernels leave in global memory, in the order of the program."""
    reductions = [t for t in program if t.op.reduce_axis]
    several = [t for t in program if t.op.num_outputs > 1]
    results = {*outs, *_heavy(program, outs), *several}
    ends: set[te.Tensor] = set()
    for r in reductions:
        last = last_elementwise(r, program)
        kernel = kernel_of(last, program, [t for t in {*reductions, *results} if t is not r])
        # A stage over several reductions is computed by the kernel of the first; a result that is
        # read on has its own.
        alone = last not in ends and r in kernel.stages and (r is last or r not in results)
        if alone and _tiled_or_window(kernel) is not None:
            ends.add(last)
        else:
            results.add(r)
    return [t for t in program if t in results | ends]


def _schedule_kernel(knobs: Knobs, kernel: KernelStages, prefix: str) -> None:
    if kernel.out.op.num_outputs > 1:
        schedule_several(knobs, kernel, prefix)
        return
    if not kernel.reductions:
        turned = turned_axis(kernel)
        if turned is None:
            schedule_injective(knobs, kernel, prefix=prefix)
        else:
            schedule_transpose(knobs, kernel, *turned, prefix)
        return
    (reduction,) = kernel.reductions
    contraction = knobs.once(f"{prefix}contraction", lambda: contraction_of(kernel, reduction))
    if contraction is not None:
        schedule_contraction(knobs, contraction, prefix)
    elif _tiled_or_window(kernel) is not None:
        schedule_injective(knobs, kernel, reduction, prefix)
    else:
        schedule_alone(knobs, kernel, prefix)


def _tiled_or_window(kernel: KernelStages) -> str | None:
    """Rule for the one reduction of a kernel that also computes its epilogue, or None."""
    (reduction,) = kernel.reductions
    if not reduction.shape or reduction.op.num_outputs > 1:
        return None
    if contraction_of(kernel, reduction) is not None:
        return "contraction"
    # One thread sums all of an element where that is little work, or there are enough threads.
    points, elements = extents(reduction.op.reduce_axis), extents(reduction.op.axis)
    slides = set(reduction.op.reduce_axis).isdisjoint(a.contiguous for a in accesses(reduction))
    enough = slides and elements >= _BUSY * LaunchLimits.current().processors
    return "window" if points < _WINDOW or enough else None


def _heavy(program: Sequence[te.Tensor], outs: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Stages without a reduction that are computed once because too much would be inlined into
    them: each reader recomputes inlined stages, and their inputs as often."""
    size: dict[te.Tensor, int] = {}
    heavy = []
    for t in program:
        if t in outs:
            continue
        size[t] = 0 if t.op.reduce_axis else 1 + sum(size.get(a.tensor, 0) for a in accesses(t))
        if size[t] > _MOST_INLINED:
            size[t] = 0
            heavy.append(t)
    return heavy
