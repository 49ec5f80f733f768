"""What has no reduction, on CPUs: all becomes part of the result, in vectors along memory."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright import te
from loopwright.space import registers
from loopwright.space.access import producers
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure

_VECTORS = (1, 2, 4, 8)
_ROWS = (1, 2, 4, 8, 16, 32, 64)
#: Tasks that the default configuration leaves at least, where the shape allows.
_MIN_TASKS = 8


def injective(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """The structure of an expression without reductions: none where it has some.

    Args:
        outputs: the results; one.
        args: the arguments in calling order.
    """
    (out,) = outputs
    chain = producers(out)
    if not out.shape or any(t.op.reduce_axis for t in chain):
        return []
    sketch = Sketch(outputs, args)
    for t in chain:
        if t is not out:
            sketch.s[t].compute_inline()
    _along_memory(sketch, out)
    sketch.why.append("no reduction: each element is computed where it is needed")
    return [sketch.finished("vectors along memory")]


def _along_memory(sketch: Sketch, out: te.Tensor) -> None:
    """Vectors along the last dimension, some rows for each task."""
    s, lanes = sketch.s, registers.lanes(out.dtype)
    *outer, last = s[out].op.axis
    widths = [lanes * v for v in _VECTORS if lanes * v <= max(last.count, lanes)]
    even = [w for w in widths if w <= 4 * lanes and last.count % w == 0]
    width = sketch.number("width", widths, max(even, default=widths[0]))
    column, lane = s[out].split(last, factor=width)
    rows = s[out].fuse(*outer) if len(outer) > 1 else (outer or [column])[0]
    count = 1
    for x in outer or [last]:
        count *= x.count
    counts = [r for r in _ROWS if r <= count]
    enough = max(
        (r for r in counts if count >= _MIN_TASKS * r * (1 if outer else lanes)), default=1
    )
    task, _ = s[out].split(rows, factor=sketch.number("rows", counts, enough))
    s[out].parallel(task)
    s[out].vectorize(lane)
