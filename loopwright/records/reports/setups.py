"""Records grouped by what decides a time, so that only comparable ones are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from loopwright.records.json_value import Json
from loopwright.records.many import fields_of
from loopwright.records.record import Record


class Setup(NamedTuple):
    """A task on a machine: records of one setup have times that can be compared.

    Attributes:
        task: key of the task.
        hardware: what it ran on, see :func:`loopwright.records.hardware`; empty when not known.
        threads: threads of the kernel; 0 when not known.
    """

    task: str
    hardware: str
    threads: int


def by_setup(records: Iterable[Record]) -> dict[Setup, list[Record]]:
    """Group records by their setup, in order of first appearance.

    Args:
        records: any iterable of records, a :class:`loopwright.records.Log` too.

    Example:
        >>> from loopwright.records.reports.setups import by_setup
        >>> [setup] = by_setup(lw.records.load("matmul.jsonl").records)
        >>> print(setup.task)
        ["matmul",[64,64,64,false,false,"float32"],"llvm"]
    """
    records = list(records)
    groups: dict[Setup, list[Record]] = {}
    columns = fields_of(records, "task", "hardware", "threads")
    for record, setup in zip(records, map(Setup, *columns), strict=True):
        groups.setdefault(setup, []).append(record)
    return groups


def task_text(op: str, args: Sequence[Json]) -> str:
    """A task for people, such as ``matmul(256, 256, 256)``.

    Example:
        >>> from loopwright.records.reports.setups import task_text
        >>> print(task_text("matmul", [256, 256, 256]))
        matmul(256, 256, 256)
    """
    return f"{op}({', '.join(map(str, args))})"
