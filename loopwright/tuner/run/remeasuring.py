"""Remeasuring: the parts of a run that measure trials again, keep the results, and report them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopwright.measure import MeasureResult
from loopwright.measure.interfaces import MeasurerLike
from loopwright.records import Verdict
from loopwright.records.playoffs import Place
from loopwright.tuner.run.journal import Journal
from loopwright.tuner.run.monitor import Monitor
from loopwright.tuner.run.state import RunState, Trial


@dataclass(frozen=True)
class Remeasuring:
    """The parts of a run that are needed to measure some of its trials again."""

    measurer: MeasurerLike
    state: RunState
    journal: Journal
    monitors: Sequence[Monitor]

    def keep(
        self,
        trial: Trial,
        result: MeasureResult,
        phase: str,
        verdict: Verdict | None = None,
        place: Place | None = None,
    ) -> None:
        """Record a further measurement of a trial, see `Journal.add_again`, and let it stand."""
        default = None if self.state.default is None else self.state.default.index
        self.journal.add_again(trial, result, phase, verdict, default, place)
        self.state.measured_again(trial.index, result, place)

    def say(self, note: str) -> None:
        """Tell the monitors a line for the user."""
        for monitor in self.monitors:
            monitor.note(note)
