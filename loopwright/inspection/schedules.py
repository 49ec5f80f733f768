"""Schedules of a task: the default one, and that of the best or of a named record of some logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright.errors import LoopwrightError, RecordError, UsageError
from loopwright.history import (
    FieldDifference,
    Here,
    Match,
    apply_history_best,
    failed_checks,
    logs_of,
    rebuild,
    refusal,
)
from loopwright.inspection.choosing import WORDS, choose, title
from loopwright.presenting import counted, duration
from loopwright.records import (
    Checked,
    Log,
    Record,
    Store,
    by_task,
    check_has_records,
    fields_of,
    threads,
)
from loopwright.target import Target
from loopwright.task import Task, create_task

if TYPE_CHECKING:
    from loopwright.history import ApplyHistoryBest
    from loopwright.lowering import PassContext
    from loopwright.runtime import Module
    from loopwright.schedule import Schedule
    from loopwright.task import Task
    from loopwright.te import Tensor


#: Records of a log that are checked, at most, until one is found right.
_CHECKS = 8


@dataclass(frozen=True)
class ChosenSchedule:
    schedule: Schedule
    args: list[Tensor]  # in calling order
    #: Context that chose it; None for the default, and for a named record.
    history: ApplyHistoryBest | None = None
    passes: PassContext | None = None  # settings for lowering; None: those of the caller
    record: str = ""  # a line about the record that was named

    @property
    def choice(self) -> str:
        """Line about the record; empty for the default configuration."""
        return self.record if self.history is None else str(self.history.report()[-1])

    @property
    def report(self) -> str:
        """Report of the context that chose it; empty for the default configuration."""
        return self.record if self.history is None else str(self.history.report())

    def context(self) -> AbstractContextManager[object]:
        return nullcontext() if self.passes is None else self.passes

    def build(self, task: Task, *, verify: bool = False) -> Module:
        """Compile, or take from the cache; ``verify`` times the kernel as users call it."""
        from loopwright.driver import build

        name = re.sub(r"\W+", "_", task.name)
        name = name if name[0].isalpha() and not name.startswith("lw_") else f"kernel_{name}"
        with self.context():
            return build(
                self.schedule, self.args, task.target, name=name, verify=verify, cache=True
            )


@dataclass(frozen=True)
class RecordName:
    record: str | None = None  # an id, the beginning of one, ``"best"`` or ``"default"``
    trial: int | None = None
    run: str | None = None

    @property
    def given(self) -> bool:
        return self.record is not None or self.trial is not None


def default_schedule(task: Task) -> ChosenSchedule:
    space = task.config_space
    schedule, args = task.instantiate(space.get(space.default_index))
    return ChosenSchedule(schedule, list(args))


def best_schedule(
    task: Task,
    history: Sequence[str],
    name: RecordName,
    announce: Callable[[str], None],
    *,
    allow_default: bool = False,
    check: bool = True,
    verdicts: bool = True,
    device: str | None = None,
) -> ChosenSchedule | None:
    """Schedule of the best record of some logs, or of the named one; None without logs, and, with
    ``allow_default``, where no record fits.

    ``check`` compares the answer of a record that was never checked with the reference and notes
    the outcome in its log; a wrong one makes way for the next best. With ``verdicts`` the default
    takes the place of a record that is only as fast.
    """
    if name.given and not history:
        raise UsageError("--record and --trial are of a log: name it with --history")
    if name.run is not None and not name.given:
        raise UsageError("--run goes with --trial: it says which run's trial is meant")
    if not history:
        return None
    logs = list(logs_of(history))
    if not any(log.records for log in logs) and (name.given or not allow_default):
        check_has_records(logs[0])
    for log in logs:
        if complaint := log.complaint():
            announce(complaint)
    checker = _Checker(task, logs, announce, device) if check else None
    if name.given:
        return _of_named_record(task, logs, name, checker)
    # From the records, not from the logs: the lines above have said what was skipped.
    context = apply_history_best([log.records for log in logs], verdicts=verdicts)
    if checker is not None:
        checker.check_best(context)
    choice = context.explain(task)
    context.strict = not allow_default and (check or choice.record is None)
    try:
        scheduled = context.apply(task)
    except RecordError as error:
        raise RecordError(f"{', '.join(history)}: {error}") from error
    if scheduled is None:
        announce(f"{', '.join(history)}: {choice}")
        return None
    return ChosenSchedule(scheduled[0], list(scheduled[1]), context)


@dataclass(frozen=True)
class _Checker:
    """Checks records that never were, and notes the outcome in their logs."""

    task: Task
    logs: Sequence[Log]
    announce: Callable[[str], None]
    device: str | None

    def check(self, record: Record, scheduled: tuple[Schedule, list[Tensor]]) -> Record:
        from loopwright.measure import LocalRunner, measure_option, recheck

        option = None
        if self.device is not None:
            option = measure_option(runner=LocalRunner(device=self.device))
        self.announce(f"record {record.id} was never checked: checking it")
        checked = recheck(self.task, record, scheduled, option, self.announce)
        path = next(log.path for log in self.logs if any(other is record for other in log))
        try:
            with Store(path) as store:
                store.append(checked)
        except RecordError as error:
            self.announce(f"the check is not noted: {error}")
        return checked

    def check_best(self, context: ApplyHistoryBest) -> None:
        for _ in range(_CHECKS):
            choice, scheduled = context.choose(self.task)
            if choice.record is None or scheduled is None or choice.checked is Checked.YES:
                return
            if choice.match is Match.DEFAULT:
                return  # that is what will be built
            checked = self.check(choice.record, scheduled)
            context.load([checked])
            if checked.error is not None:
                text = f"{checked.error['kind']}: {checked.error['text']}"
                self.announce(f"record {choice.record.id} is out: {text}")
            elif checked.checked is not Checked.YES:
                self.announce(f"it cannot be checked: {checked.check_reason}")
                return


def _of_named_record(
    task: Task, logs: Sequence[Log], name: RecordName, checker: _Checker | None
) -> ChosenSchedule:
    log = _joined(logs)
    record = _named_record(task, log, name)
    _check_fit(task, record)
    rebuilt = rebuild(log, record)
    # A template may now compute something else.
    recorded = rebuilt.schedule.dag.hash
    schedule, args = task.expression(recorded if recorded in task.dag_hashes else "")
    same = schedule.dag.hash == recorded
    if not same or schedule.arg_ids(args) != rebuilt.schedule.arg_ids(rebuilt.args):
        raise RecordError(
            f"record {record.id} computes {recorded}, and {task} is now {schedule.dag.hash}: its "
            "template has changed; `loopwright records rerun` takes the expression from the log"
        )
    time = "no time" if record.median is None else f"{duration(record.median)} per call in the log"
    chosen = ChosenSchedule(
        rebuilt.schedule, rebuilt.args, None, rebuilt.passes, f"record {record.id} ({time})"
    )
    if checker is None:
        return chosen
    error = record.error
    if error is None and record.checked is not Checked.YES:
        with chosen.context():
            error = checker.check(record, (chosen.schedule, chosen.args)).error
    if error is not None:
        raise RecordError(f"record {record.id} is not used: {error['kind']}: {error['text']}")
    return chosen


def _joined(logs: Sequence[Log]) -> Log:
    if len(logs) == 1:
        return logs[0]
    joined = Log(Path(", ".join(str(log.path) for log in logs)))
    for log in logs:
        joined.records += log.records
        joined.headers += log.headers
        joined.skipped += log.skipped
        for digest, expressions in log.dags.items():
            joined.dags.setdefault(digest, []).extend(expressions)
    return joined


def _named_record(task: Task, log: Log, name: RecordName) -> Record:
    (counts,) = fields_of(log.records, "threads")
    rows = zip(log.records, counts, strict=True)
    of_task = [(record, count) for record, count in rows if task.is_of(record)]
    fit = [record for record, count in of_task if count in (0, _threads(task))]
    for among in (fit, [record for record, _ in of_task]):
        try:
            return choose(log, name.record, trial=name.trial, run=name.run, among=among)
        except RecordError:
            continue  # the message is better where it tells what the log has of other workloads
    try:
        return choose(log, name.record, trial=name.trial, run=name.run)
    except RecordError as error:
        if name.record in WORDS:
            raise
        raise UsageError(str(error)) from error


def _check_fit(task: Task, record: Record) -> None:
    if not task.is_of(record):
        raise UsageError(
            f"record {record.id} is of {title(record)} for {record.kind or 'an unknown target'}, "
            f"not of {task} for {task.kind}; `loopwright records rerun` needs no workload"
        )
    now, then = _threads(task), record.threads
    if then not in (0, now):
        raise UsageError(
            f"record {record.id} was measured with {counted(then, 'thread')}, and this is for "
            f"{counted(now, 'thread')}; add --threads {then}"
        )


def _threads(task: Task) -> int:
    from loopwright.env import usable_cpus

    return threads(task.target.canonical, {}) or len(usable_cpus())


#: Options of a target that default to this machine's.
_OF_MACHINE = frozenset({"mcpu", "mattr", "num_threads"})


@dataclass(frozen=True)
class AppliesHere:
    #: whether a build of its task on this machine, with the record's target options, gets it
    applied: bool
    reason: str  # reason for the answer, in words
    differs: tuple[FieldDifference, ...]  # fields in which record and machine differ
    #: False where the template is not known here: the record was judged by itself, without a test
    #: whether its configuration still makes the same program.
    known: bool


def applies_here(record: Record, records: Iterable[Record]) -> AppliesHere:
    """Whether a record would be applied on this machine, by the rule of `apply_history_best`;
    others of its task among ``records``, those of its log, may take precedence.
    """
    groups = by_task(records).values()
    group = next((g for g in groups if any(other is record for other in g)), [])
    if not record.kind:
        return AppliesHere(False, "the log does not say for what kind of target it is", (), False)
    try:
        # A log names no program to be run, so that of a C compiler is left out.
        target = Target(
            {k: v for k, v in record.target.items() if k not in _OF_MACHINE and k != "cc"}
        )
    except LoopwrightError as exc:
        return AppliesHere(False, f"its target cannot be used here: {exc}", (), False)
    here = Here(target.canonical, {})
    fit = here.fit(record)
    differs = (*fit.refused, *fit.others)
    if reason := refusal(record, fit, failed_checks(group)):
        return AppliesHere(False, reason, differs, True)
    task = task_of(record, target)
    if task is None:
        reason = (
            f"nothing speaks against it ({record.op!r}, which it was tuned as, is not known here)"
        )
        return AppliesHere(True, reason, differs, False)
    choice = apply_history_best(group).explain(task)
    if choice.record is None:
        return AppliesHere(False, "; ".join(choice.reasons), differs, True)
    if choice.record.candidate != record.candidate:
        return AppliesHere(False, f"record {choice.record.id} goes before it", differs, True)
    if choice.match is Match.DEFAULT:
        verdict = choice.against_default
        return AppliesHere(False, f"the default is built instead: it is {verdict}", differs, True)
    if choice.record.id != record.id:
        words = f"a later measurement of it, record {choice.record.id}, counts"
        return AppliesHere(True, words, differs, True)
    return AppliesHere(True, f"{choice.match} match", differs, True)


def task_of(record: Record, target: Target) -> Task | None:
    """Record's task; None where its template is not known here, or takes other arguments."""
    import loopwright.ops  # noqa: F401  (its templates become known)
    from loopwright.task import TASKS

    if record.op not in TASKS:
        return None
    try:
        return create_task(record.op, record.args, target)
    except LoopwrightError:
        return None
