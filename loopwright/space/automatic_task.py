"""Tasks whose space is derived from their expression."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from loopwright.errors import LoopwrightError, TaskError, TimeLimitError
from loopwright.records import Json
from loopwright.schedule import create_schedule
from loopwright.space.composition import Composed
from loopwright.space.derivation import structures
from loopwright.space.expression import TensorProgram, tensor_program
from loopwright.space.ranking import Ranked, put_together, ranked
from loopwright.space.template_structure import TemplateStructure
from loopwright.task import ConfigEntity, ConfigSpace, Task, Template
from loopwright.task.dispatch import task_of
from loopwright.task.task import TargetLike
from loopwright.task.template import Scheduled
from loopwright.task.template_config import TemplateConfig, running
from loopwright.task.union import SpaceUnion
from loopwright.time_limit import TEMPLATE_S, limited

if TYPE_CHECKING:
    from loopwright.task.space import Scheduler


#: Name of a workload given as tensors instead of a function.
EXPRESSION = "expression"


class AutomaticTask(Task):
    """Tuning task of an expression for a target, in all structures that rules know for it.

    It equals any other task that computes the same for the same kind of target; name and arguments
    are labels only.

    Made by `loopwright.create_task` of a function that returns tensors; arguments, attributes and
    errors are those of `loopwright.Task`.

    Args:
        name: The workload.
        args: Its arguments.
        target: The target.
        templates: Hand-written templates that compute the same, as tasks or as names with
            arguments; each is one more structure.

    Attributes:
        program: results and arguments of the expression.

    Example:
        >>> def scaled(n):
        ...     X = te.placeholder((n,), name="X")
        ...     return [X, te.compute((n,), lambda i: X[i] * 2, name="Y")]
        ...
        >>> task = lw.create_task(scaled, (4096,), "llvm")
        >>> print(task.automatic, [t.name for t in task.program.args])
        True ['X', 'Y']
    """

    automatic = True
    program: TensorProgram

    def __init__(
        self,
        name: str | Template | Callable[..., Any],
        args: Iterable[Json] = (),
        target: TargetLike = None,
        templates: Iterable[Task | Sequence[Json]] = (),
    ) -> None:
        if isinstance(templates, str) or not isinstance(templates, Iterable):
            raise TaskError(f"templates: expected a list of them, got {templates!r:.60}")
        self._templates = tuple(templates)
        super().__init__(name, args, target)

    def __str__(self) -> str:
        if self.name != EXPRESSION:
            return super().__str__()
        results = (f"{t.name}: {t.dtype}{list(t.shape)}" for t in self.program.outputs)
        return f"expression of {', '.join(results)}"

    @property
    def structures(self) -> tuple[Scheduler, ...]:
        """Structures in the order of their rules, then those that combine the predicted best of
        several kernels.
        """
        return self._union.parts

    @cached_property
    def ranking(self) -> tuple[tuple[int, float], ...]:
        """Most promising point of every structure by the analytical model, as its index and its
        predicted share of the peak, best first; nothing is measured.
        """
        numbers = {id(part): number for number, part in enumerate(self.structures)}
        both = sorted([*self._ranked_singly, *self._together], key=lambda r: -r.speed)
        return tuple(self._ranked(numbers[id(r.structure)], r) for r in both)

    @cached_property
    def _ranked_singly(self) -> list[Ranked]:
        """Structures of rules, in order of promise."""
        with self.target:
            return ranked(self._union.given)

    @cached_property
    def _together(self) -> list[Ranked]:
        """Structures that combine variants of ranked ones."""
        if not any(isinstance(part, Composed) and part.others for part in self._union.given):
            return []
        with self.target:
            return put_together(self._ranked_singly)

    def part(self, config: ConfigEntity) -> tuple[Scheduler, ConfigEntity]:
        """Structure of a configuration, and the configuration in its space."""
        number, local = self._union.place_of(config)
        return self.structures[number], local

    @property
    def _union(self) -> SpaceUnion:
        assert isinstance(self.config_space, SpaceUnion)
        return self.config_space

    def _ranked(self, number: int, found: Ranked) -> tuple[int, float]:
        assert found.config.index is not None
        return self._union.offsets[number] + found.config.index, found.speed

    @property
    def dag_hashes(self) -> tuple[str, ...]:
        """Hashes of the expressions whose records apply; see `loopwright.Task.dag_hashes`."""
        return tuple(self._expressions)

    def expression(self, dag_hash: str = "") -> Scheduled:
        """Unscheduled expression with this hash, and its arguments; see `Task.expression`."""
        schedule, args = self._expressions[dag_hash or self.dag_hash]
        return schedule.copy(), list(args)

    @cached_property
    def _expressions(self) -> dict[str, Scheduled]:
        """Its own expression, and that of former versions of its workload, by hash."""
        programs, former = [self.program], getattr(self.template, "former", None)
        if former is not None:
            programs.append(tensor_program(former(*self.args)))
        made = [_unscheduled(program) for program in programs]
        return {schedule.dag.hash: (schedule, args) for schedule, args in made}

    def _alias(self) -> str:
        return self.key

    def _run(self, config: TemplateConfig) -> Scheduled:
        assert isinstance(config, ConfigEntity)
        structure, local = self.part(config)
        with self.target:
            return structure.instantiate(local)

    def _collect(self) -> ConfigSpace:
        self.program = tensor_program(self._tensors())
        with self.target:
            found = structures(self.program.outputs, self.program.args)
        dag = found[0].dag
        self._flop, self.dag_hash = int(dag.flop), dag.hash
        by_hand = [TemplateStructure(t, self.program, found[0]) for t in self._written()]
        return SpaceUnion(
            [*found, *by_hand],
            lambda: self.ranking[0][0],
            lambda: [r.structure for r in self._together],
        )

    def _written(self) -> list[Task]:
        """Templates that compute the same."""
        found = []
        for given in self._templates:
            if not isinstance(given, Task) and not (isinstance(given, (tuple, list)) and given):
                raise TaskError(
                    f"templates: expected tasks or (name, *arguments), got {given!r:.60}"
                )
            task = task_of(self.target, given if isinstance(given, Task) else tuple(given))
            if task.automatic:
                raise TaskError(f"templates: {task} is derived from its expression, no template")
            found.append(task)
        return found

    def _tensors(self) -> Any:
        """Tensors of the workload; workloads that it calls return tensors, too."""
        where = f"{self.template.describe(self.args)} ({self.template.where})"
        try:
            with self.target, running(ConfigSpace()):
                found = limited(TEMPLATE_S, where, self.template.function, *self.args)
        except TimeLimitError as exc:
            raise TaskError(f"{exc} to return its tensors; mend it, or make it faster") from exc
        except (LoopwrightError, KeyboardInterrupt):
            raise
        except BaseException as exc:  # a user's function: one that calls sys.exit ends nothing
            raise TaskError(f"{self}: {self.template.blame(exc)}") from exc
        if isinstance(found, tuple) and found and hasattr(found[0], "dag"):
            raise TaskError(
                f"{where} returns a schedule; decorate it with "
                "@loopwright.template, or return its tensors alone and let the space be derived"
            )
        return found


def _unscheduled(program: TensorProgram) -> Scheduled:
    made = create_schedule(list(dict.fromkeys(t.op for t in program.outputs)))
    return made, list(program.args)
