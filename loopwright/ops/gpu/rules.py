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
    """The schedule of ``out`` under the configuration in force, with its arguments, as a template
    for GPUs returns it; ``inputs`` are in calling order."""
    if not out.shape:
        raise TaskError(f"{out.name!r} has no dimension to bind to threads; give it shape (1,)")
    s = create_schedule(out.op)
    schedule_for_gpu(get_config(), s, out)
    return s, [*inputs, out]


def schedule_for_gpu(cfg: TemplateConfig, s: Schedule, out: te.Tensor) -> str:
    """Schedule ``out`` by the first rule that applies, whose knobs go to ``cfg``; ``s`` is fresh.
    The result is the rule: "contraction", "window", "rows", "apart", "transpose" or "injective"."""
    kind = kind_of(out)
    schedule_program(TemplateKnobs(cfg, s), out, kind)
    return kind
