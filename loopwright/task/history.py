"""``apply_history_best``: build with the best record of a log, and say which one it was."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from loopwright.errors import LoopwrightError, UsageError
from loopwright.records import (
    Json,
    Log,
    Record,
    by_task,
    canonical_json,
    environment,
    open_log,
    top_k,
)
from loopwright.records import threads as threads_of
from loopwright.task.dispatch import DispatchContext, say_once
from loopwright.task.task import Task
from loopwright.task.template import Scheduled


class HasRecord(Protocol):
    """What `loopwright.autotvm.record.load_from_file` yields: something that knows its record."""

    record: Record


Source: TypeAlias = str | os.PathLike[str] | Record | HasRecord | Log
#: How many records are tried before the default is used: the template may have changed.
_TRIES = 8


@dataclass(frozen=True)
class Choice:
    """Which record a task got, or why none.

    Attributes:
        task: The task in words.
        key: Its key.
        record: The record, or None: the default configuration.
        reasons: Why records were passed over, most frequent first.
        hardware: ``"same"``, ``"unknown"`` (the record does not say) or ``"other"``.
        replayed: True when the recorded trace was replayed, since the template makes another
            schedule of the record's configuration now.
        note: What else differs, such as the number of threads.
    """

    task: str
    key: str
    record: Record | None
    reasons: tuple[str, ...] = ()
    hardware: str = ""
    replayed: bool = False
    note: str = ""

    @property
    def expected(self) -> float | None:
        """Seconds per call that the record promises."""
        return self.record.median if self.record else None

    @property
    def age(self) -> float | None:
        """Seconds since the record was made; None when it does not say."""
        return max(0.0, time.time() - self.record.ts) if self.record and self.record.ts else None

    def __str__(self) -> str:
        if self.record is None:
            return f"{self.task}: no record ({'; '.join(self.reasons)}); default configuration"
        parts = [f"{self.expected:.4g} s per call", f"{self.hardware} hardware"]
        if self.age is not None:
            parts.append(f"{_span(self.age)} old")
        if self.replayed:
            parts.append("its trace replayed, the template has changed")
        if self.note:
            parts.append(self.note)
        if self.reasons:
            parts.append(f"passed over: {'; '.join(self.reasons)}")
        return f"{self.task}: record {self.record.id} ({', '.join(parts)})"


def apply_history_best(
    records: Source | Iterable[Source], *, any_hardware: bool = False
) -> ApplyHistoryBest:
    """Build templates with the best records: ``with apply_history_best("log.jsonl"): ...``.

    Args:
        records: The path of a log, records, or any nesting of lists of these.
        any_hardware: Accept records of other hardware, too.

    Raises:
        RecordError: a log is missing or cannot be read.
    """
    return ApplyHistoryBest(records, any_hardware=any_hardware)


class ApplyHistoryBest(DispatchContext):
    """The dispatch context of :func:`apply_history_best`.

    A record is used for a task of its template, arguments and kind of target, on its hardware.
    Records of the same threads and target options go first; among them the lowest median time.
    Failed and dropped ones never. The template runs with the record's configuration. Where it makes
    the same tensor expression with another schedule than was measured, the recorded trace is
    replayed; where it makes another expression, the record is refused.
    """

    def __init__(self, records: Source | Iterable[Source], *, any_hardware: bool = False) -> None:
        self.any_hardware = any_hardware
        self.skipped = 0
        self._choices: dict[str, Choice] = {}
        self._records = by_task(self._read(records))

    def apply(self, task: Task) -> Scheduled | None:
        """The schedule of the best record for the task, or None."""
        fitting, passed = self._select(task)
        for record in fitting[:_TRIES]:
            try:
                scheduled, replayed = _instantiate(task, record)
            except _Refused as exc:
                passed.reasons[str(exc)] += 1
                continue
            self._choices[task.key] = self._choice(task, record, passed, replayed)
            return scheduled
        self._choices[task.key] = Choice(str(task), task.key, None, passed.texts())
        return None

    def why_not(self, task: Task) -> str:
        """Why no record was used."""
        return "; ".join(self.explain(task).reasons)

    def explain(self, task: Task) -> Choice:
        """Which record the task got, or would get, and why others were passed over.

        A record may still turn out to belong to an older state of the template when it is applied;
        after that this says so.
        """
        if task.key in self._choices:
            return self._choices[task.key]
        fitting, passed = self._select(task)
        if not fitting:
            return Choice(str(task), task.key, None, passed.texts())
        return self._choice(task, fitting[0], passed, replayed=False)

    def report(self) -> tuple[Choice, ...]:
        """One choice per task that was built so far, in order."""
        return tuple(self._choices.values())

    def _read(self, source: object) -> Iterator[Record]:
        own = getattr(source, "record", None)
        if isinstance(source, Record):
            yield source
        elif isinstance(source, (str, os.PathLike)):
            yield from self._read(open_log(source))
        elif isinstance(own, Record):
            yield own
        elif isinstance(source, Log):
            self.skipped += len(source.skipped)
            if source.skipped:
                say_once(source.complaint())
            yield from source.records
        elif isinstance(source, Iterable):
            for part in source:
                yield from self._read(part)
        else:
            raise UsageError(
                f"apply_history_best takes the path of a log or records, got {source!r}"
            )

    def _select(self, task: Task) -> tuple[list[Record], PassedOver]:
        """Records to try, best first, and how many were passed over for which reason."""
        target = task.target.canonical
        env = environment()
        exact, near = [], []
        passed = PassedOver()
        own = self._records.get(task.key, [])
        for record in own:
            reason = _unusable(record) or ("" if self.any_hardware else _other(record, target, env))
            if reason:
                passed.reasons[reason] += 1
            elif _same_options(record, target, env):
                exact.append(record)
            else:
                near.append(record)
        if not own:
            passed = self._other_tasks(task)
        # A wrong answer found later takes its candidate out: the failures are passed on as well.
        wrong = [record for record in own if record.error is not None]
        order = top_k([*exact, *wrong], _TRIES) + top_k([*near, *wrong], _TRIES)
        return order, passed

    def _other_tasks(self, task: Task) -> PassedOver:
        """Why the log has nothing of this task: what it has instead."""
        reasons: Counter[str] = Counter()
        for records in self._records.values():
            first = records[0]
            if first.op == task.name:
                same = canonical_json(first.args) == canonical_json(list(task.args))
                other = f"target {first.kind!r}" if same else f"arguments {tuple(first.args)}"
                reasons[f"for {other}, not {task.kind if same else task.args}"] += len(records)
        total = sum(map(len, self._records.values()))
        none = f"none of this task among {total} records" if total else "the log is empty"
        return PassedOver(reasons, none)

    def _choice(self, task: Task, record: Record, passed: PassedOver, replayed: bool) -> Choice:
        target, env = task.target.canonical, environment()
        hardware = "same" if record.hardware else "unknown"
        if _other(record, target, env):
            hardware = "other"
        note = ""
        if record.threads and record.threads != threads_of(target, env):
            note = f"tuned for {record.threads} threads"
        return Choice(str(task), task.key, record, passed.texts(), hardware, replayed, note)


@dataclass
class PassedOver:
    """Why records of a log were not used.

    Attributes:
        reasons: how many records for each reason.
        summary: what is to be said of the log as a whole.
    """

    reasons: Counter[str] = field(default_factory=Counter)
    summary: str = ""

    def texts(self) -> tuple[str, ...]:
        """The reasons with their counts, most frequent first, then the summary."""
        counted = [f"{count} {reason}" for reason, count in self.reasons.most_common()]
        return (*counted, *filter(None, [self.summary]))


class _Refused(Exception):
    """A record cannot be applied; the text says why."""


def _instantiate(task: Task, record: Record) -> tuple[Scheduled, bool]:
    """The schedule of a record; True beside it when the recorded trace was replayed."""
    if not record.trace and set(record.config) != set(task.config_space.knobs):
        raise _Refused("it has other knobs than the template now, and no trace")
    try:
        schedule, tensors = task.instantiate(record.config)
    except LoopwrightError as exc:
        raise _Refused(f"its configuration fails now: {exc}") from exc
    if record.dag and schedule.dag.hash != record.dag:
        raise _Refused("the template computes another tensor expression now")
    if not record.dag or not record.trace:
        return (schedule, tensors), False
    if canonical_json(schedule.trace_json()) == canonical_json(record.trace):
        return (schedule, tensors), False
    from loopwright.schedule import replay

    try:
        fresh = replay(schedule.dag, record.trace)
        return (fresh, [fresh.tensor(a) for a in schedule.arg_ids(tensors)]), True
    except LoopwrightError as exc:
        raise _Refused(f"its trace does not replay: {exc}") from exc


def _unusable(record: Record) -> str:
    if record.error is not None:
        return f"failed ({record.error.get('kind')})"
    if record.dropped:
        return "dropped by racing"
    return "" if record.times else "without a time"


def _other(record: Record, target: Mapping[str, Json], env: Mapping[str, Json]) -> str:
    """How a record's hardware differs from this; what a record does not say does not differ."""
    pairs: Sequence[tuple[str, Json, Json]] = (
        ("CPU", record.env.get("cpu"), env.get("cpu")),
        ("instruction set", record.env.get("isa"), env.get("isa")),
        ("target CPU", record.target.get("mcpu"), target.get("mcpu")),
        ("target features", record.target.get("mattr"), target.get("mattr")),
    )
    for name, then, now in pairs:
        if then and now and then != now:
            detail = "" if len(str(then)) > 40 else f" {then}"
            return f"of other hardware ({name}{detail})"
    return ""


def _same_options(record: Record, target: Mapping[str, Json], env: Mapping[str, Json]) -> bool:
    return record.target == target and record.threads == threads_of(target, env)


def _span(seconds: float) -> str:
    for name, size in (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= size:
            count = int(seconds / size)
            return f"{count} {name}{'s' * (count != 1)}"
    return f"{int(seconds)} seconds"
