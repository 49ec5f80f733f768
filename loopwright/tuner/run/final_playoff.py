"""Playoff at the end of a run: its participants, and the results that are recorded."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loopwright.measure import (
    FinalistResult,
    MeasureResult,
    MeasurerLike,
    PlayoffPlan,
    PlayoffResult,
)
from loopwright.records import PLAYOFF, Place, Played, Verdict
from loopwright.task import ConfigEntity
from loopwright.tuner.run.budget import PLAYOFF_SHARE
from loopwright.tuner.run.interfaces import Monitor
from loopwright.tuner.run.journal import Journal
from loopwright.tuner.run.state import RunState, Trial, point


@dataclass(frozen=True)
class Remeasuring:
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
        default = None if self.state.default is None else self.state.default.index
        self.journal.add_again(trial, result, phase, verdict, default, place)
        self.state.measured_again(trial.index, result, place)

    def say(self, note: str) -> None:
        for monitor in self.monitors:
            monitor.note(note)


#: Number of the best that are measured again at the end, interleaved; the default joins them.
FINALISTS = 8
#: Number of the best from which finalists are taken, since some are equal programs or fail.
_CANDIDATES = 64
#: Largest number of playoffs.
_PLAYOFFS = 3
#: A trial that took no part is measured, too, where its ratio to the default in the search is
#: better than that of the winner by this factor: single measurements differ by as much.
_OVERTAKES = 1.1


class FinalPlayoff:
    def __init__(self, parts: Remeasuring) -> None:
        self.parts = parts
        self.measurer, self.state = parts.measurer, parts.state
        self.outcomes: list[PlayoffResult] = []
        #: Seconds per call of the finalists, by trial number.
        self.samples: dict[int, tuple[float, ...]] = {}

    def hold(self, left: float | None) -> None:
        """Check and measure the best few and the default again in ``left`` seconds; the result
        stands.

        A run that measured nothing, and whose log has a verdict, times the winner of the log again,
        and nothing is recorded. Where the finalists turn out to be slower, in relation to the
        default, than others were in the search, those play against the winner.
        """
        best, budget = self.state.best, self.state.budget
        if (left is not None and left <= 0) or best is None:
            return
        fresh = self.state.measured > 0 or best.index not in self.parts.journal.verdicts
        candidates = self.state.contenders(_CANDIDATES) if fresh else [best]
        # Where the default is all there is, it plays: that nothing beats it is a verdict, too.
        if fresh and len(candidates) < 2 and self.state.default is None:
            return
        until = None if left is None else budget.elapsed + left
        for _ in range(_PLAYOFFS):
            left = None if until is None else until - budget.elapsed
            if left is not None and left <= 0:
                return
            self._play(candidates, left, fresh)
            if not fresh or not self._overtaken:
                return
            candidates = self.state.contenders(_CANDIDATES)

    @property
    def of_best(self) -> PlayoffResult:
        """The latest playoff that the best has won, also by samples that it shares, having equal
        code; else one against the default alone, who won it; else an empty one. All times of one
        playoff belong together; those of another one do not.
        """
        best = self.state.best
        won = (o for o in reversed(self.outcomes) if best and best.config in _winners(o))
        # A winner of the log may lose now; two that play alone are both judged.
        lost = (
            replace(o, best=f.times)
            for o in reversed(self.outcomes)
            for f in o.finalists
            if best and f.config == best.config and len(o.finalists) == 2 and f.times and o.default
        )
        return next(won, next(lost, PlayoffResult(())))

    @property
    def _overtaken(self) -> bool:
        """True when one that played in none of the playoffs seems to be faster than the best."""
        best = self.state.best
        if best is None:
            return False
        played = {f.config for outcome in self.outcomes for f in outcome.finalists}
        others = (t for t in self.state.contenders(_CANDIDATES) if t.config not in played)
        first = next(others, None)
        if first is None:
            return False
        return self.state.estimate(first) * _OVERTAKES < self.state.estimate(best)

    def _play(self, candidates: Sequence[Trial], left: float | None, fresh: bool) -> None:
        default = self.state.default
        places = FINALISTS
        if left is not None:
            # Half of the time is for building and checking, so that there is some for a verdict.
            places = int(0.5 * left / max(1e-3, self.state.seconds_of_a_trial)) - 1
        plan = PlayoffPlan(
            None if default is None else default.config,
            max(1, min(FINALISTS, places)),
            PLAYOFF_SHARE * self.state.budget.elapsed,
            left,
            self.state.flop,
            {name: take for m in self.parts.monitors for name, take in m.beside().items()},
        )
        count = len({t.index for t in [*candidates[: plan.places], default or candidates[0]]})
        for monitor in self.parts.monitors:
            monitor.playoff(self.state, count)
        outcome = self.measurer.playoff([t.config for t in candidates], plan)
        self.outcomes.append(outcome)
        verdict, first = outcome.verdict(), None if default is None else default.index
        winner = outcome.winner
        played = None if winner is None else Played(winner.times, verdict, time.time())
        for finalist, wins in _as_recorded(outcome, first):
            self._take_in(finalist, fresh, verdict if wins else None, played)
        for note in outcome.notes:
            self.parts.say(note)

    def _take_in(
        self, finalist: FinalistResult, fresh: bool, verdict: Verdict | None, played: Played | None
    ) -> None:
        trial = self.state.trial_of(point(finalist.config))
        if finalist.times:
            self.samples[trial.number] = finalist.times
        if not fresh:
            # Nothing is recorded, so what the log calls best stays so: this is its time of now.
            if finalist.times:
                self.state.time_again(trial.index, statistics.median(finalist.times))
            return
        result = replace(
            trial.result,
            times=finalist.times,
            dropped=False,
            same_as="",
            error=finalist.error,
            checked=finalist.checked,
            check_reason=finalist.check_reason,
            max_error=finalist.max_error,
            ts=time.time(),
        )
        place = played.place(finalist.times) if played and finalist.times else None
        self.parts.keep(trial, result, PLAYOFF, verdict, place)


def _as_recorded(outcome: PlayoffResult, default: int | None) -> list[tuple[FinalistResult, bool]]:
    """Finalists in the order of their records, each with whether it has the verdict.

    A finalist with the winner's own samples has equal code, so that the verdict is its verdict,
    too: their order in the log decides which of the two leads. A verdict names the record of the
    default, which therefore comes before all that have one; the winner comes last.
    """
    won = _winners(outcome)
    judged = [(f, f.config in won) for f in outcome.finalists]
    return sorted(reversed(judged), key=lambda each: (each[1], point(each[0].config) != default))


def _winners(outcome: PlayoffResult) -> list[ConfigEntity]:
    winner = outcome.winner
    if winner is None:
        return []
    return [f.config for f in outcome.finalists if f.times == winner.times]
