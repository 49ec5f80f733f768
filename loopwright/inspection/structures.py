"""The structures of an automatic space as a log has them: which were tried, how fast each is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loopwright.records import Record
from loopwright.task.union import STRUCTURE


@dataclass(frozen=True)
class TriedStructure:
    """One structure that was measured.

    Attributes:
        name: its name.
        trials: its records, failed ones and repeated measurements among them.
        seconds: the median time of its fastest record; None where none ran.
    """

    name: str
    trials: int
    seconds: float | None


def structure_of(record: Record) -> str | None:
    """The structure that a record is of; None where its space has none."""
    name = record.config.get(STRUCTURE)
    return name if isinstance(name, str) else None


def tried_structures(records: Iterable[Record]) -> list[TriedStructure]:
    """The structures that were measured, the fastest first, those that never ran last.

    Args:
        records: those of one task on one machine.
    """
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
