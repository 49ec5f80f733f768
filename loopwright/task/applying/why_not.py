"""Reasons why ``apply_history_best`` may not use records of a log here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopwright.errors import LoopwrightError, TargetError
from loopwright.records import Json, Record, fields_of, once_for_equal
from loopwright.task.applying.fit import Here
from loopwright.task.applying.judging import of_other_hardware, unusable
from loopwright.task.applying.replaying import other_knobs
from loopwright.task.task import TargetLike, Task, create_task, resolve_target
from loopwright.task.template import TASKS


def why_not_applied(
    records: Sequence[Record], target: TargetLike = None, any_hardware: bool = False
) -> list[str]:
    """Give the reason why each record cannot be applied here; empty where it may be.

    The templates are asked for their knobs and are not run under the records, so that a template
    may still refuse a configuration when it is built. The best of several records is not
    chosen either: ``apply_history_best(...).explain(task)`` does that.

    Args:
        records: such as ``loopwright.records.load(path).records``, of loopwright or of AutoTVM.
        target: the target to build for; None: the kind that a record names, on this machine.
        any_hardware: as of ``apply_history_best``.

    Returns:
        One text for each record, in order.

    Example:
        >>> from loopwright import records
        >>> from loopwright.task import why_not_applied
        >>> line = records.Record("key", "no/such", [16], {"kind": "llvm"}, {}, (0.5,))
        >>> why_not_applied([line])
        ["the template 'no/such' is not registered; import the file that defines it"]
    """
    known: dict[str, Here | None] = {}

    def hardware(record: Record) -> str:
        if record.kind not in known:
            known[record.kind] = _here(record, target)
        here = known[record.kind]
        return of_other_hardware(here.fit(record)) if here is not None else ""

    tasks = once_for_equal(lambda record: _task_of(record, target), records, ("task",))
    foreign = once_for_equal(hardware, records, ("target", "env", "threads", "build"))
    usable, configs = fields_of(records, "usable", "config")
    columns = zip(records, tasks, foreign, usable, configs, strict=True)
    return [
        _reason(record, task, "" if any_hardware else other, ok, config)
        for record, task, other, ok, config in columns
    ]


def _reason(
    record: Record, task: Task | str, hardware: str, usable: bool, config: Mapping[str, Json]
) -> str:
    """Reason why one record cannot be applied, the plainest first."""
    if not usable:
        return unusable(record)
    return task if isinstance(task, str) else hardware or _misfit(record, task, config)


def _task_of(record: Record, target: TargetLike) -> Task | str:
    """The task that a record would be applied to, or the reason why there is none."""
    if record.op not in TASKS:
        return f"the template {record.op!r} is not registered; import the file that defines it"
    try:
        return create_task(record.op, record.args, target if target is not None else record.kind)
    except LoopwrightError as exc:
        return f"there is no such task: {exc}"


def _here(record: Record, target: TargetLike) -> Here | None:
    """Target and machine to compare with; None for an unknown kind, which `_task_of` reports."""
    try:
        return Here(resolve_target(record.kind if target is None else target).canonical, {})
    except TargetError:
        return None


def _misfit(record: Record, task: Task, config: Mapping[str, Json]) -> str:
    """Reason why a record's knobs are not those of the template now; empty where they are."""
    if (differing := other_knobs(task, config)) and not record.trace:
        return f"{differing}, and no trace"
    try:
        task.config_space.entity_of(config)
    except LoopwrightError as exc:
        return f"its configuration fails now: {exc}"
    return ""
