"""The ranking of candidates: one rule, for records of a log and for the trials of a run."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from loopwright.records.bulk import fields_of
from loopwright.records.line import Json
from loopwright.records.playoff_records import Basis, Place, places, searched
from loopwright.records.record import Checked

_T = TypeVar("_T")
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
        ...
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
        >>> records = lw.records.load("matmul.jsonl").records
        >>> print(len(lw.records.vouched(records)) >= 1)
        True
    """
    columns = fields_of(records, "candidate", "build", "checked", "wrong")
    rows = zip(*columns, strict=True)
    return {
        (candidate, build)
        for candidate, build, checked, wrong in rows
        if checked is Checked.YES and not wrong
    }
