"""Compiled models: a program of kernels, each of them built once.

A kernel that wins when it is called again and again may lose among other data in the caches. So the
fastest records of each kernel and its default can take turns in runs of the whole model.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright import driver, runtime
from loopwright.codegen import BuildQueue
from loopwright.errors import InternalError
from loopwright.executors import HostStep, Model, SharedArrays
from loopwright.graph.fallbacks import Fallback, ModelReport, fallbacks_of, random_inputs
from loopwright.graph.ir.expr import HostFunction, TupleType
from loopwright.graph.ir.module import IRModule
from loopwright.graph.kernels import KernelTask, KernelTasks, fastest, kernel_tasks
from loopwright.graph.layout.choice import LayoutChoice
from loopwright.graph.plan import Planned
from loopwright.graph.transform.pipeline import prepared
from loopwright.history import ApplyHistoryBest, Choice, Match, Source, apply_history_best
from loopwright.presenting import duration
from loopwright.records import Outcome
from loopwright.runtime import Module
from loopwright.target import Target
from loopwright.task import DispatchContext, FallbackContext, fallback, schedule_of

# Measuring is imported where kernels take turns: most models are compiled without.
if TYPE_CHECKING:
    from loopwright.measure import PairedGain


@dataclass(frozen=True)
class KernelFinalist:
    #: ``"record 092fa68b9e"`` or ``"default"``, with the implementation where there are several
    origin: str
    implementation: str  # how its operator is computed
    module: Module
    choice: Choice | None  # its record; None where there is no history


@dataclass(frozen=True)
class KernelPlayoff:
    """The finalists of one kernel of a model, as measured inside its runs."""

    kernel: str  # its name in the model
    finalists: tuple[KernelFinalist, ...]  # the first is the one that the records choose
    #: for each finalist, the seconds of all its calls in a run, one value for each round
    times: tuple[tuple[float, ...], ...]
    gains: tuple[PairedGain, ...]  # speed-up of each of the others over the first

    @property
    def taken(self) -> int:
        """Index of the fastest finalist measurably faster than the first, else 0."""
        faster = [n for n, gain in enumerate(self.gains, 1) if gain.outcome is Outcome.FASTER]
        return max(faster, key=lambda n: self.gains[n - 1].gain, default=0)

    @property
    def winner(self) -> KernelFinalist:
        return self.finalists[self.taken]

    def __str__(self) -> str:
        medians = [duration(statistics.median(samples)) for samples in self.times]
        if not self.taken:
            return f"{self.kernel}: {self.winner.origin}, {medians[0]} a run"
        gain = self.gains[self.taken - 1]
        return (
            f"{self.kernel}: {self.winner.origin} in place of {self.finalists[0].origin}, "
            f"{medians[self.taken]} a run for {medians[0]} ({gain.gain:.1%} +- {gain.margin:.1%} "
            "faster)"
        )


class InsideReport(tuple[KernelPlayoff, ...]):
    """Result of the contest inside the model; its text has a line for each changed kernel."""

    __slots__ = ()

    @property
    def changed(self) -> tuple[KernelPlayoff, ...]:
        """The places where the records would have chosen another kernel."""
        return tuple(place for place in self if place.taken)

    def __str__(self) -> str:
        if not self:
            return "no kernel has another candidate than the one that is built"
        several = "1 kernel" if len(self) == 1 else f"{len(self)} kernels"
        head = f"inside the model {len(self.changed)} of {several} with several candidates changed"
        return "\n".join([head, *(f"  {place}" for place in self.changed)])


class CompiledModel(Model):
    """A model whose kernels are built; made by `loopwright.graph.compile`.

    Attributes:
        planned: its program and the functions of its kernels.
        choices: the record each kernel was built from, by the kernel's name; none without a
            history.
        implementations: the `Implementation` of each kernel's anchor, by the kernel's name.
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
        shared: SharedArrays | None = None,
    ) -> None:
        hosts = {name: host_step(name, host) for name, host in planned.hosts.items()}
        super().__init__(planned.program, kernels, planned.constants, hosts, shared)
        self.planned, self.choices = planned, choices or {}
        self.implementations = implementations or {}
        self.inside: InsideReport | None = None

    def with_winners(self, report: InsideReport) -> CompiledModel:
        """The model with the kernels that were the fastest inside its runs."""
        kernels, choices = dict(self.kernels), dict(self.choices)
        implementations = dict(self.implementations)
        for place in report.changed:
            winner = place.winner
            kernels[place.kernel] = winner.module
            implementations[place.kernel] = winner.implementation
            if winner.choice is not None:
                choices[place.kernel] = winner.choice
        model = CompiledModel(self.planned, kernels, choices, implementations, self._shared)
        model.inside = report
        return model

    @property
    def report(self) -> ModelReport:
        """The records its kernels were built from (none without a history), and fallback nodes.

        Where nodes have no kernel, the first access runs the model a few times on random data, to
        measure their share of the time; RunError where that does not run.
        """
        return ModelReport(self.choices.values(), self._fallbacks)

    @cached_property
    def _fallbacks(self) -> tuple[Fallback, ...]:
        return fallbacks_of(self, self.planned.hosts)


