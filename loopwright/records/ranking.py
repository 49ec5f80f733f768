"""The ranking of candidates: one rule, for records of a log and for the trials of a run.

Times of different minutes cannot be compared, since the speed of a machine changes. The ratio to
the default configuration in the same rounds can: a playoff gives it for all that took part, by its
verdict and the rounds that they share with its winner.
"""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import compress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from loopwright.records.bulk import fields_of
from loopwright.records.line import Json
from loopwright.records.record import Checked, Record
from loopwright.records.verdict import Outcome, Verdict, verdict_of

PLAYOFF = "playoff"  # phase of the records of a playoff
_BEHIND = 1.0 + 1e-9  # all others are slower than the winner of a playoff, by this factor at least
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
        """The place of a participant by its seconds per call, never before the winner; one that
        left early has fewer times, those of the first rounds.
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
        """Take in a record; returns the items whose places are known now. ``times`` is empty where
        the candidate failed, and ``verdict`` is as in the record.
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
    The records are those of one setup, in the order of their log.
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


_SEARCHED = int(Basis.SEARCHED)


class Measurement(Protocol):
    """The fields that ranking needs of a record, as :class:`loopwright.records.Record` has them:
    ``candidate``, ``build``, ``program``, ``hardware``, ``ts``, ``usable``, ``wrong``, ``run``,
    ``failed_again``, ``same_as``, ``phase``, ``times``, ``verdict``, ``checked`` and ``median``.
    """

    @property
    def candidate(self) -> str: ...

    @property
    def build(self) -> str: ...

    @property
    def program(self) -> str: ...

    @property
    def hardware(self) -> str: ...

    @property
    def ts(self) -> float: ...

    @property
    def usable(self) -> bool: ...

    @property
    def wrong(self) -> bool: ...

    @property
    def failed_again(self) -> bool: ...

    @property
    def same_as(self) -> str: ...

    @property
    def run(self) -> str: ...

    @property
    def phase(self) -> str: ...

    @property
    def times(self) -> Sequence[float]: ...

    @property
    def verdict(self) -> Mapping[str, Json] | None: ...

    @property
    def checked(self) -> Checked: ...

    @property
    def median(self) -> float | None: ...


_M = TypeVar("_M", bound=Measurement)


class Entry(NamedTuple, Generic[_T]):
    """The measurement by which a candidate is judged."""

    item: _T
    seconds: float  # median seconds of one call
    ts: float  # seconds since the epoch


