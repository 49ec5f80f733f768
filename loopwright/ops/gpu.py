"""Templates for GPUs by the rules of automatic spaces: every choice is a knob of one space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from loopwright import te
from loopwright.errors import TaskError
from loopwright.schedule import Schedule, create_schedule
from loopwright.space import LoopSizes, Values, kind_of, schedule_program
from loopwright.task import ConfigSpace, SplitEntity, TemplateConfig, get_config

T = TypeVar("T")


class TemplateKnobs:
    """A configuration of a template as the `Knobs` of a rule."""

    def __init__(self, cfg: TemplateConfig, s: Schedule) -> None:
        self.cfg, self.s = cfg, s

    @property
    def collects(self) -> bool:
        """Whether this is the run that collects the knobs."""
        return isinstance(self.cfg, ConfigSpace)

    def value(self, name: str) -> Any:
        return _chosen(self.cfg, name)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """The result of ``make``, which no choice changes; a template runs once for each choice."""
        return make()

    def number(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        """A knob; by default the first of its candidates."""
        self.cfg.define_knob(name, list(candidates), default=default)
        return self.value(name)

    flag = choice = number

    def numbers(
        self,
        name: str,
        each: Mapping[str, tuple[Sequence[int], int]],
        accepts: Callable[[Values], bool],
    ) -> None:
        """A knob for each size, and a filter; ``name`` is not needed."""
        for part, (candidates, default) in each.items():
            self.number(part, candidates, default)
        self.keep(accepts)

    def loops(
        self,
        name: str,
        each: Mapping[str, LoopSizes],
        together: Callable[[], Sequence[tuple[tuple[int, ...], ...]]] | None,
    ) -> None:
        """A split for each loop; ``name`` and ``together`` are not needed."""
        for part, loop in each.items():
            sizes = [[-1, *sizes] for sizes in loop.candidates]
            chosen = [-1, *loop.default]
            self.cfg.define_split(
                part, loop.length, policy="candidate", candidate=sizes, default=chosen
            )

    def keep(self, accepts: Callable[[Values], bool]) -> None:
        self.cfg.multi_filter(lambda c: accepts(lambda name: _chosen(c, name)))


def _chosen(cfg: TemplateConfig, name: str) -> Any:
    entity = cfg[name]
    return entity.size[1:] if isinstance(entity, SplitEntity) else entity.val


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
