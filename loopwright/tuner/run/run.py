"""The steps of a tuning run, in the order in which ``loop.py`` takes them."""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loopwright.errors import InternalError, SpaceError
from loopwright.measure import (
    KnowsCode,
    MeasureInput,
    MeasureOption,
    MeasureResult,
    MeasurerLike,
    SharesPrograms,
    TellsPhases,
    ignore,
)
from loopwright.records import NOT_COMPARED, Verdict
from loopwright.task import refusals
from loopwright.tuner.run.budget import PLAYOFF_SHARE, Budget
from loopwright.tuner.run.callbacks import EarlyStop, log_trial
from loopwright.tuner.run.final_playoff import FINALISTS, FinalPlayoff, Remeasuring
from loopwright.tuner.run.interfaces import Callback, Monitor, TunerLike
from loopwright.tuner.run.journal import Journal
from loopwright.tuner.run.phases import MEASURING, Phases, StallWatch
from loopwright.tuner.run.sentinel import Sentinel
from loopwright.tuner.run.state import RunState, Trial, flop_of, point
from loopwright.tuner.run.summary import NothingRan, Summary, playoff_times

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


#: Largest number of configurations that are counted, so that a total is shown.
COUNTED = 20_000
#: Seconds after which counting is given up: a filter may be slow, or never end.
_PATIENCE_S = 2.0


def capacity(tuner: TunerLike, state: RunState) -> int | None:
    """Most configurations that the log of a run can hold: those that the tuner may propose, the
    default, and those of the log. None above 20 000, or for slow filters."""
    space = tuner.space
    # Those of a tuner that searches a part only.
    lo: int = getattr(tuner, "begin_idx", 0)
    hi: int = getattr(tuner, "end_idx", space.range_length)
    if hi - lo > COUNTED:
        return None
    inside, until = hi - lo, time.monotonic() + _PATIENCE_S
    for index in range(lo, hi) if space.is_filtered else ():
        inside -= not space.is_valid(index)
        if time.monotonic() > until:
            return None
    indices = {trial.index for trial in (*state.trials, *state.duplicates)}
    indices |= set() if state.default_index is None else {state.default_index}
    outside = sum(not (lo <= index < hi and space.is_valid(index)) for index in indices)
    return inside + outside


@dataclass
class Round:
    number: int
    #: Seed of the tuner that proposed it.
    seed: int | None
    #: Trial number of its first configuration.
    first: int
    configs: list[ConfigEntity]
    #: Trials so far by index, those of the log included.
    done: dict[int, Trial] = field(default_factory=dict)
    #: Trials of this run.
    fresh: list[Trial] = field(default_factory=list)

    def todo(self) -> list[tuple[int, ConfigEntity]]:
        return [
            (self.first + i, c) for i, c in enumerate(self.configs) if point(c) not in self.done
        ]

    def results(self) -> list[tuple[ConfigEntity, MeasureResult]]:
        trials = [self.done[i] for i in map(point, self.configs) if i in self.done]
        return [(t.config, t.result) for t in trials]


#: Number of failures in a row, all of one kind and none valid before, that end a run.
FAILURES_OF_ONE_KIND = 32
#: Number of rounds of proposals in a row, all of programs that are measured already, that end a
#: run. A tuner of whose proposals one in thirty is new gets this far once in eighty times; each
#: costs milliseconds.
ROUNDS_OF_DUPLICATES = 8

#: The keys of a measurer's ``timing`` that are seconds of one phase; others are totals and counts.
PHASES = ("instantiate", "build", "run", "check", "reference", "wait", "cooldown", "overhead")
#: Words for what a run waits for in its own steps.
_WAITING = {
    "search": "the tuner, which chooses what to measure next",
    "log": "the log: its disk, or another process that locks it",
    "playoff": "the playoff",
}
#: Steps that are phases, and whether nothing is timed in them.
_PHASE = {"search": ("choosing configurations", True), "playoff": ("playoff", False)}

_log = logging.getLogger("loopwright.tuner")


