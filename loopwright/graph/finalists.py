"""Choice of kernels by their time inside the model.

A kernel that wins when each is called again and again may lose inside a model, where it finds other
data in the caches. So the fastest records of each kernel, and its default, take turns in runs of
the whole model, all places at once.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopwright import driver, runtime
from loopwright.errors import InternalError, UsageError
from loopwright.graph.fallbacks import random_inputs
from loopwright.measure import DeviceLock, PairedGain, paired_gain
from loopwright.measure.devices import lock_names, measured_on
from loopwright.measure.programs import code_of
from loopwright.records import Outcome
from loopwright.task import Choice, Match
from loopwright.task.applying.as_called import duration
from loopwright.task.dispatch import fallback

if TYPE_CHECKING:
    from loopwright.graph.kernels import KernelTask, KernelTasks
    from loopwright.runtime import Module
    from loopwright.runtime.executors import Model
    from loopwright.target import Target
    from loopwright.task import ApplyHistoryBest
    from loopwright.task.template import Scheduled


@dataclass(frozen=True)
class Finalist:
    #: ``"record 092fa68b9e"`` or ``"default"``, with the implementation where there are several
    origin: str
    implementation: str  # how its operator is computed
    module: Module
    choice: Choice | None  # its record; None where there is no history


@dataclass(frozen=True)
class Place:
    """The finalists of one kernel of a model, as measured inside its runs."""

    kernel: str  # its name in the model
    finalists: tuple[Finalist, ...]  # the first is the one that the records choose
    #: for each finalist, the seconds of all its calls in a run, one value for each round
    times: tuple[tuple[float, ...], ...]
    gains: tuple[PairedGain, ...]  # speed-up of each of the others over the first

    @property
    def taken(self) -> int:
        """Index of the fastest finalist measurably faster than the first, else 0."""
        faster = [n for n, gain in enumerate(self.gains, 1) if gain.outcome is Outcome.FASTER]
        return max(faster, key=lambda n: self.gains[n - 1].gain, default=0)

    @property
    def winner(self) -> Finalist:
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


class InsideReport(tuple[Place, ...]):
    """Result of the contest inside the model; its text has a line for each changed kernel."""

    __slots__ = ()

    @property
    def changed(self) -> tuple[Place, ...]:
        """The places where the records would have chosen another kernel."""
        return tuple(place for place in self if place.taken)

    def __str__(self) -> str:
        if not self:
            return "no kernel has another candidate than the one that is built"
        several = "1 kernel" if len(self) == 1 else f"{len(self)} kernels"
        head = f"inside the model {len(self.changed)} of {several} with several candidates changed"
        return "\n".join([head, *(f"  {place}" for place in self.changed)])


def check_count(finalists: object) -> None:
    """Raise UsageError unless the number of finalists is a whole number above zero."""
    if isinstance(finalists, bool) or not isinstance(finalists, int) or finalists < 1:
        raise UsageError(
            f"finalists is {finalists!r}; give the number of records of each kernel that take "
            "turns, such as 3"
        )


def contest(
    model: Model,
    chosen: Mapping[str, tuple[str, Choice | None]],
    tasks: KernelTasks,
    target: Target,
    history: ApplyHistoryBest | None,
    count: int,
) -> InsideReport:
    """Let the ``count`` fastest records of each kernel take turns in runs on random inputs.

    ``chosen`` gives the implementation and the record of each kernel of the model. Without a
    history only the defaults of several implementations take turns.
    """
    places: dict[str, list[Finalist]] = {}
    for name, candidates in tasks.items():
        first = _first(model.kernels[name], *chosen[name], several=len(candidates) > 1)
        found = _distinct([first, *_finalists(name, candidates, target, history, count)])
        if len(found) > 1:
            places[name] = found
    if not places:
        return InsideReport()
    kernels = {name: [one.module for one in found] for name, found in places.items()}
    with _alone(target):
        times = model.debug_executor().compare(kernels, inputs=random_inputs(model.program))
    return InsideReport(
        Place(
            name, tuple(found), tuple(map(tuple, took)), tuple(_gain(took[0], t) for t in took[1:])
        )
        for (name, found), took in zip(places.items(), times.values(), strict=True)
    )


def _first(module: Module, way: str, choice: Choice | None, *, several: bool) -> Finalist:
    record = choice.record if choice is not None and choice.match is not Match.DEFAULT else None
    origin = _origin(None if record is None else record.id, way if several else "")
    return Finalist(origin, way, module, choice)


def _finalists(
    name: str,
    candidates: Sequence[KernelTask],
    target: Target,
    history: ApplyHistoryBest | None,
    count: int,
) -> Iterator[Finalist]:
    """The fastest records of a kernel over all its implementations; then their defaults."""
    several = len(candidates) > 1
    records = [] if history is None else _fastest_records(candidates, history, count)
    for choice, (schedule, args), one in records:
        way = one.implementation
        origin = _origin(choice.record.id if choice.record else None, way if several else "")
        yield Finalist(origin, way, driver.build(schedule, args, target, name=name), choice)
    for one in candidates if several or records else ():
        way = one.implementation
        schedule, args = fallback(one.task)
        module = driver.build(schedule, args, target, name=name)
        why = ("the default is faster inside the model",)
        untuned = None if history is None else Choice(str(one.task), one.task.key, None, why)
        yield Finalist(_origin(None, way if several else ""), way, module, untuned)


def _fastest_records(
    candidates: Sequence[KernelTask], history: ApplyHistoryBest, count: int
) -> list[tuple[Choice, Scheduled, KernelTask]]:
    found = [
        (choice, scheduled, one)
        for one in candidates
        for choice, scheduled in history.finalists(one.task, count)
        # Otherwise the default is as fast by its verdict, and takes part itself.
        if choice.match is not Match.DEFAULT
    ]
    return sorted(found, key=lambda it: it[0].expected or 0.0)[:count]


def _origin(record: str | None, way: str) -> str:
    schedule = "default" if record is None else f"record {record}"
    return f"{way}, {schedule}" if way else schedule


def _distinct(finalists: Iterable[Finalist]) -> list[Finalist]:
    """Finalists without those that have the code of an earlier one."""
    found: dict[str, Finalist] = {}
    for one in finalists:
        found.setdefault(code_of(one.module.artifact), one)
    return list(found.values())


def _gain(first: Sequence[float], other: Sequence[float]) -> PairedGain:
    found = paired_gain(first, other)
    if found is None:
        raise InternalError(f"{len(first)} rounds are too few to compare two kernels")
    return found


@contextmanager
def _alone(target: Target) -> Iterator[None]:
    """Keep other users of loopwright from timing on the target's devices meanwhile."""
    with ExitStack() as stack:
        for name in lock_names(measured_on(target)):
            lock = DeviceLock(name)
            lock.acquire()
            stack.callback(lock.release)
        stack.enter_context(runtime.pinned())
        yield
