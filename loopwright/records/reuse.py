"""What a record of the past is worth to a run of today: the one rule, as a pure function."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from loopwright.records.record import Record

#: Parts of a canonical target that name hardware or threads, which are compared on their own.
_ELSEWHERE = frozenset({"mcpu", "mattr", "num_threads"})


class Standing(enum.Enum):
    """How a record stands to a run."""

    #: Measured already: counts as a trial and is never measured again.
    COUNTS = "counts"
    #: Same space, other compiler or hardware: trains the model; its best are measured again.
    PRETRAINS = "pretrains"
    #: Same task, other space: its trace may be applied or tried, and never counts.
    TRACE_ONLY = "trace only"
    #: Another task, target or number of threads: says nothing.
    UNRELATED = "unrelated"


def already_measured(
    record: Record,
    *,
    task_key: str,
    space: str,
    build: str,
    hardware: str,
    threads: int,
    target: Mapping[str, Any] | None = None,
) -> Standing:
    """Decide what a record is worth under the conditions of a run.

    Args:
        record: The record of the past.
        task_key: Key of the task that is tuned now.
        space: Hash of its space.
        build: Hash of the compiler, :func:`loopwright.records.build_hash`.
        hardware: Hardware of now, :func:`loopwright.records.hardware`.
        threads: Threads of the kernel now, :func:`loopwright.records.threads`.
        target: Canonical target of now, whose options (such as fast math) must be equal; None
            compares no more than its kind, which is part of the key.

    Returns:
        The standing; the seed never matters.
    """
    if record.task != task_key or record.threads != threads:
        return Standing.UNRELATED
    if target is not None and _options(record.target) != _options(target):
        return Standing.UNRELATED
    if record.space != space:
        return Standing.TRACE_ONLY
    if record.build != build or record.hardware != hardware:
        return Standing.PRETRAINS
    return Standing.COUNTS


def explain(
    record: Record,
    *,
    task_key: str,
    space: str,
    build: str,
    hardware: str,
    threads: int,
    target: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Say in words what keeps a record from counting; empty when it counts.

    Arguments as for :func:`already_measured`.
    """
    pairs = [
        ("task", record.task, task_key),
        ("threads", record.threads, threads),
        ("space", record.space, space),
        ("build", record.build, build),
        ("hardware", record.hardware, hardware),
    ]
    if target is not None:
        pairs.insert(1, ("target", _options(record.target), _options(target)))
    return tuple(
        f"{name} differs: the record has {_show(then)}, this run {_show(now)}"
        for name, then, now in pairs
        if then != now
    )


def _options(target: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in target.items() if name not in _ELSEWHERE}


def _show(value: object) -> str:
    return "nothing" if value in ("", 0) else str(value)
