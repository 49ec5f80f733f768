"""Measuring trials of a run again: who does it, where it is kept, and who hears of it."""

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
    """The parts of a run that are needed to measure some of its trials again.

    Attributes:
        measurer: measures them.
        state: the trials of the run; takes in what comes out.
        journal: where that is recorded.
        monitors: hear of it.
    """

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
        """Record what measuring a trial again gave, and let it stand.

        Args:
            trial: the trial.
            result: times, or how it failed.
            phase: of the record.
            verdict: how it compares with the default, where it is the winner of a playoff.
            place: what its playoff says of it; None where it is of none.
        """
        default = None if self.state.default is None else self.state.default.index
        self.journal.add_again(trial, result, phase, verdict, default, place)
        self.state.measured_again(trial.index, result, place)

    def say(self, note: str) -> None:
        """Tell the monitors what a person should know."""
        for monitor in self.monitors:
            monitor.note(note)