class Ranking(Generic[_T]):
    """Candidates, the best first, kept while measurements come in.

    Candidates whose answer was checked rank before all others; within each group those that took
    part in a playoff rank first, by their ratio to the default configuration in the same rounds.
    The others follow by their times, which are of different minutes of the machine; of equally fast
    ones the first that was added leads. A candidate that was measured several times is judged by
    its latest playoff, else by its latest measurement: picking its luckiest one would reward noise.
    Its latest measurement stands for it. One that gave a wrong answer at any time is excluded.
    Failed and dropped measurements are not added.

    Example:
        >>> ranking = lw.records.Ranking()
        >>> for name, seconds in [("a", 3e-3), ("b", 1e-3), ("c", 2e-3)]:
        ...     ranking.add(name, name.upper(), seconds)
        >>> print(ranking.top())
        ['B', 'C', 'A']
        >>> ranking.vouch("a")
        >>> ranking.refute("b")
        >>> print(ranking.top(), ranking.fastest(1))
        ['A', 'C'] ['C']
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, Entry[_T]] = {}
        #: Sort keys of candidates, with their times; those that only a search measured, which are
        #: most, are sorted by their seconds and have no entry.
        self._places: dict[Hashable, tuple[Place, float]] = {}
        self._refuted: set[Hashable] = set()
        self._checked: set[Hashable] = set()
        self._best: tuple[Hashable, Entry[_T]] | None = None
        self._stale = False  # the best must be looked for among all
        self._new: list[Hashable] = []  # candidates that may be better than the best

    def add(
        self,
        candidate: Hashable,
        item: _T,
        seconds: float,
        ts: float = 0.0,
        place: Place | None = None,
    ) -> None:
        """Add a measurement; one that is older than the last of its candidate is ignored.

        Args:
            candidate, item: identity of what was measured, and what the ranking returns for it.
            seconds: median seconds of one call, above 0.
            ts: when it was measured; equal times keep the order of the calls.
            place: its place in a playoff; None: it was measured alone.
        """
        before = self._entries.get(candidate)
        if place is not None or candidate in self._places:
            self._take_place(candidate, place or searched(seconds), ts, before)
        if before is not None and ts < before.ts:
            return
        self._entries[candidate] = Entry(item, seconds, ts)
        if before is None:
            self._new.append(candidate)
        else:
            self._stale = True

    def _take_place(
        self, candidate: Hashable, place: Place, ts: float, before: Entry[_T] | None
    ) -> None:
        """Judge a candidate by a place, unless it has one on better evidence, or a later one."""
        current = self._places.get(candidate)
        if current is None and before is not None:
            current = searched(before.seconds), before.ts
        if current is None or (place.basis, -ts) <= (current[0].basis, -current[1]):
            current = place, ts
        self._places[candidate] = current
        self._stale = True

    def vouch(self, candidate: Hashable) -> None:
        """Note that the answer of a candidate was checked and found right."""
        self._checked.add(candidate)
        self._stale = True

    def refute(self, candidate: Hashable) -> None:
        """Exclude a candidate that gave a wrong answer, whatever else was measured of it."""
        self._refuted.add(candidate)
        self._stale = True

    def is_checked(self, candidate: Hashable) -> bool:
        """Whether the candidate was vouched for and not refuted."""
        return candidate in self._checked and candidate not in self._refuted

    @property
    def best(self) -> Entry[_T] | None:
        """The leading candidate; None while there is none."""
        if self._stale:
            self._best = min(self._admitted(), key=self._order, default=None)
            self._stale = False
        else:
            for candidate in self._new:
                named = (candidate, self._entries[candidate])
                ahead = self._best is None or self._order(named) < self._order(self._best)
                if ahead and candidate not in self._refuted:
                    self._best = named
        self._new.clear()
        return None if self._best is None else self._best[1]

    def items(self) -> list[_T]:
        """All items, in no particular order."""
        return [entry.item for _, entry in self._admitted()]

    def top(self, k: int | None = None) -> list[_T]:
        """The first ``k`` items, or all."""
        return _first(self._admitted(), self._order, k)

    def fastest(
        self, k: int | None = None, time: Callable[[Entry[_T]], float] | None = None
    ) -> list[_T]:
        """The ``k`` fastest, or all, checked or not: the candidates for a playoff, by ``time`` of
        an entry, which is its seconds by default.
        """
        seconds = time or (lambda entry: entry.seconds)
        return _first(self._admitted(), lambda named: seconds(named[1]), k)

    def place(self, candidate: Hashable) -> Place | None:
        """Sort key of a candidate; None where it was not added."""
        if candidate in self._places:
            return self._places[candidate][0]
        return searched(self._entries[candidate].seconds) if candidate in self._entries else None

    def _admitted(self) -> list[tuple[Hashable, Entry[_T]]]:
        refuted = self._refuted
        return [named for named in self._entries.items() if named[0] not in refuted]

    def _order(
        self, named: tuple[Hashable, Entry[_T]]
    ) -> tuple[bool, Place | tuple[int, float, float]]:
        """Sort key of candidates, the best first: the one rule."""
        name, entry = named
        current = self._places.get(name)
        place = (_SEARCHED, 0.0, entry.seconds) if current is None else current[0]
        return name not in self._checked, place


def _first(
    named: list[tuple[Hashable, Entry[_T]]],
    order: Callable[[tuple[Hashable, Entry[_T]]], Any],
    k: int | None,
) -> list[_T]:
    """The items of the first ``k``, or of all; equal ones in insertion order."""
    if k is not None and k < len(named):
        named = heapq.nsmallest(k, named, key=order)
    else:
        named = sorted(named, key=order)
    return [entry.item for _, entry in named]


def ranked(records: Iterable[_M], k: int | None = None) -> list[_M]:
    """The ``k`` best records, or all, by the rule of `Ranking`: one for each candidate.

    Where a playoff ran, the best comes from it, whatever single measurements say: the machine may
    have been slower during the playoff.

    The result of a check holds for the compiler whose code was checked: a candidate counts as
    checked when a record of the same compiler says so. A wrong answer excludes all records of the
    candidate by that compiler, and all earlier ones; a kernel that crashed, hung or failed when it
    was measured again excludes those by that compiler. Either also excludes every other candidate
    of which that compiler made the same program, on the same hardware. Records that share the
    samples of another one are left out: that one, with later findings about it, represents them.

    Example:
        >>> records = lw.records.load("matmul.jsonl").records
        >>> print(lw.records.ranked(records, 1) == lw.records.top_k(records, 1))
        True
    """
    records = list(records)
    columns = ("candidate", "build", "ts", "median", "usable", "same_as")
    candidate, build, ts, median, usable, same_as = fields_of(records, *columns)
    builds = list(zip(candidate, build, strict=True))
    out = refuted(records)
    played = places(records)
    ranking: Ranking[int] = Ranking()
    for row in compress(range(len(records)), usable):
        seconds = median[row]
        if seconds is not None and not same_as[row] and not out[row]:
            ranking.add(candidate[row], row, seconds, ts[row], played.get(row))
    right = vouched(records)
    for row in ranking.items():
        if builds[row] in right:
            ranking.vouch(candidate[row])
    return [records[row] for row in ranking.top(k)]


def refuted(records: Iterable[Measurement]) -> list[bool]:
    """For each record, whether a later finding about its candidate excludes it, see `ranked`."""
    records = list(records)
    columns = ("candidate", "build", "ts", "wrong", "failed_again")
    candidate, build, ts, wrong, failed_again = fields_of(records, *columns)
    failed = [a or b for a, b in zip(wrong, failed_again, strict=True)]
    if not any(failed):
        return [False] * len(records)
    builds = list(zip(candidate, build, strict=True))
    bad = set(compress(builds, failed))
    # What hardware a record is of takes a while to find, and matters only where something failed.
    codes = list(zip(*fields_of(records, "program", "build", "hardware"), strict=True))
    bad_codes = {code for code in compress(codes, failed) if code[0]}
    since: dict[str, float] = {}
    for name, moment in compress(zip(candidate, ts, strict=True), wrong):
        since[name] = max(moment, since.get(name, moment))
    rows = zip(builds, codes, candidate, ts, strict=True)
    return [
        built in bad or code in bad_codes or (name in since and moment <= since[name])
        for built, code, name, moment in rows
    ]


def vouched(records: Iterable[Measurement]) -> set[tuple[str, str]]:
    """Candidates whose answer was checked and found right, each with the compiler of that code.

    Example:
        >>> print(len(lw.records.vouched(lw.records.load("matmul.jsonl"))) >= 1)
        True
    """
    columns = fields_of(records, "candidate", "build", "checked", "wrong")
    rows = zip(*columns, strict=True)
    return {
        (candidate, build)
        for candidate, build, checked, wrong in rows
        if checked is Checked.YES and not wrong
    }
