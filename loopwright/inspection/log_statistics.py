"""Use of the time of a log, trials per minute, and the structures that were tried.

A record says when it ended, and how long its candidate was built and run. Seconds between two
records are the wall time of the second one; time beyond its running is building, searching and
waiting. Long silences, such as those between two runs, are left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from loopwright.records import Json, Record, fields_of
from loopwright.task import STRUCTURE

#: A silence longer than this, and than many trials, is a pause.
_PAUSE_S, _PAUSE_TRIALS = 120.0, 30.0
#: Intervals of the throughput.
BINS = 48

Floats = npt.NDArray[np.float64]
_Name = TypeVar("_Name", bound=Hashable)


@dataclass(frozen=True)
class TimeSpent:
    wall: float  # all of it, in seconds like all others, pauses left out
    run: float  # running kernels of the search: timing and checking them
    #: measuring again, apart from the search: playoffs, and after a drift of the machine
    again: float
    #: Seconds of all builders divided by their number, since they build at the same time; an
    #: estimate, and at most the rest after running.
    build: float
    rest: float  # searching, instantiating, waiting, writing the log; never negative
    build_total: float  # seconds of building added up over all processes
    pauses: float  # silences that were left out


@dataclass(frozen=True)
class Throughput:
    """Trials in equal intervals of the searching time of a log, without playoffs and pauses."""

    interval: float  # seconds
    successful: tuple[int, ...]  # trials with a time, in each interval
    failed: tuple[int, ...]  # failed trials, in each interval

    @property
    def per_minute(self) -> float:
        seconds = self.interval * len(self.successful)
        return (sum(self.successful) + sum(self.failed)) / seconds * 60.0 if seconds else 0.0


@dataclass(frozen=True)
class _Clock:
    row: npt.NDArray[np.int64]  # index of the record
    wall: Floats  # seconds since the record before
    search: npt.NDArray[np.bool_]  # False for repeated measurements
    failed: npt.NDArray[np.bool_]
    build: Floats  # seconds of building
    run: Floats  # seconds of running
    pause: Floats  # seconds since the record before that were left out


def _clock(records: Iterable[Record]) -> _Clock | None:
    """Records by the time at which they ended; None where no record has a clock."""
    columns = fields_of(records, "ts", "phase", "valid", "build_s", "run_s", "same_as")
    ts, build, run = (np.array(columns[n], np.float64) for n in (0, 3, 4))
    search, failed = np.array([not x for x in columns[1]], bool), ~np.array(columns[2], bool)
    # A record that shares the samples of another one took no time of its own.
    clocked = np.flatnonzero((ts > 0) & np.array([not x for x in columns[5]], bool))
    if not clocked.size:
        return None
    order = clocked[np.argsort(ts[clocked], kind="stable")]
    busy = build[order] + run[order]
    silent = np.diff(ts[order], prepend=ts[order[0]] - busy[0])
    typical = float(np.median(silent))
    paused = silent > max(_PAUSE_S, _PAUSE_TRIALS * typical)
    # After a pause a trial took what it says itself.
    wall = np.where(paused, np.minimum(busy, silent), silent)
    return _Clock(
        order,
        wall,
        search[order],
        failed[order],
        build[order],
        run[order],
        silent - wall,
    )


def time_spent(
    records: Iterable[Record], headers: Sequence[Mapping[str, Json]] = ()
) -> TimeSpent | None:
    """Use of the time of one log's records, which all tasks share; None without a clock."""
    return time_spent_by({"all": list(records)}, headers).get("all")


def time_spent_by(
    groups: Mapping[_Name, Sequence[Record]], headers: Sequence[Mapping[str, Json]] = ()
) -> dict[_Name, TimeSpent]:
    """Use of the time of groups of a log's records: waiting for another is not a group's time."""
    records = [record for group in groups.values() for record in group]
    clock = _clock(records)
    if clock is None:
        return {}
    builders = _builders(records, headers)
    sizes = [len(group) for group in groups.values()]
    owner = np.repeat(np.arange(len(sizes)), sizes)[clock.row]
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(len(sizes) + 1))
    rows = {name: order[ends[at] : ends[at + 1]] for at, name in enumerate(groups)}
    return {name: _spent(clock, own, builders) for name, own in rows.items() if own.size}


def _spent(clock: _Clock, rows: npt.NDArray[np.int64], builders: int) -> TimeSpent:
    searched, repeated = rows[clock.search[rows]], rows[~clock.search[rows]]
    wall = float(clock.wall[rows].sum())
    again = float(clock.wall[repeated].sum())
    run = min(float(clock.run[searched].sum()), wall - again)
    build = min(float(clock.build[searched].sum()) / builders, wall - again - run)
    rest = max(0.0, wall - again - run - build)
    build_total = float(clock.build[rows].sum())
    return TimeSpent(wall, run, again, build, rest, build_total, float(clock.pause[rows].sum()))


def _builders(records: Sequence[Record], headers: Sequence[Mapping[str, Json]]) -> int:
    """Number of processes that built at the same time: from the last header, else the cores."""
    value: Json = None
    for header in headers:
        value = header
        for name in ("measure", "builder", "n_parallel"):
            value = value.get(name) if isinstance(value, Mapping) else None
    if value is None:
        value = records[-1].env.get("cores")
    return value if type(value) is int and value > 0 else 1


def throughput(records: Iterable[Record], bins: int = BINS) -> Throughput | None:
    """Trials in at most ``bins`` equal intervals of the searching time; None without a clock."""
    clock = _clock(records)
    if clock is None or not clock.search.any():
        return None
    at = np.cumsum(np.where(clock.search, clock.wall, 0.0))
    end = float(at[-1])
    if end <= 0:
        return None
    count = max(1, min(bins, int(clock.search.sum()) // 4))
    place = np.minimum((at / end * count).astype(np.int64), count - 1)
    good = np.bincount(place[clock.search & ~clock.failed], minlength=count)
    bad = np.bincount(place[clock.search & clock.failed], minlength=count)
    return Throughput(end / count, tuple(good.tolist()), tuple(bad.tolist()))


@dataclass(frozen=True)
class TriedStructure:
    name: str
    trials: int  # its records, failed ones and repeated measurements among them
    seconds: float | None  # median time of its fastest record; None where none ran


def structure_of(record: Record) -> str | None:
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
    structures = [
        TriedStructure(n, count, min(times.get(n, ()), default=None)) for n, count in trials.items()
    ]
    return sorted(structures, key=lambda s: (s.seconds is None, s.seconds or 0.0))
