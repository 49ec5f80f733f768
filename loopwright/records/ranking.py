"""Which candidate is best: the one rule, for records of a log and for the trials of a run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from loopwright.records.error_kind import ErrorKind
from loopwright.records.record import Record

_T = TypeVar("_T")


class Entry(NamedTuple, Generic[_T]):
    """The measurement by which a candidate is judged.

    Attributes:
        item: what was measured.
        seconds: median seconds of one call.
        ts: when, in seconds since the epoch.
    """

    item: _T
    seconds: float
    ts: float


class Ranking(Generic[_T]):
    """Candidates by speed, kept while measurements come in.

    A candidate that was measured several times is judged by its latest measurement: to pick its
    luckiest one would reward noise. One that gave a wrong answer at any time is out. Among equally
    fast ones the candidate that came first leads. Failed and dropped measurements are not added.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, Entry[_T]] = {}
        self._refuted: set[Hashable] = set()
        self._best: Entry[_T] | None = None
        self._stale = False  # the best must be looked for among all

    def add(self, candidate: Hashable, item: _T, seconds: float, ts: float = 0.0) -> None:
        """Take in a measurement; one that is older than the last of its candidate is ignored.

        Args:
            candidate: identity of what was measured.
            item: what the ranking gives back.
            seconds: median seconds of one call, above 0.
            ts: when it was measured; equal times keep the order of the calls.
        """
        before = self._entries.get(candidate)
        if before is not None and ts < before.ts:
            return
        entry = self._entries[candidate] = Entry(item, seconds, ts)
        if before is not None:
            self._stale = True
        elif candidate not in self._refuted and _is_faster(entry, self._best):
            self._best = entry

    def refute(self, candidate: Hashable) -> None:
        """Take out a candidate that gave a wrong answer, whatever else was measured of it."""
        self._refuted.add(candidate)
        self._stale = True

    @property
    def best(self) -> Entry[_T] | None:
        """The fastest candidate, or None."""
        if self._stale:
            self._best = min(self._admitted(), key=_speed, default=None)
            self._stale = False
        return self._best

    def top(self, k: int | None = None) -> list[_T]:
        """The ``k`` fastest, or all, fastest first."""
        entries = sorted(self._admitted(), key=_speed)
        return [entry.item for entry in (entries if k is None else entries[: max(k, 0)])]

    def _admitted(self) -> list[Entry[_T]]:
        refuted = self._refuted
        return [entry for name, entry in self._entries.items() if name not in refuted]


def _speed(entry: Entry[_T]) -> float:
    """What candidates are sorted by, the best first."""
    return entry.seconds


def _is_faster(entry: Entry[_T], best: Entry[_T] | None) -> bool:
    return best is None or _speed(entry) < _speed(best)


def ranked(records: Iterable[Record], k: int | None = None) -> list[Record]:
    """The ``k`` best records, or all, by the rule of `Ranking`: one for each candidate.

    Args:
        records: any iterable of records, a :class:`Log` too.
        k: how many at most.
    """
    ranking: Ranking[Record] = Ranking()
    for record in records:
        if record.error is not None and record.error.get("kind") == ErrorKind.WRONG_ANSWER:
            ranking.refute(record.candidate)
        if record.usable and record.median is not None:
            ranking.add(record.candidate, record, record.median, record.ts)
    return ranking.top(k)
