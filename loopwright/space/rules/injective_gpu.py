"""Rules for kernels with no reduction worth sharing: elementwise chains, windows, transposes.

Threads lie side by side along the last dimension, so that neighbours touch neighbouring elements of
memory. A window (pooling, depthwise convolution) is summed by one thread in registers.
"""

from __future__ import annotations

from math import prod

from loopwright import te
from loopwright.ir.expr import position_of
from loopwright.schedule import Schedule
from loopwright.space.access import Access, accesses
from loopwright.space.rules.device_gpu import Device, common_width, fused, powers
from loopwright.space.rules.kernel_gpu import Kernel
from loopwright.space.rules.knobs_gpu import Knobs, Values, is_one, width_of

#: Elements that a thread computes one after the other; unrolled loops of a window.
_ELEMENTS, _WINDOW = 8, 64
#: Threads of a block that the default takes.
_THREADS = 256
#: Sides of a transposed tile, and its rows that a thread copies.
_SIDES, _ROWS = (8, 16, 32, 64), (1, 2, 4, 8)
_SIDE, _COPIED = 32, 4


def schedule_injective(
    knobs: Knobs, kernel: Kernel, window: te.Tensor | None = None, prefix: str = ""
) -> None:
    """One thread for some neighbouring elements.

    Defines the knobs ``vector`` (whether a thread computes neighbours), ``elements`` (that it
    computes in turn) and ``threads`` (of a block). Stages are inlined but for the result and the
    window, a reduction of the shape of the result that a thread does by itself.
    """
    s, out = knobs.s, kernel.out
    kernel.inline(s, but=[out] if window is None else [out, window])
    if not out.shape:
        s[out].env_threads([te.thread_axis((0, 1), "threadIdx.x")])
        return
    device = Device.current()
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
    acc = _accumulator(s, out, window)
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
        _sum_window(s, acc)


def _accumulator(s: Schedule, out: te.Tensor, window: te.Tensor | None) -> te.Tensor | None:
    if window is None:
        return None
    if window is out:
        return s.cache_write(out, "local")
    s[window].set_scope("local")
    return window


def _sum_window(s: Schedule, acc: te.Tensor) -> None:
    spatial, reduce = list(s[acc].op.axis), list(s[acc].op.reduce_axis)
    s[acc].reorder(*reduce, *spatial)
    for loop in spatial:
        s[acc].unroll(loop)
    points = 1
    for loop in reversed(reduce):
        points *= loop.count
        if points <= _WINDOW:
            s[acc].unroll(loop)


def turned_axis(kernel: Kernel) -> tuple[Access, int] | None:
    """Read of an elementwise result that goes across memory, and the axis of the result along which
    that input lies; None where every input is read along memory.
    """
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
    knobs: Knobs, kernel: Kernel, read: Access, across: int, prefix: str = ""
) -> None:
    """Transpose squares of the input through shared memory, read and written along memory.

    Defines the knobs ``side`` (of a square), ``rows`` (that a thread copies) and ``pad`` (a gap
    between rows, so that columns lie in different banks). Stages are inlined but for the result.
    ``read`` is an input's read across memory, ``across`` the axis of the result along which that
    input lies.
    """
    s, out, p = knobs.s, kernel.out, prefix
    device = Device.current()
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
    last = out.op.axis[-1]
    columns = [n for n, d in enumerate(read.dims) if d is not None and last in d.moves]
    if pad is not False and columns:
        s[tile].storage_align(columns[0], 1 + pad * (side - 1), pad * 1)
    rest, tx = s[tile].split(fused(s, tile, s[tile].op.axis), factor=side)
    rounds, ty = s[tile].split(rest, factor=side // rows)
    s[tile].bind(tx, te.thread_axis("threadIdx.x"))
    s[tile].bind(ty, te.thread_axis("threadIdx.y"))
    s[tile].unroll(rounds)