def host_step(name: str, host: HostFunction) -> HostStep:
    outputs = len(host.result.fields) if isinstance(host.result, TupleType) else 1
    return HostStep(name, host.function, outputs, host.by)


@dataclass(frozen=True)
class ModelBuilder:
    """Builds models for a target under a history; they share kernels and weights."""

    target: Target
    history: ApplyHistoryBest | None = None  # None: the records of the context around, if any
    finalists: int | None = None  # records of each kernel that take turns inside runs
    kernels: dict[str, Future[Module]] = field(default_factory=dict)  # by the keys of their tasks
    weights: SharedArrays | None = None  # equal ones are kept once; None: as each model has them
    packed: SharedArrays | None = None  # computed from weights; None: each model has its own

    def model(self, module: IRModule, layouts: LayoutChoice | None = None) -> CompiledModel:
        """Build a module whose extents are numbers."""
        planned = prepared(module, layouts, self.target)
        if self.weights is not None:
            planned = replace(planned, constants=self.shared(planned.constants))
        tasks = kernel_tasks(planned, self.target)
        model = self.program(planned, tasks)
        if self.finalists is None:
            return model
        return model.with_winners(self._playoff(model, tasks, self.finalists))

    def shared(self, constants: Mapping[str, Any]) -> dict[str, Any]:
        """Weights by name, equal ones of all models as one array."""
        assert self.weights is not None
        return {name: self.weights.one_of(np.asarray(a)) for name, a in constants.items()}

    def program(self, planned: Planned, tasks: KernelTasks) -> CompiledModel:
        """Build a program, each kernel from the schedule of the fastest of its tasks."""
        building, choices, implementations = {}, {}, {}
        with self.applied(), BuildQueue() as queue:
            records = records_in_force()
            for name, candidates in tasks.items():
                chosen = fastest(candidates, records)
                building[name] = self.kernel(chosen, name, queue)
                implementations[name] = chosen.implementation
                if self.history is not None:
                    choices[name] = self.history.explain(chosen.task)
        kernels = {name: future.result() for name, future in building.items()}
        return CompiledModel(planned, kernels, choices, implementations, self.packed)

    def kernel(self, one: KernelTask, name: str, queue: BuildQueue) -> Future[Module]:
        """The kernel of a task, built by the schedule that the context in force has for it."""
        key = one.task.key
        future = self.kernels.get(key)
        if future is None:
            schedule, args = schedule_of(one.task)
            future = self.kernels[key] = queue.build(schedule, args, self.target, name)
            future.add_done_callback(lambda done: self._drop_failed(key, done))
        return future

    def _drop_failed(self, key: str, future: Future[Module]) -> None:
        if future.cancelled() or future.exception():
            self.kernels.pop(key, None)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Build kernels from the history, those without a record by their default schedules."""
        with ExitStack() as stack:
            if self.history is not None:
                stack.enter_context(FallbackContext())
                stack.enter_context(self.history)
            yield

    def _playoff(self, model: CompiledModel, tasks: KernelTasks, count: int) -> InsideReport:
        """Compare the ``count`` fastest records of each kernel, or else defaults, inside runs."""
        from loopwright.measure import code_of

        finalists: dict[str, list[KernelFinalist]] = {}
        for name, candidates in tasks.items():
            distinct: dict[str, KernelFinalist] = {}
            for one in self._finalists(name, candidates, model, count):
                distinct.setdefault(code_of(one.module.artifact), one)
            if len(distinct) > 1:
                finalists[name] = list(distinct.values())
        if not finalists:
            return InsideReport()
        kernels = {name: [one.module for one in ones] for name, ones in finalists.items()}
        with _alone(self.target):
            times = model.debug_executor().compare(kernels, inputs=random_inputs(model.program))
        return InsideReport(
            KernelPlayoff(
                name,
                tuple(ones),
                tuple(map(tuple, samples)),
                tuple(_gain(samples[0], other) for other in samples[1:]),
            )
            for (name, ones), samples in zip(finalists.items(), times.values(), strict=True)
        )

    def _finalists(
        self, name: str, candidates: Sequence[KernelTask], model: CompiledModel, count: int
    ) -> Iterator[KernelFinalist]:
        """The kernel of the model, the fastest records of all implementations, their defaults."""
        several = len(candidates) > 1

        def finalist(module: Module, implementation: str, choice: Choice | None) -> KernelFinalist:
            tuned = choice is not None and choice.match is not Match.DEFAULT and choice.record
            schedule = f"record {tuned.id}" if tuned else "default"
            origin = f"{implementation}, {schedule}" if several else schedule
            return KernelFinalist(origin, implementation, module, choice)

        yield finalist(model.kernels[name], model.implementations[name], model.choices.get(name))
        history = records_in_force() if self.history is None else self.history
        records = [
            (choice, scheduled, one)
            for one in candidates
            for choice, scheduled in (() if history is None else history.finalists(one.task, count))
            # Otherwise the default is as fast by its verdict, and takes part itself.
            if choice.match is not Match.DEFAULT
        ]
        records = sorted(records, key=lambda it: it[0].expected or 0.0)[:count]
        for choice, (schedule, args), one in records:
            module = driver.build(schedule, args, self.target, name=name)
            yield finalist(module, one.implementation, choice)
        for one in candidates if several or records else ():
            schedule, args = fallback(one.task)
            module = driver.build(schedule, args, self.target, name=name)
            why = ("the default is faster inside the model",)
            untuned = None if history is None else Choice(str(one.task), one.task.key, None, why)
            yield finalist(module, one.implementation, untuned)


def records_of(history: Source | Any) -> ApplyHistoryBest | None:
    """The context of a history, of itself or of its sources; None where there is none."""
    if history is None or isinstance(history, ApplyHistoryBest):
        return history
    return apply_history_best(history)


def records_in_force() -> ApplyHistoryBest | None:
    """The innermost context of records, if any."""
    around = DispatchContext.current
    return around if isinstance(around, ApplyHistoryBest) else None


def _gain(first: Sequence[float], other: Sequence[float]) -> PairedGain:
    from loopwright.measure import paired_gain

    if (gain := paired_gain(first, other)) is None:
        raise InternalError(f"{len(first)} rounds are too few to compare two kernels")
    return gain


@contextmanager
def _alone(target: Target) -> Iterator[None]:
    """Keep other users of loopwright from timing on the target's devices meanwhile."""
    from loopwright.measure import DeviceLock, lock_names, measured_on

    with ExitStack() as stack:
        for name in lock_names(measured_on(target)):
            lock = DeviceLock(name)
            lock.acquire()
            stack.callback(lock.release)
        stack.enter_context(runtime.pinned())
        yield
