"""Structures of an automatic space in a log: those that were tried, and their speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loopwright.records import Record
from loopwright.task.union import STRUCTURE


@dataclass(frozen=True)
class TriedStructure:
    """One measured structure."""

    name: str
    trials: int  # its records, failed ones and repeated measurements among them
    seconds: float | None  # median time of its fastest record; None where none ran


def structure_of(record: Record) -> str | None:
    """Structure of a record; None where its space has none."""
    name = record.config.get(STRUCTURE)
    return name if isinstance(name, str) else None


def tried_structures(records: Iterable[Record]) -> list[TriedStructure]:
    """Measured structures of one task on one machine, the fastest first, failed ones last."""
    times: dict[str, list[float]] = {}
    trials: dict[str, int] = {}
    for record in records:
        name = structure_of(record)
        if name is None:
            continue
        trials[name] = trials.get(name, 0) + 1
        if record.usable and record.median is not None:
            times.setdefault(name, []).append(record.median)
    found = [
        TriedStructure(n, count, min(times.get(n, ()), default=None)) for n, count in trials.items()
    ]
    return sorted(found, key=lambda s: (s.seconds is None, s.seconds or 0.0))
