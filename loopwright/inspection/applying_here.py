"""Whether a record would be applied here: the answer of `apply_history_best` for one record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loopwright.errors import LoopwrightError
from loopwright.history import (
    FieldDifference,
    Here,
    Match,
    apply_history_best,
    failed_checks,
    refusal,
)
from loopwright.records import Record, by_task
from loopwright.target import Target
from loopwright.task import Task, create_task

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
