"""Schedule of a record: the template under its configuration, or its trace replayed."""

from __future__ import annotations

from collections.abc import Mapping

from loopwright.errors import LoopwrightError
from loopwright.records import Json, Record, canonical_json
from loopwright.task.task import Task
from loopwright.task.template import Scheduled


class Refused(Exception):
    """Error of a record that cannot be applied; the text says why."""


def other_knobs(task: Task, config: Mapping[str, Json]) -> str:
    """Difference between the knobs of a configuration and those of a task; empty where none."""
    knobs = task.config_space.knobs
    unknown = ", ".join(sorted(set(config) - set(knobs)))
    missing = ", ".join(sorted(set(knobs) - set(config)))
    parts = [f"{unknown} too many" if unknown else "", f"{missing} missing" if missing else ""]
    said = ", ".join(filter(None, parts))
    return f"it has other knobs than the template now ({said})" if said else ""


def instantiate(task: Task, record: Record) -> tuple[Scheduled, bool]:
    """The schedule of a record, and whether its trace was replayed in place of the template."""
    if task.automatic or record.task != task.alias:
        return _replayed(task, record), record.task != task.alias
    if not record.trace and (differing := other_knobs(task, record.config)):
        raise Refused(f"{differing}, and no trace")
    try:
        schedule, tensors = task.instantiate(record.config)
    except LoopwrightError as exc:
        raise Refused(f"its configuration fails now: {exc}") from exc
    if record.dag and schedule.dag.hash != record.dag:
        raise Refused("the template computes another tensor expression now")
    if not record.dag or not record.trace:
        return (schedule, tensors), False
    if canonical_json(schedule.trace_json()) == canonical_json(record.trace):
        return (schedule, tensors), False
    return _on_expression((schedule, tensors), record), True


def _replayed(task: Task, record: Record) -> Scheduled:
    """Replay the trace of a record on the expression of a task."""
    if record.dag not in task.dag_hashes:
        raise Refused("it is of another tensor expression")
    return _on_expression(task.expression(record.dag), record)


def _on_expression(scheduled: Scheduled, record: Record) -> Scheduled:
    """Replay the trace of a record on the expression of another schedule, with its arguments."""
    from loopwright.schedule import replay

    schedule, tensors = scheduled
    try:
        fresh = replay(schedule.dag, record.trace)
        return fresh, [fresh.tensor(a) for a in schedule.arg_ids(tensors)]
    except LoopwrightError as exc:
        raise Refused(f"its trace does not replay: {exc}") from exc
