"""Templates for GPUs by the rules of automatic spaces: every choice is a knob of one space."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright import te
from loopwright.errors import TaskError
from loopwright.ops.gpu.knobs import TemplateKnobs
from loopwright.schedule import Schedule, create_schedule
from loopwright.space.rules.programs_gpu import kind_of, schedule_program
from loopwright.task import get_config
from loopwright.task.template_config import TemplateConfig


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
    kind = kind_of(out)
    schedule_program(TemplateKnobs(cfg, s), out, kind)
    return kind
