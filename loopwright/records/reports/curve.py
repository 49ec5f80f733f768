"""The best time so far, trial after trial: the progress of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from loopwright.records.bulk import fields_of
from loopwright.records.line import Json
from loopwright.records.query import measured
from loopwright.records.ranking import ranked, refuted
from loopwright.records.record import Record

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Improvement:
    """A trial that was better than all before."""

    number: int  # number of the trial, from 1
    #: Seconds from the start of the first run to its end; breaks between runs are left out.
    clock: float
    seconds: float  # median seconds of one call
    low: float  # seconds per call in its fastest window
    high: float  # seconds per call in its slowest window
    record: Record


@dataclass(frozen=True, eq=False)
class Curve:
    """Trials in the order of the log, one element of each array a trial, and the best of them."""

    #: Seconds from the start of the first run to the end of the trial, without breaks between runs,
    #: and without the time before the first trial where the log does not say when its run began.
    clock: Floats
    seconds: Floats  # median seconds of one call; NaN for a failure
    best: Floats  # smallest ``seconds`` so far; NaN before the first that counts
    #: Whether it may be best: it did not fail, racing did not drop it, and its candidate was not
    #: found to be wrong later.
    counts: npt.NDArray[np.bool_]
    runs: npt.NDArray[np.int64]  # number of its run, from 0 in order of appearance
    steps: tuple[Improvement, ...]  # trials that were better than all before
    #: The best record by the one rule (:func:`loopwright.records.ranked`), after candidates were
    #: measured again; None where no record may be best. Its median may exceed the end of ``best``,
    #: since the fastest of many single measurements was lucky, too.
    final: Record | None

    def __len__(self) -> int:
        return len(self.clock)


def best_so_far(records: Iterable[Record], headers: Sequence[Mapping[str, Json]] = ()) -> Curve:
    """The curve of one task on one machine; runs are joined in the order of the log.

    Failed and dropped trials are part of it but never the best, and so are trials of candidates
    that were later found to be wrong, or crashed. Repeated measurements (phases) are no trials, nor
    are configurations that share the program and the result of another one.

    Args:
        records: those of one `Setup`; times of different tasks make no curve.
        headers: headers of the log, with the start of each run. Without them a run starts with the
            build of its first trial.

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
        Improvement(
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
    """The end of each trial, in seconds of running, and the number of its run."""
    ends, runs, build_s, run_s = fields_of(trials, "ts", "run", "build_s", "run_s")
    began: dict[str, float] = {}  # of runs that say so; the first header of a run counts
    for header in headers:
        name, ts = header.get("run"), header.get("ts")
        if isinstance(name, str) and isinstance(ts, int | float) and 0 < ts < math.inf:
            began.setdefault(name, float(ts))
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
