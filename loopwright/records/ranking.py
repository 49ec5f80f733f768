"""Which candidate is best: the one rule, for records of a log and for the trials of a run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from loopwright.records.record import Checked

_T = TypeVar("_T")


class Measurement(Protocol):
    """What the rule needs of a record; :class:`loopwright.records.Record` is one."""

    @property
    def candidate(self) -> str:
        """Identity of what was measured."""

    @property
    def build(self) -> str:
        """Hash of the compiler that made the code."""

    @property
    def program(self) -> str:
        """Hash of the program that it is; empty when not known."""

    @property
    def hardware(self) -> str:
        """What it ran on."""

    @property
    def ts(self) -> float:
        """When, in seconds since the epoch."""

    @property
    def usable(self) -> bool:
        """It ran to a time, and racing did not drop it."""

    @property
    def wrong(self) -> bool:
        """Its answer was found to be wrong."""

    @property
    def failed_again(self) -> bool:
        """It had a time before and failed when it was measured again."""

    @property
    def same_as(self) -> str:
        """Not empty where it shares the samples of another measurement."""

    @property
    def checked(self) -> Checked:
        """Whether its answer was compared with the reference."""

    @property
    def median(self) -> float | None:
        """Median seconds of one call; None when it failed."""


_M = TypeVar("_M", bound=Measurement)


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
    """Candidates, the best first, kept while measurements come in.

    Candidates whose answer was checked go before all others; among each of the two the faster one
    leads, and among equally fast ones the one that came first. A candidate that was measured
    several times is judged by its latest measurement: to pick its luckiest one would reward noise.
    One that gave a wrong answer at any time is out. Failed and dropped measurements are not added.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, Entry[_T]] = {}
        self._refuted: set[Hashable] = set()
        self._checked: set[Hashable] = set()
        self._best: tuple[Hashable, Entry[_T]] | None = None
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
        self._entries[candidate] = Entry(item, seconds, ts)
        if before is None:
            self._contend(candidate)
        else:
            self._stale = True

    def vouch(self, candidate: Hashable) -> None:
        """Note that the answer of a candidate was checked and found right."""
        self._checked.add(candidate)
        self._stale = True

    def refute(self, candidate: Hashable) -> None:
        """Take out a candidate that gave a wrong answer, whatever else was measured of it."""
        self._refuted.add(candidate)
        self._stale = True

    def is_checked(self, candidate: Hashable) -> bool:
        """True when the candidate was vouched for and not refuted."""
        return candidate in self._checked and candidate not in self._refuted

    @property
    def best(self) -> Entry[_T] | None:
        """The candidate that leads, or None."""
        if self._stale:
            self._best = min(self._admitted(), key=self._order, default=None)
            self._stale = False
        return None if self._best is None else self._best[1]

    def top(self, k: int | None = None) -> list[_T]:
        """The first ``k``, or all."""
        return _items(sorted(self._admitted(), key=self._order), k)

    def fastest(self, k: int | None = None) -> list[_T]:
        """The ``k`` fastest, or all, checked or not: those of which a playoff picks the best."""
        return _items(sorted(self._admitted(), key=lambda named: named[1].seconds), k)

    def _contend(self, candidate: Hashable) -> None:
        """Let a new candidate take the lead where it is ahead."""
        if candidate in self._refuted or candidate not in self._entries or self._stale:
            return
        named = (candidate, self._entries[candidate])
        if self._best is None or self._order(named) < self._order(self._best):
            self._best = named

    def _admitted(self) -> list[tuple[Hashable, Entry[_T]]]:
        refuted = self._refuted
        return [named for named in self._entries.items() if named[0] not in refuted]

    def _order(self, named: tuple[Hashable, Entry[_T]]) -> tuple[bool, float]:
        """What candidates are sorted by, the best first: the one rule."""
        name, entry = named
        return name not in self._checked, entry.seconds


def _items(named: list[tuple[Hashable, Entry[_T]]], k: int | None) -> list[_T]:
    return [entry.item for _, entry in (named if k is None else named[: max(k, 0)])]


def ranked(records: Iterable[_M], k: int | None = None) -> list[_M]:
    """The ``k`` best records, or all, by the rule of `Ranking`: one for each candidate.

    What a check found holds for the compiler whose code was checked: a candidate counts as checked
    when a record of the same compiler says so. A wrong answer takes out all records of the
    candidate by that compiler, and all earlier ones; a kernel that crashed, hung or failed when it
    was measured again takes out those by that compiler. Either takes out every other candidate of
    which that compiler made the same program, on the same hardware. Records that share the samples
    of another one are left out: that one stands for them, and what is found out about it later.

    Args:
        records: any iterable of records, a :class:`Log` too.
        k: how many at most.
    """
    records = list(records)
    failures = [r for r in records if r.wrong or r.failed_again]
    refuted = {(r.candidate, r.build) for r in failures}
    programs = {(r.program, r.build, r.hardware) for r in failures if r.program}
    since: dict[str, float] = {}
    for record in records:
        if record.wrong:
            since[record.candidate] = max(record.ts, since.get(record.candidate, record.ts))
    right = vouched(records)
    ranking: Ranking[_M] = Ranking()
    for record in records:
        made = (record.candidate, record.build)
        stands = record.candidate not in since or record.ts > since[record.candidate]
        if not record.usable or record.median is None or record.same_as:
            continue
        if made in refuted or not stands:
            continue
        if programs and (record.program, record.build, record.hardware) in programs:
            continue
        ranking.add(record.candidate, record, record.median, record.ts)
    for record in ranking.top():
        if (record.candidate, record.build) in right:
            ranking.vouch(record.candidate)
    return ranking.top(k)


def vouched(records: Iterable[_M]) -> set[tuple[str, str]]:
    """Candidates whose answer was checked and found right, each with the compiler of that code."""
    return {(r.candidate, r.build) for r in records if r.checked is Checked.YES and not r.wrong}
