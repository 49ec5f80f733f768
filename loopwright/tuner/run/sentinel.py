"""Watch for changes of the machine, by a reference kernel, and for the trials that they affect.

The detector is a two-sided CUSUM (Page, Biometrika 41, 1954) over the logarithms of the times, in
units of their own spread. Times of kernels have heavy tails, so place and spread are the median and
the median absolute deviation of the first samples, and each residual counts at most `_CLIP` (Lucas
and Crosier, "Robust CUSUM", Commun. Stat. 11, 1982).
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loopwright.measure import WINDOWS as CONTENDER_WINDOWS
from loopwright.tuner.run.final_playoff import Remeasuring
from loopwright.tuner.run.journal import DRIFT
from loopwright.tuner.run.state import RunState, Trial

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


#: Samples that say what is usual.
BASELINE = 8
#: A drift is a shift by more than this share.
SMALLEST_SHIFT = 0.03
#: Of the CUSUM, in units of the spread: the slack, the level of the alarm, the most that counts.
_SLACK, _LEVEL, _CLIP = 1.0, 5.0, 3.0
#: The spread is at least this share, whatever few samples say.
_SMALLEST_SPREAD = 0.01
#: The median absolute deviation of a normal distribution, in units of its standard deviation.
_MAD = 0.6745


@dataclass(frozen=True)
class Drift:
    shift: float  # relative growth of times; negative where they have fallen
    samples: int  # number of the last samples that lie behind the change


class DriftWatch:
    """Watches the times of one kernel; after an alarm it starts anew."""

    def __init__(self) -> None:
        self._start()

    def add(self, seconds: float) -> Drift | None:
        """Add a sample, in seconds per call; returns a drift where it raises the alarm."""
        value = math.log(seconds)
        self._values.append(value)
        if len(self._values) <= BASELINE:
            return None
        first = self._values[:BASELINE]
        middle = statistics.median(first)
        spread = statistics.median(abs(v - middle) for v in first) / _MAD
        step = (value - middle) / max(spread, _SMALLEST_SPREAD)
        step = max(-_CLIP, min(_CLIP, step))
        for sign in (1, -1):  # the time since the last zero of a sum dates the change
            self._sums[sign] = max(0.0, self._sums[sign] + sign * step - _SLACK)
            self._since[sign] = self._since[sign] + 1 if self._sums[sign] > 0 else 0
        sign = max(self._sums, key=lambda s: self._sums[s])
        if self._sums[sign] <= _LEVEL:
            return None
        samples = self._since[sign]
        shift = math.expm1(statistics.median(self._values[-samples:]) - middle)
        if abs(shift) <= SMALLEST_SHIFT:
            return None
        self._start()
        return Drift(shift, samples)

    def _start(self) -> None:
        self._values: list[float] = []
        self._sums = {1: 0.0, -1: 0.0}
        self._since = {1: 0, -1: 0}


#: Share of the time of a run that the reference kernel may take, and the samples of each time.
SHARE, WINDOWS = 0.02, 3
#: Share of the time of a run that measuring again may take.
AGAIN_SHARE = 0.1
#: Largest number of trials that are measured again, and of their time by that of the best.
MOST, NEAR = 8, 1.1
#: Seconds that a sample is expected to take before there was one.
_EXPECTED_S = 0.15


class Sentinel:
    def __init__(self, parts: Remeasuring) -> None:
        self.parts = parts
        self.measurer, self.state = parts.measurer, parts.state
        self._watch = DriftWatch()
        self._spent, self._last, self._again = 0.0, _EXPECTED_S, 0.0
        self._reference: ConfigEntity | None = None
        self._trials: list[int] = []

    def look(self, number: int) -> None:
        """Take a sample after a round, if there is time; measure and record trials again that a
        drift affects."""
        elapsed = self.state.budget.elapsed
        if self._spent + self._last > SHARE * elapsed:
            return
        drift = self._sample()
        if drift is None or self._again > AGAIN_SHARE * elapsed:
            return
        before = self._trials[-1 - drift.samples] if len(self._trials) > drift.samples else 0
        trials = _near_the_best(self.state, before)
        self.parts.say(_text(drift, len(trials)))
        begun = self.state.budget.elapsed
        results = self.measurer.measure_again([t.config for t in trials], CONTENDER_WINDOWS)
        for trial, result in zip(trials, results, strict=True):
            # The times of now; the check of the trial remains valid.
            again = replace(
                trial.result, times=result.times, error=result.error, ts=result.ts, same_as=""
            )
            self.parts.keep(replace(trial, round=number), again, DRIFT)
        self.parts.journal.sync()
        self._again += self.state.budget.elapsed - begun

    def _sample(self) -> Drift | None:
        # The default configuration, else the best of now.
        trial = self.state.default or self.state.best
        if self._reference is None and trial is not None:
            self._reference = trial.config
        if self._reference is None:
            return None
        begun = self.state.budget.elapsed
        (result,) = self.measurer.measure_again([self._reference], WINDOWS)
        self._last = self.state.budget.elapsed - begun
        self._spent += self._last
        if result.median is None:
            return None
        self._trials.append(len(self.state.trials))
        return self._watch.add(result.median)


def _near_the_best(state: RunState, since: int) -> list[Trial]:
    best = state.best
    if best is None:
        return []
    limit = NEAR * state.seconds(best)
    late = [t for t in state.trials[since:] if t.usable and state.seconds(t) <= limit]
    others = sorted((t for t in late if t is not best), key=state.seconds)
    return [best, *others][:MOST]


def _text(drift: Drift, count: int) -> str:
    how = "slower" if drift.shift > 0 else "faster"
    again = "the best trial is" if count == 1 else f"{count} of the best trials are"
    return (
        f"the machine has become {how}: the reference kernel takes {abs(drift.shift):.0%} "
        f"{'more' if drift.shift > 0 else 'less'} time than before; {again} measured again"
    )
