"""Which rule schedules an expression for a GPU: asked of its access maps, in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright import te
from loopwright.errors import TaskError
from loopwright.ops.gpu.contraction import contraction_of, schedule_contraction
from loopwright.ops.gpu.injective import schedule_injective, schedule_transpose, turned_axis
from loopwright.ops.gpu.launch import Device, inline_all
from loopwright.ops.gpu.rows import is_long, rows_of, schedule_apart, schedule_rows
from loopwright.schedule import Schedule, create_schedule
from loopwright.space.access import accesses, extents, producers
from loopwright.task import get_config
from loopwright.task.template_config import TemplateConfig

#: Elements of a window from which on several threads sum it, and threads that keep a processor
#: busy, each with a window of its own.
_WINDOW, _BUSY = 32, 1024


def scheduled(out: te.Tensor, inputs: Sequence[te.Tensor]) -> tuple[Schedule, list[te.Tensor]]:
    """What a template for GPUs returns: the schedule of ``out`` under the configuration in force.

    Args:
        out: the result.
        inputs: the inputs in calling order.

    Raises:
        TaskError: ``out`` has no dimensions.

    Example:
        >>> @lw.template("example/cubes_on_gpus")
        ... def cubes(n):
        ...     A = te.placeholder((n,), name="A")
        ...     B = te.compute((n,), lambda i: A[i] * A[i] * A[i], name="B")
        ...     return lw.ops.gpu.scheduled(B, [A])
        ...
        >>> task = lw.create_task("example/cubes_on_gpus", (4096,), "opencl")
        >>> print(task.config_space.get(task.config_space.default_index))
        vector=True elements=1 threads=256
    """
    if not out.shape:
        raise TaskError(f"{out.name!r} has no dimension to bind to threads; give it shape (1,)")
    s = create_schedule(out.op)
    schedule_for_gpu(get_config(), s, out)
    return s, [*inputs, out]


def schedule_for_gpu(cfg: TemplateConfig, s: Schedule, out: te.Tensor) -> str:
    """Schedule an expression by the first rule that applies to it.

    Args:
        cfg: the configuration, which gets the knobs of the rule.
        s: a fresh schedule of ``out``.
        out: the result.

    Returns:
        The rule: "contraction", "window", "rows", "apart", "transpose" or "injective".

    Example:
        >>> A = te.placeholder((64, 1000), name="A")
        >>> k = te.reduce_axis((0, 1000), name="k")
        >>> B = te.compute((64,), lambda i: te.max(A[i, k], axis=k), name="B")
        >>> with lw.Target("opencl"):
        ...     print(lw.ops.gpu.schedule_for_gpu(lw.ConfigSpace(), te.create_schedule(B.op), B))
        ...
        rows
    """
    chain = producers(out)
    reductions = [t for t in chain if t.op.reduce_axis]
    if not reductions:
        return _without_reduction(cfg, s, out)
    reduction = reductions[0]
    if len(reductions) == 1 and _elementwise_over(out, reduction):
        contraction = contraction_of(out, reduction)
        if contraction is not None:
            schedule_contraction(cfg, s, contraction)
            return "contraction"
        if _is_window(reduction):
            inline_all(s, chain, lambda t: t in (out, reduction))
            schedule_injective(cfg, s, out, reduction)
            return "window"
    rows = rows_of(out)
    if rows is None or is_long(rows):
        schedule_apart(cfg, s, out)
        return "apart"
    schedule_rows(cfg, s, rows)
    return "rows"


def _without_reduction(cfg: TemplateConfig, s: Schedule, out: te.Tensor) -> str:
    turned = turned_axis(out)
    if turned is not None:
        schedule_transpose(cfg, s, out, *turned)
        return "transpose"
    inline_all(s, producers(out), lambda t: t is out)
    schedule_injective(cfg, s, out)
    return "injective"


def _elementwise_over(out: te.Tensor, reduction: te.Tensor) -> bool:
    """Whether every stage behind a reduction reads it, and what comes of it, at its own element."""
    chain = producers(out)
    behind = {reduction}
    for t in chain[chain.index(reduction) + 1 :]:
        mine = [a for a in accesses(t) if a.tensor in behind]
        own = [{x: 1} for x in t.op.axis]
        if any([d and dict(d.moves) for d in a.dims] != own for a in mine):
            return False
        behind |= {t} if mine else set()
    return out in behind and out.static_shape == reduction.static_shape


def _is_window(reduction: te.Tensor) -> bool:
    """Whether one thread sums what an element needs: little, or there are threads enough."""
    points, elements = extents(reduction.op.reduce_axis), extents(reduction.op.axis)
    along = [a.contiguous for a in accesses(reduction)]
    slides = not any(x in reduction.op.reduce_axis for x in along)
    return points < _WINDOW or (slides and elements >= _BUSY * Device.current().processors)
