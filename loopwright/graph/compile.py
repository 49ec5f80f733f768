"""From a module to a model that runs: passes, kernels, memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from loopwright import driver
from loopwright.errors import UsageError
from loopwright.graph.fallbacks import Fallback, ModelReport, fallbacks_of
from loopwright.graph.finalists import InsideReport, check_count, contest
from loopwright.graph.frontend.source import ModelLike, module_of
from loopwright.graph.ir.expr import HostFunction
from loopwright.graph.ir.types import TupleType
from loopwright.graph.kernel_tasks import KernelTasks, fastest, kernel_tasks
from loopwright.graph.layout.choice import LayoutChoice
from loopwright.graph.layout.tuning import tune_layouts
from loopwright.graph.pipeline import PIPELINE, prepared
from loopwright.graph.plan import Planned
from loopwright.runtime import Module
from loopwright.runtime.executors import HostStep, Model
from loopwright.target import Target
from loopwright.task import (
    ApplyHistoryBest,
    Choice,
    FallbackContext,
    apply_history_best,
)
from loopwright.task.applying.sources import Source
from loopwright.task.dispatch import DispatchContext, schedule_of
from loopwright.task.task import TargetLike, resolve_target

__all__ = ["PIPELINE", "CompiledModel", "built", "compile", "prepared"]

#: What asks for layouts by measurements.
MEASURED = "measured"


class CompiledModel(Model):
    """A model whose kernels are built.

    Args:
        planned: its program, and what its kernels are.
        kernels: by name.
        choices: which record each kernel was built from, by its name; none without a history.
        implementations: how the anchor of each kernel is computed, by its name; see
            `Implementation`.

    Attributes:
        planned, choices, implementations: as given; the others are those of `Model`.
        inside: how kernels compared inside runs of the model; None where they did not.

    Example:
        >>> x = lw.graph.var("x", (2,))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.add(x, x))
        >>> executor = lw.graph.compile(module, "llvm").executor()
        >>> executor.run(x=np.array([1, 2], "float32"))
        >>> print(executor.get_output(0).numpy())
        [2. 4.]
    """

    def __init__(
        self,
        planned: Planned,
        kernels: Mapping[str, Module],
        choices: Mapping[str, Choice] | None = None,
        implementations: Mapping[str, str] | None = None,
    ) -> None:
        hosts = {name: _host_step(name, host) for name, host in planned.hosts.items()}
        super().__init__(planned.program, kernels, planned.constants, hosts)
        self.planned, self.choices = planned, choices or {}
        self.implementations = implementations or {}
        self.inside: InsideReport | None = None

    def with_winners(self, report: InsideReport) -> CompiledModel:
        """The model with the kernels that were the fastest inside its runs."""
        kernels, choices = dict(self.kernels), dict(self.choices)
        implementations = dict(self.implementations)
        for place in report.changed:
            kernels[place.kernel] = place.winner.module
            implementations[place.kernel] = place.winner.implementation
            if place.winner.choice is not None:
                choices[place.kernel] = place.winner.choice
        made = CompiledModel(self.planned, kernels, choices, implementations)
        made.inside = report
        return made

    @property
    def report(self) -> ModelReport:
        """What its kernels were built from, empty without a history, and the nodes that have none.

        Where there are such nodes, the model runs a few times on random data when this is first
        asked for, to tell their share of the time.

        Raises:
            RunError: the model has such nodes and does not run on random data.
        """
        return ModelReport(self.choices.values(), self._fallbacks)

    @cached_property
    def _fallbacks(self) -> tuple[Fallback, ...]:
        return fallbacks_of(self, self.planned.hosts)


def _host_step(name: str, host: HostFunction) -> HostStep:
    outputs = len(host.result.fields) if isinstance(host.result, TupleType) else 1
    return HostStep(name, host.function, outputs, host.by)


def compile(
    model: ModelLike,
    target: TargetLike = None,
    history: Source | Any = None,
    *,
    finalists: int | None = None,
    layouts: LayoutChoice | str | None = None,
    example_inputs: Sequence[Any] | None = None,
    fallback: bool = True,
) -> CompiledModel:
    """Build a model: simplify its graph, fuse, plan memory, and build each kernel once.

    Args:
        model: a module, whose ``main`` is built; an ONNX model as `from_onnx` takes it; or a model
            of PyTorch as `from_torch` does.
        target: None is the current target, or the default one.
        history: a log, or whatever else `loopwright.apply_history_best` takes: kernels of whose
            expression it has a record are built from the best one, the others as without a history;
            `CompiledModel.report` says which. Where an operator has several implementations, that
            with the fastest record is built, and that of the highest priority where none has one;
            `CompiledModel.implementations` says which. None: as the ``apply_history_best`` around
            the call says, if there is one.
        finalists: so many of the fastest records of each kernel, and its default, take turns inside
            runs of the model on random inputs: a kernel that wins by itself may lose there. What is
            measurably faster than the best record is built in its place;
            `CompiledModel.inside` tells. None: the best records are built.
        layouts: what `tune_layouts` chose for the same model; ``"measured"`` calls it with this
            history, and measures what that does not hold. None: as `ConvertLayout` has it.
        example_inputs: what a ``torch.nn.Module`` is called with.
        fallback: whether nodes of an ONNX model that are not supported are computed by
            ``onnx.reference``, those of a PyTorch model by PyTorch. `CompiledModel.report` lists
            them. False refuses them, all in one message.

    Raises:
        GraphError: the model is none, nodes are not supported, a type does not fit, ``main``
            has branches, or the layouts are of another model.
        RecordError: a log is missing or cannot be read.
        UsageError: ``finalists`` is no whole number above zero, or with it, there is no device of
            the target here.

    Example:
        >>> x = lw.graph.var("x", (4,))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(lw.graph.op.negative(x)))
        >>> model = lw.graph.compile(module, "llvm")
        >>> print(model(np.array([1, -2, 3, -4], "float32"))[0])
        [0. 2. 0. 4.]
    """
    if finalists is not None:
        check_count(finalists)
    resolved = resolve_target(target)
    module = module_of(model, example_inputs=example_inputs, fallback=fallback)
    if isinstance(layouts, str):
        if layouts != MEASURED:
            raise UsageError(
                f'layouts is {layouts!r}; give "measured", or what tune_layouts returns'
            )
        layouts = tune_layouts(module, resolved, history)
    planned = prepared(module, layouts)
    tasks = kernel_tasks(planned, resolved)
    if history is not None and not isinstance(history, ApplyHistoryBest):
        history = apply_history_best(history)
    compiled = built(planned, tasks, resolved, history)
    if finalists is None:
        return compiled
    records = records_in_force() if history is None else history
    chosen = {n: (way, compiled.choices.get(n)) for n, way in compiled.implementations.items()}
    return compiled.with_winners(contest(compiled, chosen, tasks, resolved, records, finalists))


def built(
    planned: Planned,
    tasks: KernelTasks,
    target: Target,
    history: Source | Any = None,
    known: dict[str, Module] | None = None,
) -> CompiledModel:
    """A program with its kernels, each from the schedule of the fastest of its tasks.

    Args:
        planned: the program.
        tasks: what `kernel_tasks` gives for it.
        target: what is built for.
        history: as of `compile`.
        known: kernels by the keys of their tasks, built before for the same target and history;
            those that are built now are added.
    """
    known = {} if known is None else known
    kernels, choices, implementations = {}, {}, {}
    with applied_history(history) as applied:
        records = records_in_force()
        for name, candidates in tasks.items():
            chosen = fastest(candidates, records)
            if chosen.task.key not in known:
                schedule, args = schedule_of(chosen.task)
                known[chosen.task.key] = driver.build(schedule, args, target, name=name)
            kernels[name] = known[chosen.task.key]
            implementations[name] = chosen.implementation
            if applied is not None:
                choices[name] = applied.explain(chosen.task)
    return CompiledModel(planned, kernels, choices, implementations)


def records_in_force() -> ApplyHistoryBest | None:
    """The innermost context, where it is one of records."""
    around = DispatchContext.current
    return around if isinstance(around, ApplyHistoryBest) else None


@contextmanager
def applied_history(history: Source | Any) -> Iterator[ApplyHistoryBest | None]:
    """In which kernels are built; one without a record gets its default, which the report tells."""
    if history is None:
        yield None
        return
    applied = history if isinstance(history, ApplyHistoryBest) else apply_history_best(history)
    with FallbackContext(), applied:
        yield applied