class Run:
    def __init__(
        self,
        tuner: TunerLike,
        budget: Budget,
        journal: Journal,
        measurer: MeasurerLike,
        callbacks: Sequence[Callback],
        plan_size: int,
        phases: Phases | None = None,
    ) -> None:
        self.tuner, self.task, self.space = tuner, tuner.task, tuner.space
        self.budget, self.journal, self.measurer = budget, journal, measurer
        self.callbacks = list(callbacks)
        self.monitors = [c for c in callbacks if isinstance(c, Monitor)]
        self.plan_size = plan_size
        self.phases = phases or Phases(self.monitors)
        self.tuner.on_phase = self.phases.now
        if isinstance(measurer, TellsPhases):
            measurer.on_phase(self.phases.measuring)
        self.stop: tuple[str, str] | None = None
        self.default: int | None = None
        try:
            self.default = self.space.default_index
        except SpaceError as exc:
            journal.notes.append(f"there is no default configuration: {exc}")
        self.state = RunState(flop_of(self.task), self.default, budget)
        self.own_time = {"search": 0.0, "log": 0.0, "playoff": 0.0}
        again = Remeasuring(measurer, self.state, journal, self.monitors)
        self.sentinel = Sentinel(again)
        self.final = FinalPlayoff(again)
        self.stall = StallWatch(measurer, lambda: self.recorded, self._announce)
        self._round: Round | None = None
        self._header_written = False
        self._phases: dict[str, float] = {}

    @property
    def recorded(self) -> int:
        return len(self.journal.trials)

    @property
    def unfinished(self) -> bool:
        return self._round is not None

    # -- the steps ----------------------------------------------------------------------------

    def resume(self) -> None:
        """Bring the tuner to where the journal ends, and take up the round that was cut off."""
        rounds = self.journal.rounds()
        self.tuner.elsewhere = self.journal.elsewhere
        self.tuner.relatives = self.journal.relatives
        self.tuner.expressions.update(self.journal.expressions)
        if isinstance(self.measurer, KnowsCode):
            self.measurer.know(self.journal.by_code)
        self.state.resume((t for _, trials in rounds for t in trials), self.journal.later)
        _log.info(
            "%s: tuner %s, seed %s, %d configurations; %d trials from the log",
            *(self.task, self.tuner.name, self.tuner.seed, self.space.range_length),
            self.state.from_log,
        )
        with self.phases.entered("counting the configurations"):
            self.state.capacity = capacity(self.tuner, self.state)
        for monitor in self.monitors:
            monitor.started(self.tuner, self.state)
            for note in (*self.journal.notes, *self.tuner.seeds.notes):
                monitor.note(note)
        wanted, room = self.budget.n_trial, self.state.capacity
        if wanted is not None and room is not None and wanted > room:
            self._announce(
                f"{wanted} trials were asked for, but there are only {room} valid configurations: "
                "the run ends when these are measured"
            )
        with self._timed("search"):
            # With as many configurations as it can have, a round is complete.
            firsts = len(self.journal.remeasure) + len(self.tuner.seeds.points)
            longest = max(self.plan_size, 1 + firsts)
            if rounds and len(rounds[-1][1]) >= longest:
                self._retell(rounds)
                return
            self._retell(rounds[:-1])
            if rounds and not self._take_up(*rounds[-1]):
                self._retell(rounds)

    def current_round(self) -> Round | None:
        """The round in progress, else the next one; None when a budget or the space is spent."""
        self.stop = self.stop or self._spent()
        if self.stop is None and self._round is None:
            with self._timed("search"):
                number = max((t.number for t in self.journal.trials), default=-1) + 1
                self._round = self._plan(self.tuner.round, self.tuner.seed, number)
        if self.stop is None and self._round is None:
            why = self.tuner.why_empty or "the tuner has nothing more to propose"
            self.stop = ("exhausted", why)
        return None if self.stop else self._round

    def measure(self, plan: Round) -> None:
        """Measure the missing trials of a round within the budgets, and record each at once."""
        todo = plan.todo()[: self.budget.room(self.state.valid)]
        inputs = [MeasureInput(self.task, config, number) for number, config in todo]
        if not inputs:
            return
        self._write_header()
        with (
            self._synced(),
            self.stall.waiting_for(""),
            self.phases.entered(MEASURING, quiet=False),
            closing(self._results(inputs)) as results,
        ):
            for item, result in zip(inputs, results, strict=True):
                self._record(plan, Trial(item.trial, plan.number, plan.seed, item.config, result))
                if self._stops_here():
                    return

    def tell(self, plan: Round) -> None:
        """Tell the tuner a round that is complete, or that will not be completed in this run."""
        self.stop = self.stop or self._spent()
        if plan.todo() and self.stop is None:
            return
        if plan.fresh and self.stop is None:
            self.sentinel.look(plan.number)
        with self._timed("search"):
            self.tuner.tell([*plan.results(), *self.journal.drift.get(plan.number, ())])
        self._round = None
        self.tuner.ttl = self.budget.trials_left(self.state.progress)
        best = self.state.best_seconds
        _log.info(
            "%s: round %d: %d trials, %d failed; best %s",
            *(self.task, plan.number, len(plan.fresh), sum(not t.valid for t in plan.fresh)),
            "none yet" if best is None else f"{best * 1e3:.4g} ms",
        )
        inputs = [MeasureInput(self.task, t.config, t.number) for t in plan.fresh]
        for callback in self.callbacks:
            try:
                callback(self.tuner, inputs, [t.result for t in plan.fresh])
            except EarlyStop as exc:
                self.stop = self.stop or ("callback", str(exc))

    def playoff(self, left: float | None = None) -> None:
        # The measurer counts this time into its phases as well: keep what they were.
        self._phases = self._measurer_phases()
        with self._timed("playoff"), self.stall.waiting_for(""):
            self.final.hold(self.budget.left if left is None else left)
        self.journal.sync()

    @property
    def verdict(self) -> Verdict:
        best = self.state.best
        return self.journal.verdicts.get(-1 if best is None else best.index, NOT_COMPARED)

    @property
    def chosen(self) -> Trial | None:
        """Configuration to build: the best, or the default where nothing is measurably faster."""
        default = self.state.default
        return default if default and self.verdict.nothing_faster else self.state.best

    def finish(self) -> Summary:
        """End the run; the tuner's ``best_*`` are then those of the whole run."""
        if self._round is not None:
            self.tuner.tell(self._round.results())
            self._round = None
        chosen = self.chosen
        if chosen is not None:
            flops = self.state.flop / self.state.seconds(chosen)
            self.tuner.set_best(chosen.config, chosen.result, flops, chosen.number)
        assert self.stop is not None
        _log.info("%s: stopped after %d trials: %s", self.task, self.state.valid, self.stop[1])
        summary = self._summary(chosen)
        for monitor in self.monitors:
            monitor.finished(self.state, summary)
        if not any(monitor.shows_result for monitor in self.monitors):
            text = f"{self.task}: {summary.line()}"
            if _log.hasHandlers():
                _log.info(text)
            # Silenced by `logging.getLogger("loopwright").setLevel(logging.WARNING)`.
            elif logging.getLogger("loopwright").level <= logging.INFO:
                print(text, file=sys.stderr)
        if not self.state.valid and self.stop[0] != "interrupted":
            raise NothingRan(summary, refusals(self.task))
        return summary

    def _summary(self, best: Trial | None) -> Summary:
        state, default, verdict = self.state, self.state.default, self.verdict
        assert self.stop is not None
        default_seconds = None if default is None else state.seconds(default)
        best_seconds = None if best is None else state.seconds(best)
        outcome = self.final.of_best
        samples = outcome.default if verdict.nothing_faster else outcome.best
        gains = {name: outcome.gain_over(name, samples) for name in outcome.beside}
        return Summary(
            task=self.task.key,
            title=str(self.task),
            stopped=self.stop[0],
            reason=self.stop[1],
            trials=state.valid,
            from_log=state.from_log,
            measured=state.measured,
            failures=dict(state.failures),
            best_config=None if best is None else best.config,
            best_trial=None if best is None else best.number,
            best_seconds=best_seconds,
            default_seconds=default_seconds,
            best_gflops=state.gflops(best_seconds),
            default_gflops=state.gflops(default_seconds),
            playoff=dict(self.final.samples),
            verdict=verdict,
            peak=outcome.peak,
            of_peak=outcome.of_peak_by(samples),
            beside={name: gain for name, gain in gains.items() if gain},
            in_turns=playoff_times(outcome),
            timing=self._timing(),
            wall_s=self.budget.elapsed,
            log=self.journal.path,
            notes=(*state.notes, *self.journal.notes, *self.tuner.notes),
            most_trials=state.most_trials,
            best_position=None if best is None else state.position(best),
        )

    def close(self) -> None:
        self.stall.close()
        self.tuner.on_phase = ignore

    # -- planning -----------------------------------------------------------------------------

    def _retell(self, rounds: Sequence[tuple[int, list[Trial]]]) -> None:
        self.tuner.reset()
        for number, trials in rounds:
            self.tuner.begin_round(number)
            results = [(t.config, t.result) for t in trials]
            self.tuner.tell([*results, *self.journal.drift.get(number, ())])

    def _take_up(self, number: int, trials: list[Trial]) -> bool:
        """Plan the last round of the journal again; False when it was planned otherwise."""
        before = len(self.journal.trials) - len(trials)
        plan = self._plan(number, trials[0].seed, before)
        positions = {} if plan is None else {point(c): i for i, c in enumerate(plan.configs)}
        if plan is None or any(t.index not in positions for t in trials):
            return False
        firsts = {t.number - positions[t.index] for t in trials}
        if len(firsts) > 1:  # the same points in another order, as another tuner proposes them
            return False
        (plan.first,) = firsts
        plan.done = {t.index: t for t in trials}
        self._round = plan
        return True

    def _plan(self, number: int, seed: int | None, first: int) -> Round | None:
        visited = self.tuner.visited
        indices = [] if self.default is None else [self.default]
        firsts = (*self.journal.remeasured(number), *self.tuner.seeds.points)
        indices += filter(self.space.is_valid, map(point, firsts))
        chosen = [index for index in dict.fromkeys(indices) if index not in visited]
        self.tuner.begin_round(number, seed)
        self.tuner.exclude(chosen)
        configs = [self.space.get(index) for index in chosen]
        configs += self.tuner.ask(self.plan_size - len(configs))
        return Round(number, seed, first, configs) if configs else None

    # -- measuring ----------------------------------------------------------------------------

    def _results(self, inputs: list[MeasureInput]) -> Generator[MeasureResult, None, None]:
        best, count = self.state.time_to_beat, 0
        if isinstance(self.measurer, SharesPrograms):
            results = self.measurer.measure_new(inputs, best, self.state.programs)
        else:
            results = self.measurer.measure(inputs, best)
        for result in results:
            count += 1
            yield result
        if count < len(inputs):
            raise InternalError(f"the measurer returned {count} results for {len(inputs)} inputs")

    def _record(self, plan: Round, trial: Trial) -> None:
        with self._timed("log"):
            self.journal.add(trial)
        plan.done[trial.index] = trial
        plan.fresh.append(trial)
        self.state.add(trial)
        log_trial(self.state, trial)
        for monitor in self.monitors:
            monitor.trial(self.state, trial)

    def _stops_here(self) -> bool:
        self.stop = self._spent()
        in_a_row, limit = self.state.failed_in_a_row, self.tuner.error_threshold
        if not self.state.valid and len(self.state.failures) == 1:
            limit = min(limit, FAILURES_OF_ONE_KIND)
        if in_a_row >= limit:
            self.stop = ("failures", f"{in_a_row} configurations in a row failed")
        return self.stop is not None

    def _spent(self) -> tuple[str, str] | None:
        each = self.state.seconds_per_trial
        reserve = 0.0
        if self.budget.timeout is not None and each is not None:
            needed = max(1.5 * (FINALISTS + 1) * each, PLAYOFF_SHARE * self.budget.timeout)
            reserve = min(needed, self.budget.timeout / 4)
        spent = self.budget.spent(self.state.progress, reserve)
        count = self.state.duplicates_in_a_row
        if spent is not None or count < ROUNDS_OF_DUPLICATES * self.plan_size:
            return spent
        return "exhausted", f"the last {count} proposals were all programs measured already"

    def _write_header(self) -> None:
        if self._header_written:
            return
        self._header_written = True
        option = getattr(self.measurer, "option", None)
        self.journal.header(
            {
                "tuner": self.tuner.name,
                "seed": self.tuner.seed,
                "options": self.tuner.options,
                "plan_size": self.plan_size,
                **self.budget.limits,
                "measure": dataclasses.asdict(option) if isinstance(option, MeasureOption) else {},
                "resumed": self.state.from_log,
                "pretrains": len(self.journal.elsewhere)
                + len(self.journal.relatives)
                + len(self.tuner.pretrained),
            }
        )

    # -- the end ------------------------------------------------------------------------------

    @contextmanager
    def _synced(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._timed("log"):
                self.journal.sync()

    def _announce(self, text: str) -> None:
        _log.info("%s: %s", self.task, text)
        self.phases.note(text)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        phase = self.phases.entered(*_PHASE[what]) if what in _PHASE else nullcontext()
        try:
            with self.stall.waiting_for(_WAITING[what]), phase:
                yield
        finally:
            self.own_time[what] += time.perf_counter() - start

    def _measurer_phases(self) -> dict[str, float]:
        timing = self.measurer.timing
        return {what: timing[what] for what in PHASES if what in timing}

    def _timing(self) -> dict[str, float]:
        timing = dict(self._phases or self._measurer_phases())
        for what, spent in self.own_time.items():
            timing[what] = timing.get(what, 0.0) + spent
        rest = self.budget.elapsed - sum(timing.values())
        return timing if rest < 0.05 else {**timing, "other": rest}
