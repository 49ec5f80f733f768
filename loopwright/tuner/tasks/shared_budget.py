"""Budgets of several tasks that are tuned together: limits of all tasks and limits of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from loopwright.tuner.run.budget import (
    PLAYOFF_S,
    PLAYOFF_SHARE,
    VERDICT_S,
    Budget,
    Progress,
    count,
    gain_per_minute,
    seconds,
)
from loopwright.tuner.run.final_playoff import FINALISTS
from loopwright.tuner.run.state import RunState, Trial


class Stopwatch:
    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        now = 0.0 if self._since is None else time.monotonic() - self._since
        return self._before + now

    @contextmanager
    def running(self) -> Iterator[None]:
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._before, self._since = self(), None


class TotalBudget:
    def __init__(
        self,
        n_trial: int | None = None,
        timeout: float | str | None = None,
        early_stopping: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        #: Valid results of all tasks, those of the log included.
        self.n_trial = count("n_trial", n_trial)
        #: Seconds of this call, the final re-measuring included.
        self.timeout = seconds(timeout)
        #: Trials of all tasks in a row without a better one for any.
        self.early_stopping = count("early_stopping", early_stopping)
        self.states: list[RunState] = []
        #: Gives the states of the tasks that are to have a playoff.
        self.playing: Callable[[], Sequence[RunState]] = lambda: self.states
        self.stopped: tuple[str, str] | None = None
        self._without_gain = 0
        self._resumed_at = 0.0
        self._clock = clock
        self._started = clock()

    @property
    def elapsed(self) -> float:
        return self._clock() - self._started

    @property
    def left(self) -> float | None:
        return None if self.timeout is None else self.timeout - self.elapsed

    @property
    def out_of_time(self) -> bool:
        """True when not even the final re-measuring has time left."""
        return self.timeout is not None and self.elapsed >= self.timeout

    @property
    def valid(self) -> int:
        return sum(state.valid for state in self.states)

    @property
    def trials(self) -> int | None:
        """Valid results at which the call ends at the latest: the requested number or that of all
        spaces; None where neither is known."""
        limits = (self.n_trial, self.most_trials)
        return min((n for n in limits if n is not None), default=None)

    @property
    def most_trials(self) -> int | None:
        rooms = [state.most_trials for state in self.states]
        limits = [room for room in rooms if room is not None]
        return sum(limits) if limits and len(limits) == len(rooms) else None

    @property
    def shortage(self) -> str:
        if self.n_trial is None or self.trials is None or self.n_trial <= self.trials:
            return ""
        return (
            f"{self.n_trial} trials were asked for, but there are only {self.trials} valid "
            "configurations of all workloads together: the run ends when these are measured"
        )

    @property
    def eta(self) -> float | None:
        """Seconds until the call ends with its playoffs at the pace until now; None if unknown."""
        left = [] if self.left is None else [max(0.0, self.left)]
        measured = sum(state.measured for state in self.states)
        if self.trials is not None and measured >= len(self.states):
            each = (self.elapsed - self._resumed_at) / max(1, measured)
            playoffs = PLAYOFF_S * len(self.states)
            search = max(0, self.trials - self.valid) * each
            left.append(search + max(playoffs, PLAYOFF_SHARE * (self.elapsed + search)))
        return min(left, default=None)

    def resumed(self) -> None:
        self._resumed_at = self.elapsed
        best = max((s.best.result.ts for s in self.states if s.best is not None), default=0.0)
        self._without_gain = sum(t.result.ts > best for s in self.states for t in s.trials)

    def note(self, state: RunState, trial: Trial) -> None:
        if trial.result.same_as:
            return
        self._without_gain = 0 if state.best is trial else self._without_gain + 1

    def spent(self) -> tuple[str, str] | None:
        """Name and sentence of the first limit that is reached; it stays reached."""
        if self.stopped is not None:
            return self.stopped
        if self.n_trial is not None and self.valid >= self.n_trial:
            self.stopped = "n_trial", f"all {self.n_trial} trials are measured"
        elif self.timeout is not None and self.elapsed + self._reserve() >= self.timeout:
            self.stopped = "timeout", f"the time of {self.timeout:g} s is used up"
        elif self.early_stopping is not None and self._without_gain >= self.early_stopping:
            text = f"{self._without_gain} trials brought nothing better for any task"
            self.stopped = "early_stopping", text
        return self.stopped

    def _reserve(self) -> float:
        """Seconds for the playoffs of all tasks: a quarter of the time, more where that is too
        little for a verdict on each."""
        assert self.timeout is not None
        states = self.playing()
        least = [verdict_seconds(state) for state in states]
        wanted = [1.5 * (FINALISTS + 1) * state.seconds_of_a_trial for state in states]
        enough = min(sum(least), self.timeout / 2)
        return min(sum(map(max, wanted, least)), max(enough, self.timeout / 4))


def verdict_seconds(state: RunState) -> float:
    """Least seconds of a playoff for a verdict: best and default are built, checked and sampled."""
    return 3.0 * state.seconds_of_a_trial + VERDICT_S


class TaskBudget(Budget):
    """The limits of one task among others; its clock runs only while that task is tuned."""

    def __init__(
        self, total: TotalBudget, early_stopping: int | None, min_gain: float | str | None
    ) -> None:
        self.total, self.turn = total, Stopwatch()
        super().__init__(
            early_stopping=early_stopping, min_gain=gain_per_minute(min_gain), clock=self.turn
        )

    @property
    def limits(self) -> dict[str, float | None]:
        shared = {"n_trial": self.total.n_trial, "timeout": self.total.timeout}
        return {**super().limits, **shared, "tasks": len(self.total.states)}

    def room(self, valid: int) -> int | None:
        n_trial = self.total.n_trial
        return None if n_trial is None else max(0, n_trial - self.total.valid)

    def spent(self, progress: Progress, reserve: float = 0.0) -> tuple[str, str] | None:
        return self.total.spent() or super().spent(progress, reserve)
