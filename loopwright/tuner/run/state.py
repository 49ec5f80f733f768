"""State of a run: every trial of the task so far, the best, the default, the failures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loopwright.errors import TaskError
from loopwright.measure import ErrorKind, is_reusable
from loopwright.records import FAILED_AGAIN, Basis, Checked, Place, Ranking
from loopwright.tuner.run.budget import (
    AHEAD,
    PLAYOFF_S,
    PLAYOFF_SHARE,
    WINDOW,
    Budget,
    Progress,
    expected_gain,
)

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity, Task


#: Number of trials of a run after which their mean time predicts that of those to come.
_TELLING = 4


def point(config: ConfigEntity) -> int:
    """The index of a configuration that a tuner proposed, or that was found in the space."""
    assert config.index is not None, f"{config} is not a point of its space"
    return config.index


def speed_of(result: MeasureResult) -> float:
    """Calls per second; 0.0 for a failure, and for a time that is not finite and above zero (of a
    measurer of one's own)."""
    median = result.median
    if result.error is not None or median is None or not 0 < median < float("inf"):
        return 0.0
    return 1 / float(median)


@dataclass(frozen=True)
class Trial:
    """One measured configuration.

    Attributes:
        number: position among all trials of this task, from 0.
        round: the round that proposed it.
        seed: the seed of the tuner that proposed it.
    """

    number: int
    round: int
    seed: int | None
    config: ConfigEntity
    result: MeasureResult

    @property
    def index(self) -> int:
        return point(self.config)

    @property
    def usable(self) -> bool:
        """True when it may be best: it ran to the end and racing did not drop it."""
        return self.valid and not self.result.dropped

    @property
    def valid(self) -> bool:
        """True when it has a time, be it a rough one."""
        return speed_of(self.result) > 0


def flop_of(task: Task) -> int:
    """Floating point operations of one call of a task; 0 for one that only moves data."""
    try:
        return task.flop
    except TaskError:
        return 0


@dataclass(frozen=True)
class Failure:
    """Number of errors of one kind, and the text of the first."""

    count: int
    example: str


class RunState:
    """All trials of a run and the best of them; the loop updates it, callbacks read it.

    A configuration that is the same program as an earlier one shares its result. It is no trial:
    it counts for no budget, and is never best.

    Attributes:
        trials: configurations that were measured themselves, in order.
        duplicates: configurations that share the result of a trial.
        duplicates_in_a_row: number of them since the last trial.
        programs: results that others of the same program share, by the hash of the program.
        capacity: number of configurations that can be measured at all, see `capacity`; None where
            it is not known.
    """

    def __init__(self, flop: int, default: int | None, budget: Budget) -> None:
        self.flop = flop
        self.budget = budget
        self.trials: list[Trial] = []
        self.duplicates: list[Trial] = []
        self.duplicates_in_a_row = 0
        self.programs: dict[str, MeasureResult] = {}
        self.valid = 0
        self.failures: dict[str, Failure] = {}
        self.from_log = 0
        self.failed_in_a_row = 0
        self.searching_since = 0.0
        self.default_index = default
        self.capacity: int | None = None
        self._ranking: Ranking[Trial] = Ranking()
        self._retimed: dict[int, float] = {}
        self._by_index: dict[int, Trial] = {}
        self._places: dict[int, int] = {}  # positions among the trials, by number
        self._valid_before = 0
        self._trials_before = 0

    def resume(
        self, trials: Iterable[Trial], later: Iterable[tuple[int, MeasureResult, Place | None]] = ()
    ) -> None:
        for trial in trials:
            self.add(trial)
        for index, result, place in later:
            self.measured_again(index, result, place)
        self.from_log = self._valid_before = self.valid
        self._trials_before = len(self.trials)
        self.failed_in_a_row = 0
        self.searching_since = self.budget.elapsed

    def add(self, trial: Trial) -> None:
        if trial.result.same_as:
            self.duplicates.append(trial)
            self.duplicates_in_a_row += 1
            return
        self.duplicates_in_a_row = 0
        self._places[trial.number] = len(self.trials)
        self.trials.append(trial)
        index = trial.index
        self._by_index[index] = trial
        if is_reusable(trial.result):
            self.programs.setdefault(trial.result.program, trial.result)
        if trial.result.error is not None:
            if trial.result.error.kind == ErrorKind.WRONG_ANSWER:
                self._ranking.refute(index)
            self._fail(trial.result.error.kind, trial.result.error.text)
            return
        if not trial.valid:
            self._fail(
                ErrorKind.RUN_ERROR,
                f"the measurer gave the times {list(trial.result.times)}; "
                "seconds are finite and above 0",
            )
            return
        self.failed_in_a_row = 0
        self.valid += 1
        if not trial.result.dropped:
            self._rank(trial)

    def time_again(self, index: int, seconds: float) -> None:
        """Note a fresh time of a trial, which does not change the best."""
        self._retimed[index] = seconds

    def measured_again(self, index: int, result: MeasureResult, place: Place | None = None) -> None:
        """Let a further measurement, perhaps of a playoff, replace those before; a failure takes
        the candidate out."""
        if result.error is not None:
            if result.error.kind in FAILED_AGAIN:
                self._ranking.refute(index)
                # Configurations of the same program, which come later, share its failure.
                program = self._by_index[index].result.program if index in self._by_index else ""
                if program:
                    self.programs[program] = replace(result, program=program)
            self._count(result.error.kind, result.error.text)
            return
        if result.median is not None:
            self._retimed[index] = result.median
        if result.checked is Checked.YES:
            self._ranking.vouch(index)
        if index in self._by_index and self._by_index[index].usable:
            self._rank(self._by_index[index], place)

    def seconds(self, trial: Trial) -> float:
        """The median that counts for a trial: that of its latest measurement."""
        median = self._retimed.get(trial.index) or trial.result.median
        assert median is not None, f"trial {trial.number} has no time"
        return median

    def contenders(self, k: int) -> list[Trial]:
        """The ``k`` trials of which a playoff picks the best, checked or not: the winner of the
        last playoff, then those that are fastest by the times that are known."""
        base = self._base
        fastest = self._ranking.fastest(k, lambda entry: self._estimate(entry.item, base))
        best = self.best
        if best is None or self.place(best).basis > Basis.PLAYED:
            return fastest
        return [best, *(trial for trial in fastest if trial is not best)][:k]

    def place(self, trial: Trial) -> Place:
        """Sort key of a usable trial."""
        place = self._ranking.place(trial.index)
        assert place is not None, f"trial {trial.number} is not ranked"
        return place

    def estimate(self, trial: Trial) -> float:
        """The time of a usable trial by that of the default in the same minutes; seconds where the
        default has no time."""
        return self._estimate(trial, self._base)

    @property
    def _base(self) -> float:
        """Seconds of the default in the search; 1 where it has no time."""
        return (None if self.default is None else self.default.result.median) or 1.0

    def _estimate(self, trial: Trial, base: float) -> float:
        place = self.place(trial)
        return place.value if place.basis is Basis.VERIFIED else self.seconds(trial) / base

    def position(self, trial: Trial) -> int:
        """Trials measured before it; its number counts copies of programs, too."""
        return self._places[trial.number]

    def trial_of(self, index: int) -> Trial:
        return self._by_index[index]

    def gflops(self, seconds: float | None) -> float | None:
        """Speed in GFLOP/s of a time per call; None without a time or without operations."""
        return self.flop / seconds / 1e9 if seconds and self.flop else None

    @property
    def best(self) -> Trial | None:
        """The best trial by the rule of `loopwright.records.Ranking`, or None."""
        entry = self._ranking.best
        return None if entry is None else entry.item

    @property
    def best_seconds(self) -> float | None:
        return None if self.best is None else self.seconds(self.best)

    @property
    def time_to_beat(self) -> float | None:
        """Seconds of one call against which trials race; None while the best could not be checked.

        A loser of a race is not checked, so the kernel that it races against must be right.
        """
        best = self.best
        if best is None:
            return None
        unchecked = best.result.checked is Checked.NO and best.result.check_reason
        if unchecked and not self._ranking.is_checked(best.index):
            return None
        return self.seconds(best)

    @property
    def default(self) -> Trial | None:
        """The trial of the default configuration, or of the same program; None if none ran."""
        index = self.default_index
        same = {t.result.same_as for t in self.duplicates if t.index == index}
        trials = (t for t in self.trials if t.index == index or t.result.program in same)
        return next((t for t in trials if t.valid), None)

    @property
    def measured(self) -> int:
        """Valid trials of this run."""
        return self.valid - self._valid_before

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.duplicates:
            return ()
        return (
            f"{len(self.duplicates)} further configurations were programs that had been measured "
            "already; they share those results and count for nothing",
        )

    @property
    def failed(self) -> int:
        return sum(failure.count for failure in self.failures.values())

    @property
    def progress(self) -> Progress:
        best = None if self.best is None else self._places[self.best.number]
        gflops = self.gflops(self.best_seconds)
        return Progress(self.valid, len(self.trials), best, gflops, self.gain)

    @property
    def gain(self) -> float | None:
        """Share by which the best is expected to become faster within a minute; None where no
        budget asks for it, or nothing can be said yet."""
        if self.budget.min_gain is None or self.best_seconds is None:
            return None
        assert self.best is not None
        since = len(self.trials) - self._places[self.best.number]
        latest = self.trials[-max(WINDOW, since) :]
        ahead = expected_gain([1.0 / self.seconds(t) if t.valid else None for t in latest])
        return None if ahead is None else ahead * 60.0 / (AHEAD * self._pace(latest))

    def _pace(self, latest: list[Trial]) -> float:
        """Seconds that a trial takes, failures included: in this run, else as was recorded."""
        here = len(self.trials) - self._trials_before
        if here:
            spent = (self.budget.elapsed - self.searching_since) / here
        else:
            spent = sum(t.result.build_s + t.result.run_s for t in latest) / len(latest)
        return max(spent, 1e-6)

    @property
    def seconds_per_trial(self) -> float | None:
        """Mean wall time of one valid trial of this run; None before the first."""
        if not self.measured:
            return None
        return (self.budget.elapsed - self.searching_since) / self.measured

    @property
    def seconds_of_a_trial(self) -> float:
        """Seconds of a trial: in this run, else by the log; 0 while nothing is known."""
        each = self.seconds_per_trial
        if each is None and self.trials:
            each = statistics.fmean(t.result.build_s + t.result.run_s for t in self.trials)
        return each or 0.0

    @property
    def total(self) -> int | None:
        """Valid trials at which the run ends at the latest: those requested, or what is left of the
        space without failures and equal programs; None where neither is known."""
        limits = (self.budget.n_trial, self.most_trials)
        return min((n for n in limits if n is not None), default=None)

    @property
    def most_trials(self) -> int | None:
        """Valid trials that there can be: what is left of the space without failures and equal
        programs; None where that is not known."""
        if self.capacity is None:
            return None
        spoilt = len(self.trials) - self.valid + len(self.duplicates)
        return max(self.valid, self.capacity - spoilt)

    @property
    def eta(self) -> float | None:
        """Seconds until the run ends with its playoff, if it goes on as fast as until now and no
        further budget ends it earlier; None while that cannot be said."""
        left: list[float] = []
        each, total = self.seconds_per_trial, self.total
        if total is not None and each is not None and self.measured >= _TELLING:
            search = max(0, total - self.valid) * each
            playoff = max(PLAYOFF_S, PLAYOFF_SHARE * (self.budget.elapsed + search))
            left.append(search + playoff)
        if self.budget.timeout is not None:
            left.append(max(0.0, self.budget.timeout - self.budget.elapsed))
        return min(left, default=None)

    def _rank(self, trial: Trial, place: Place | None = None) -> None:
        index = trial.index
        self._ranking.add(index, trial, self.seconds(trial), place=place)
        if trial.result.checked is Checked.YES:
            self._ranking.vouch(index)

    def _fail(self, kind: str, text: str) -> None:
        self.failed_in_a_row += 1
        self._count(kind, text)

    def _count(self, kind: str, text: str) -> None:
        seen = self.failures.get(kind)
        self.failures[kind] = Failure(seen.count + 1, seen.example) if seen else Failure(1, text)
