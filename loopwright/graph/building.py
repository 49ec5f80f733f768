"""Compiled models: a program of kernels, each of them built once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from loopwright import driver
from loopwright.graph.fallbacks import Fallback, ModelReport, fallbacks_of
from loopwright.graph.finalists import InsideReport, contest
from loopwright.graph.ir.expr import HostFunction, TupleType
from loopwright.graph.ir.module import IRModule
from loopwright.graph.kernels import KernelTasks, fastest, kernel_tasks
from loopwright.graph.layout.choice import LayoutChoice
from loopwright.graph.plan import Planned
from loopwright.graph.transform.pipeline import prepared
from loopwright.runtime import Module
from loopwright.runtime.executors import HostStep, Model
from loopwright.runtime.executors.batches.shared_arrays import SharedArrays
from loopwright.target import Target
from loopwright.task import (
    ApplyHistoryBest,
    Choice,
    FallbackContext,
    apply_history_best,
)
from loopwright.task.applying.sources import Source
from loopwright.task.dispatch import DispatchContext, schedule_of


class CompiledModel(Model):
    """A model whose kernels are built.

    Args:
        planned: its program and the functions of its kernels.
        kernels: the built kernels by name.
        choices: the record each kernel was built from, by the kernel's name; none without a
            history.
        implementations: the implementation of each kernel's anchor, by the kernel's name; see
            `Implementation`.
        shared: as of `Model`.

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
            kernels[place.kernel] = place.winner.module
            implementations[place.kernel] = place.winner.implementation
            if place.winner.choice is not None:
                choices[place.kernel] = place.winner.choice
        made = CompiledModel(self.planned, kernels, choices, implementations, self._shared)
        made.inside = report
        return made

    @property
    def report(self) -> ModelReport:
        """The records its kernels were built from (none without a history), and fallback nodes.

        Where nodes have no kernel, the first access runs the model a few times on random data, to
        measure their share of the time.

        Raises:
            RunError: the model has such nodes and does not run on random data.
        """
        return ModelReport(self.choices.values(), self._fallbacks)

    @cached_property
    def _fallbacks(self) -> tuple[Fallback, ...]:
        return fallbacks_of(self, self.planned.hosts)


def host_step(name: str, host: HostFunction) -> HostStep:
    outputs = len(host.result.fields) if isinstance(host.result, TupleType) else 1
    return HostStep(name, host.function, outputs, host.by)


def compile_module(
    module: IRModule,
    target: Target,
    history: ApplyHistoryBest | None,
    finalists: int | None,
    *,
    layouts: LayoutChoice | None = None,
    known: dict[str, Module] | None = None,
    weights: SharedArrays | None = None,
    packed: SharedArrays | None = None,
) -> CompiledModel:
    """Build a module whose extents are numbers.

    ``weights`` and ``packed`` hold arrays of other models: equal weights, and equal packings of
    them, are kept once.
    """
    planned = prepared(module, layouts, target)
    if weights is not None:
        shared = {n: weights.one_of(np.asarray(a)) for n, a in planned.constants.items()}
        planned = replace(planned, constants=shared)
    tasks = kernel_tasks(planned, target)
    compiled = built(planned, tasks, target, history, known, packed)
    if finalists is None:
        return compiled
    records = records_in_force() if history is None else history
    chosen = {n: (way, compiled.choices.get(n)) for n, way in compiled.implementations.items()}
    return compiled.with_winners(contest(compiled, chosen, tasks, target, records, finalists))


def built(
    planned: Planned,
    tasks: KernelTasks,
    target: Target,
    history: Source | Any = None,
    known: dict[str, Module] | None = None,
    shared: SharedArrays | None = None,
) -> CompiledModel:
    """Build a program, each kernel from the schedule of the fastest of its tasks.

    ``known`` holds kernels built before for the same target and history, keyed by their tasks; new
    ones are added to it.
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
    return CompiledModel(planned, kernels, choices, implementations, shared)


def records_in_force() -> ApplyHistoryBest | None:
    """The innermost context of records, if any."""
    around = DispatchContext.current
    return around if isinstance(around, ApplyHistoryBest) else None


@contextmanager
def applied_history(history: Source | Any) -> Iterator[ApplyHistoryBest | None]:
    """Apply a history while kernels are built; those without a record get their default."""
    if history is None:
        yield None
        return
    applied = history if isinstance(history, ApplyHistoryBest) else apply_history_best(history)
    with FallbackContext(), applied:
        yield applied
