"""Space of a hand-written template as one structure of an expression, beside those of rules."""

from __future__ import annotations

from loopwright.errors import SpaceError
from loopwright.space.expression import TensorProgram
from loopwright.space.structure import Structure
from loopwright.target import Target
from loopwright.task import ConfigEntity, Task
from loopwright.task.template import Scheduled
from loopwright.task.union import STRUCTURE


class TemplateStructure:
    """Template, for the target of an expression, that computes the same.

    Its knobs are those of the template, with the knob that names it. `SpaceError` if the template
    computes something else, or is for another target. ``like`` is a structure of the expression.
    """

    def __init__(self, task: Task, program: TensorProgram, like: Structure) -> None:
        self.name = f"template {task}"  # template and its arguments
        self.why = (f"written by hand: {task.template.where}",)
        if task.target != like.target:
            raise SpaceError(f"{self.name} is for the target {task.target}, not for {like.target}")
        # A task of its own: the knob that names it is none of the template's own space.
        self._task = Task(task.template, task.args, task.target)
        space = self.config_space = self._task.config_space
        self._check(program, like)
        default = space.default_index
        space.extend(lambda: space.define_knob(STRUCTURE, [self.name]))
        space.set_default(default)

    @property
    def target(self) -> Target:
        return self._task.target

    def instantiate(self, config: ConfigEntity) -> Scheduled:
        """Schedule of a configuration; errors as of `loopwright.Task.instantiate`."""
        return self._task.instantiate(config)

    def __str__(self) -> str:
        return f"{self.name} ({self.config_space.range_length} configurations)"

    def _check(self, program: TensorProgram, like: Structure) -> None:
        schedule, args = self._task.instantiate(self._task.fallback())
        ids = tuple(schedule.arg_ids(args))
        if schedule.dag.hash == like.dag.hash and ids == like.arg_ids:
            return
        wanted = ", ".join(f"{t.dtype}{list(t.shape)}" for t in program.args)
        got = ", ".join(f"{t.dtype}{list(t.shape)}" for t in args)
        raise SpaceError(
            f"{self.name} does not compute this expression of ({wanted}), but another one of "
            f"({got}); give the template the arguments with which it does"
        )
