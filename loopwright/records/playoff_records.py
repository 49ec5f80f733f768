"""The playoffs of a log: which records are of one, and the places of those that took part.

Times of different minutes cannot be compared, since the speed of a machine changes. The ratio to
the default configuration in the same rounds can: a playoff gives it for all that took part, by its
verdict and the rounds that they share with its winner.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from loopwright.records.bulk import fields_of
from loopwright.records.line import Json
from loopwright.records.record import Record
from loopwright.records.verdict import Outcome, Verdict, verdict_of

PLAYOFF = "playoff"  # phase of the records of a playoff
#: All others are slower than the winner of a playoff, by this factor at least.
_BEHIND = 1.0 + 1e-9
_T = TypeVar("_T")
#: Fields of a record that `PlayoffReader.add` takes.
_TAKEN = ("candidate", "run", "times", "verdict", "ts")


class Basis(IntEnum):
    """Evidence for the place of a candidate; lower values rank first."""

    VERIFIED = 0  # the ratio to the default configuration in the rounds of a playoff
    PLAYED = 1  # the rounds of a playoff without the default
    SEARCHED = 2  # its time when it was measured alone, as in the search
    CUT_OFF = 3  # its time in a playoff that was cut off before it had a winner


class Place(NamedTuple):
    """Sort key of candidates, the best first."""

    basis: Basis
    #: Minus the time of a playoff without the default, of which the latest counts; else 0.
    since: float
    value: float  # ratio to the default, or to the winner; else seconds


def searched(seconds: float) -> Place:
    return Place(Basis.SEARCHED, 0.0, seconds)


@dataclass(frozen=True)
class Played:
    winner: Sequence[float]  # seconds per call, one for each round
    verdict: Verdict | None  # the winner against the default; None: unreadable
    ts: float = 0.0  # seconds since the epoch

    def place(self, times: Sequence[float]) -> Place:
        """The place of a participant by its seconds per call, never before the winner.

        A participant that left early has fewer times, those of the first rounds.
        """
        rounds = min(len(times), len(self.winner))
        behind = statistics.median(times[:rounds]) / statistics.median(self.winner[:rounds])
        behind = 1.0 if tuple(times) == tuple(self.winner) else max(_BEHIND, behind)
        if self.speedup is None:
            return Place(Basis.PLAYED, -self.ts, behind)
        return Place(Basis.VERIFIED, 0.0, behind / self.speedup)

    @property
    def speedup(self) -> float | None:
        """Speedup of the winner over the default; None: not compared."""
        verdict = self.verdict
        if verdict is None or verdict.outcome is Outcome.NOT_COMPARED or not verdict.gain > -1.0:
            return None
        return 1.0 + verdict.gain


@dataclass
class _Group(Generic[_T]):
    number: int
    candidates: set[str] = field(default_factory=set)
    waiting: list[tuple[_T, Sequence[float]]] = field(default_factory=list)
    played: Played | None = None


class PlayoffReader(Generic[_T]):
    """Finds the places of the records of playoffs, given one by one in the order of their log.

    A playoff writes its records one after the other, one of each candidate; those with its verdict,
    the winner's and those of equal code, come last.
    """

    def __init__(self) -> None:
        self._groups: dict[str, _Group[_T]] = {}
        self._left: list[tuple[_T, Sequence[float]]] = []

    def add(
        self, item: _T, candidate: str, run: str, times: Sequence[float], verdict: object, ts: float
    ) -> list[tuple[_T, Place]]:
        """Take in a record; returns the items whose places are known now.

        ``item`` is returned with its place; ``times`` is empty where the candidate failed, and
        ``verdict`` is as in the record.
        """
        group = self._groups.setdefault(run, _Group(0))
        if candidate in group.candidates or (verdict is None and group.played is not None):
            self._left += group.waiting
            group = self._groups[run] = _Group(group.number + 1)
        group.candidates.add(candidate)
        if times:
            group.waiting.append((item, times))
        if verdict is not None and group.played is None and times:
            group.played = Played(times, verdict_of(verdict), ts)
        if group.played is None:
            return []
        placed = [(waiting, group.played.place(seconds)) for waiting, seconds in group.waiting]
        group.waiting.clear()
        return placed

    def number(self, run: str) -> int:
        """Number of the playoff that a run's latest record belongs to, from 0."""
        return self._groups[run].number

    def cut_off(self) -> list[tuple[_T, Place]]:
        """The items of playoffs that have no winner yet."""
        groups = [self._left, *(group.waiting for group in self._groups.values())]
        return [
            (item, Place(Basis.CUT_OFF, 0.0, statistics.median(times)))
            for group in groups
            for item, times in group
        ]


def is_of_playoff(phase: str, verdict: Json) -> bool:
    return phase == PLAYOFF or verdict is not None


def places(records: Sequence[object]) -> dict[int, Place]:
    """The places of records that took part in playoffs, by row; all others were measured alone. The
    records are in the order of their log.
    """
    phases, verdicts = fields_of(records, "phase", "verdict")
    kinds = zip(phases, verdicts, strict=True)
    rows = [row for row, kind in enumerate(kinds) if is_of_playoff(*kind)]
    reader: PlayoffReader[int] = PlayoffReader()
    ranks: dict[int, Place] = {}
    columns = fields_of([records[row] for row in rows], *_TAKEN)
    for row, *own in zip(rows, *columns, strict=True):
        ranks.update(reader.add(row, *own))
    return {**ranks, **dict(reader.cut_off())}


def playoffs(records: Sequence[Record]) -> dict[str, tuple[str, int]]:
    """The playoff of each record of one, by the record's id: its run, and its number in the run.

    The candidates of one playoff were sampled in turns. The records are those of one setup, in the
    order of their log.
    """
    phases, verdicts = fields_of(records, "phase", "verdict")
    reader: PlayoffReader[None] = PlayoffReader()
    numbers = {}
    for record, phase, verdict in zip(records, phases, verdicts, strict=True):
        if is_of_playoff(phase, verdict):
            reader.add(None, *(getattr(record, name) for name in _TAKEN))
            numbers[record.id] = (record.run, reader.number(record.run))
    return numbers


def ratios(records: Iterable[Record]) -> dict[str, float]:
    """Time of each candidate divided by that of the default configuration in the same rounds, from
    the latest playoff that compared the two.
    """
    records = list(records)
    verified = [(row, p.value) for row, p in places(records).items() if p.basis is Basis.VERIFIED]
    verified.sort(key=lambda found: records[found[0]].ts)
    return {records[row].candidate: value for row, value in verified}
