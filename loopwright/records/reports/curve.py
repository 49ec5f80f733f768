"""The best time so far, trial after trial: what a run brought, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from loopwright.records.json_value import Json
from loopwright.records.many import fields_of
from loopwright.records.query import measured
from loopwright.records.ranking import ranked, refuted
from loopwright.records.record import Record

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Step:
    """A trial that was better than all before.

    Attributes:
        number: which trial it was, from 1.
        clock: seconds from the start of the first run until it ended; breaks between runs are left
            out.
        seconds: median seconds of one call.
        low: the fastest of its timed windows, in seconds of a call.
        high: the slowest.
        record: its record.
    """

    number: int
    clock: float
    seconds: float
    low: float
    high: float
    record: Record


@dataclass(frozen=True, eq=False)
class Curve:
    """Trials in the order of the log, and the best of them so far.

    Attributes:
        clock: for each trial, the seconds from the start of the first run until it ended; breaks
            between runs are left out, and so is the time before the first trial where the log does
            not say when its run began.
        seconds: for each trial, the median seconds of one call; NaN for one that failed.
        best: for each trial, the best until then, it included; NaN before the first that counts.
        counts: for each trial, whether it may be best: it did not fail, racing did not drop it, and
            its candidate was not found to be wrong later.
        runs: for each trial, the number of its run, from 0 in order of appearance.
        steps: the trials that were better than all before.
        final: the record that is best by the one rule (:func:`loopwright.records.ranked`), after
            candidates were measured again; None where no record may be best. Its median may lie
            above the end of ``best``, since the fastest of many single measurements was lucky, too.
    """

    clock: Floats
    seconds: Floats
    best: Floats
    counts: npt.NDArray[np.bool_]
    runs: npt.NDArray[np.int64]
    steps: tuple[Step, ...]
    final: Record | None

    def __len__(self) -> int:
        return len(self.clock)


def best_so_far(records: Iterable[Record], headers: Sequence[Mapping[str, Json]] = ()) -> Curve:
    """The curve of one task on one machine; runs are joined in the order of the log.

    Failed and dropped trials are in it and are never the best, as are trials of candidates that
    were found to be wrong, or crashed, later. Repeated measurements (phases) are no trials, nor are
    configurations that are the program of another one and share its result.

    Args:
        records: those of one `Setup`; times of different tasks make no curve.
        headers: of the log; they say when a run began. Without them a run begins when the building
            of its first trial did.

    Example:
        >>> from loopwright.records.reports.curve import best_so_far
        >>> curve = best_so_far(lw.records.load("matmul.jsonl").records)
        >>> print(len(curve), curve.steps[0].record.trial, curve.best[-1] <= curve.best[0])
        6 0 True
    """
    records = list(records)
    bad = {id(record) for record in compress(records, refuted(records))}
    trials = measured(records, again=False)
    (usable,) = fields_of(trials, "usable")
    may_be_best = [own and id(r) not in bad for r, own in zip(trials, usable, strict=True)]
    counts = np.array(may_be_best, dtype=np.bool_)
    medians, times = fields_of(trials, "median", "times")
    seconds = np.array([math.nan if m is None else m for m in medians], dtype=np.float64)
    candidates = np.where(counts, seconds, np.inf)
    best = np.minimum.accumulate(candidates)
    before = np.concatenate(([np.inf], best[:-1]))
    clock, runs = _clock(trials, headers)
    steps = tuple(
        Step(
            row + 1, float(clock[row]), float(seconds[row]), min(times[row]), max(times[row]),
            trials[row],
        )
        for row in np.flatnonzero(candidates < before).tolist()
    )  # fmt: skip
    best = np.where(np.isinf(best), np.nan, best)
    return Curve(clock, seconds, best, counts, runs, steps, next(iter(ranked(records, 1)), None))


def _clock(
    trials: Sequence[Record], headers: Sequence[Mapping[str, Json]]
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """When each trial ended, in seconds of running, and the number of its run."""
    ends, runs, build_s, run_s = fields_of(trials, "ts", "run", "build_s", "run_s")
    began = _beginnings(headers)
    numbers: dict[str, int] = {}
    last: dict[str, float] = {}
    clock = np.zeros(len(trials))
    total = 0.0
    for row, (end, run) in enumerate(zip(ends, runs, strict=True)):
        if run not in numbers:
            numbers[run] = len(numbers)
            start = end - build_s[row] - run_s[row]
            last[run] = min(began.get(run, start), end)
        # A clock that was set back, or a line that came late, takes no time.
        total += max(0.0, end - last[run])
        last[run] = max(end, last[run])
        clock[row] = total
    return clock, np.array([numbers[run] for run in runs], dtype=np.int64)


def _beginnings(headers: Sequence[Mapping[str, Json]]) -> dict[str, float]:
    """When each run began, where its header says so; the first header of a run counts."""
    found: dict[str, float] = {}
    for header in headers:
        run, ts = header.get("run"), header.get("ts")
        if isinstance(run, str) and isinstance(ts, int | float) and 0 < ts < math.inf:
            found.setdefault(run, float(ts))
    return found
