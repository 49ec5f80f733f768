"""The playoffs of a log: which records are of one, and how it places those that took part.

Times of different minutes cannot be compared, since the speed of a machine changes. What can be is
the ratio to the default configuration in the same rounds: a playoff has it for everyone that took
part, by its verdict and the rounds that they share with its winner.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from loopwright.errors import RecordError
from loopwright.records.json_value import Json
from loopwright.records.many import fields_of
from loopwright.records.record import Record
from loopwright.records.verdict import Outcome, Verdict

#: Phase of the records of a playoff.
PLAYOFF = "playoff"
#: Whoever is not the winner of a playoff is behind it, by this factor at least.
_BEHIND = 1.0 + 1e-9
_T = TypeVar("_T")
#: What `PlayoffReader.add` takes of a record.
_TAKEN = ("candidate", "run", "times", "verdict", "ts")


class Basis(IntEnum):
    """Evidence for the place of a candidate; the lower ones go first."""

    #: The ratio to the default configuration in the rounds of a playoff.
    VERIFIED = 0
    #: The rounds of a playoff without the default.
    PLAYED = 1
    #: Its time when it was measured alone, as in the search.
    SEARCHED = 2
    #: Its time in a playoff that was cut off before it had a winner.
    CUT_OFF = 3


class Place(NamedTuple):
    """Sort key of candidates, the best first.

    Attributes:
        basis: what it rests on.
        since: of playoffs without the default the latest counts: minus its time; else 0.
        value: ratio to the default, or to the winner; else seconds.
    """

    basis: Basis
    since: float
    value: float


def searched(seconds: float) -> Place:
    """The place of a candidate that was measured alone."""
    return Place(Basis.SEARCHED, 0.0, seconds)


@dataclass(frozen=True)
class Played:
    """A playoff that came to its end.

    Attributes:
        winner: seconds per call of its winner, one for each round.
        verdict: how the winner compares with the default; None where that cannot be read.
        ts: when it was, seconds since the epoch.
    """

    winner: Sequence[float]
    verdict: Verdict | None
    ts: float = 0.0

    def place(self, times: Sequence[float]) -> Place:
        """The place of one that took part: nobody is before the winner.

        Args:
            times: its seconds per call. One that left early has fewer, of the first rounds.
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
    """The records of one playoff so far."""

    number: int
    candidates: set[str] = field(default_factory=set)
    waiting: list[tuple[_T, Sequence[float]]] = field(default_factory=list)
    played: Played | None = None


class PlayoffReader(Generic[_T]):
    """Takes in the records of playoffs one by one, in the order of their log.

    A playoff writes its records one after the other, one of each candidate: those with its verdict,
    the winner's and those of equal code, come last.
    """

    def __init__(self) -> None:
        self._groups: dict[str, _Group[_T]] = {}
        self._left: list[tuple[_T, Sequence[float]]] = []

    def add(
        self,
        item: _T,
        candidate: str,
        run: str,
        times: Sequence[float],
        verdict: object,
        ts: float,
    ) -> list[tuple[_T, Place]]:
        """Take in a record.

        Args:
            item: what the reader gives back.
            candidate: of the record.
            run: of the record.
            times: its times; none where it failed.
            verdict: as the record has it; None for none.
            ts: when it was measured.

        Returns:
            The items of which the place is known now.
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
        known = [(one, group.played.place(own)) for one, own in group.waiting]
        group.waiting.clear()
        return known

    def number(self, run: str) -> int:
        """Number of the playoff that a run's latest record is of, from 0."""
        return self._groups[run].number

    def cut_off(self) -> list[tuple[_T, Place]]:
        """The items of playoffs that have no winner yet."""
        groups = [self._left, *(group.waiting for group in self._groups.values())]
        return [
            (item, Place(Basis.CUT_OFF, 0.0, statistics.median(times)))
            for group in groups
            for item, times in group
        ]


def verdict_of(said: object) -> Verdict | None:
    """The verdict that a record holds; None where it has none, or one that cannot be read, which
    `records validate` names."""
    try:
        return None if said is None else Verdict.from_json(said)  # type: ignore[arg-type]
    except RecordError:
        return None


def is_of_playoff(phase: str, verdict: Json) -> bool:
    """Whether a record is one of a playoff."""
    return phase == PLAYOFF or verdict is not None


def places(records: Sequence[object]) -> dict[int, Place]:
    """The places of what took part in playoffs, by row; all others were measured alone.

    Args:
        records: in the order of their log.
    """
    phases, verdicts = fields_of(records, "phase", "verdict")
    kinds = zip(phases, verdicts, strict=True)
    rows = [row for row, (phase, said) in enumerate(kinds) if phase == PLAYOFF or said is not None]
    reader: PlayoffReader[int] = PlayoffReader()
    found: dict[int, Place] = {}
    columns = fields_of([records[row] for row in rows], *_TAKEN)
    for row, *own in zip(rows, *columns, strict=True):
        found.update(reader.add(row, *own))
    return {**found, **dict(reader.cut_off())}


def playoffs(records: Sequence[Record]) -> dict[str, tuple[str, int]]:
    """The playoff of each record that is of one, by the record's id: the run, and the number of its
    playoff. The candidates of one playoff were sampled in turns.

    Args:
        records: those of one setup, in the order of their log.
    """
    phases, verdicts = fields_of(records, "phase", "verdict")
    reader: PlayoffReader[None] = PlayoffReader()
    found = {}
    for record, phase, verdict in zip(records, phases, verdicts, strict=True):
        if is_of_playoff(phase, verdict):
            reader.add(None, *(getattr(record, name) for name in _TAKEN))
            found[record.id] = (record.run, reader.number(record.run))
    return found


def ratios(records: Iterable[Record]) -> dict[str, float]:
    """Time of each candidate divided by the default configuration's in the rounds of the latest
    playoff that compared it with that.

    Example:
        >>> from loopwright.records.playoffs import ratios
        >>> records = lw.records.load("matmul.jsonl").records
        >>> print(lw.records.best(records).candidate in ratios(records))
        True
    """
    records = list(records)
    known = [(row, p.value) for row, p in places(records).items() if p.basis is Basis.VERIFIED]
    known.sort(key=lambda found: records[found[0]].ts)
    return {records[row].candidate: value for row, value in known}
