"""Tasks whose space is derived from what they compute."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from loopwright.errors import LoopwrightError, TaskError
from loopwright.records import expression_key
from loopwright.space.derivation import structures
from loopwright.space.expression import TensorProgram, tensor_program
from loopwright.space.ranking import Ranked, ranked
from loopwright.task import ConfigEntity, ConfigSpace, Task
from loopwright.task.running_config import running
from loopwright.task.template import Scheduled
from loopwright.task.template_config import TemplateConfig
from loopwright.task.union import SpaceUnion

if TYPE_CHECKING:
    from loopwright.task.interfaces import Scheduler


#: The name of a workload that is tensors, and no function.
EXPRESSION = "expression"


class AutomaticTask(Task):
    """What is tuned: an expression for a target, in all structures that rules know for it.

    It is the same task as any other that computes the same for the same kind of target; name and
    arguments only say what people call it.

    Made by `loopwright.create_task` of a function that returns tensors; arguments, attributes and
    errors are those of `loopwright.Task`.

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

    def __str__(self) -> str:
        if self.name != EXPRESSION:
            return super().__str__()
        results = (f"{t.name}: {t.dtype}{list(t.shape)}" for t in self.program.outputs)
        return f"expression of {', '.join(results)}"

    @property
    def structures(self) -> tuple[Scheduler, ...]:
        """The structures, in the order of their rules."""
        return self._union.parts

    @cached_property
    def ranking(self) -> tuple[tuple[int, float], ...]:
        """The most promising point of every structure by the analytical model, as its index and its
        predicted share of the peak, best first; nothing is measured."""
        numbers = {id(part): number for number, part in enumerate(self.structures)}
        with self.target:
            found = ranked(self.structures)
        return tuple(self._ranked(numbers[id(r.structure)], r) for r in found)

    def part(self, config: ConfigEntity) -> tuple[Scheduler, ConfigEntity]:
        """The structure of a configuration, and the configuration in its space."""
        number, local = self._union.place_of(config)
        return self.structures[number], local

    @property
    def _union(self) -> SpaceUnion:
        assert isinstance(self.config_space, SpaceUnion)
        return self.config_space

    def _ranked(self, number: int, found: Ranked) -> tuple[int, float]:
        assert found.config.index is not None
        return self._union.offsets[number] + found.config.index, found.speed

    def _key(self) -> str:
        return expression_key(self.dag_hash, self.kind)

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
        return SpaceUnion(found, lambda: self.ranking[0][0])

    def _tensors(self) -> Any:
        """What the workload returns; one that it calls returns tensors, too."""
        try:
            with self.target, running(ConfigSpace()):
                found = self.template.function(*self.args)
        except (LoopwrightError, KeyboardInterrupt):
            raise
        except BaseException as exc:  # a user's function: one that calls sys.exit ends nothing
            raise TaskError(f"{self}: {self.template.blame(exc)}") from exc
        if isinstance(found, tuple) and found and hasattr(found[0], "dag"):
            raise TaskError(
                f"{self} ({self.template.where}) returns a schedule; decorate it with "
                "@loopwright.template, or return its tensors alone and let the space be derived"
            )
        return found
