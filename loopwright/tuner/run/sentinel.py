"""Watch for changes of the machine, and for the trials that they affect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loopwright.measure.drift import Drift, DriftWatch
from loopwright.measure.options import WINDOWS as CONTENDER_WINDOWS
from loopwright.tuner.run.journal import DRIFT
from loopwright.tuner.run.remeasuring import Remeasuring
from loopwright.tuner.run.state import RunState, Trial

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity

#: Share of the time of a run that the reference kernel may take, and the samples of each time.
SHARE, WINDOWS = 0.02, 3
#: Share of the time of a run that measuring again may take.
AGAIN_SHARE = 0.1
#: Largest number of trials that are measured again, and of their time by that of the best.
MOST, NEAR = 8, 1.1
#: Seconds that a sample is expected to take before there was one.
_EXPECTED_S = 0.15


class Sentinel:
    """Times a reference kernel between rounds, as often as its share of the time allows."""

    def __init__(self, parts: Remeasuring) -> None:
        self.parts = parts
        self.measurer, self.state = parts.measurer, parts.state
        self._watch = DriftWatch()
        self._spent, self._last, self._again = 0.0, _EXPECTED_S, 0.0
        self._reference: ConfigEntity | None = None
        self._trials: list[int] = []

    def look(self, number: int) -> None:
        """Take a sample after a round, if there is time; measure trials again that a drift affects.

        Their results are recorded, and the tuner is told of them with the round.
        """
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
            self.parts.keep(replace(trial, round=number), _with_times_of(result, trial), DRIFT)
        self.parts.journal.sync()
        self._again += self.state.budget.elapsed - begun

    def _sample(self) -> Drift | None:
        reference = self._reference or _reference(self.state)
        if reference is None:
            return None
        self._reference = reference
        begun = self.state.budget.elapsed
        (result,) = self.measurer.measure_again([reference], WINDOWS)
        self._last = self.state.budget.elapsed - begun
        self._spent += self._last
        if result.median is None:
            return None
        self._trials.append(len(self.state.trials))
        return self._watch.add(result.median)


def _with_times_of(again: MeasureResult, trial: Trial) -> MeasureResult:
    """The result of a trial with the times of now; its check remains valid."""
    return replace(trial.result, times=again.times, error=again.error, ts=again.ts, same_as="")


def _reference(state: RunState) -> ConfigEntity | None:
    """The default configuration, else the best of now."""
    trial = state.default or state.best
    return None if trial is None else trial.config


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
