"""How long a run may go on: trials, wall-clock time, and trials without gain.

Whichever is spent first ends the run; the budget says which in words.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from loopwright.errors import UsageError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)


def seconds(duration: float | str | None) -> float | None:
    """Return a duration in seconds: a number, ``"90s"``, ``"30m"``, ``"8h"``, ``"1d"``, or None.

    Raises:
        UsageError: it is neither, or not above zero.
    """
    if duration is None:
        return None
    value = _parse(duration) if isinstance(duration, str) else float(duration)
    if value is None or not value > 0 or math.isinf(value):
        raise UsageError(
            f"timeout {duration!r} is not a duration; give seconds above zero, "
            "or a number with a unit such as 90s, 30m, 8h"
        )
    return value


def _parse(text: str) -> float | None:
    found = _DURATION.fullmatch(text)
    if found is None or found[2].lower() not in _UNITS:
        return None
    return float(found[1]) * _UNITS[found[2].lower()]


def count(name: str, value: int | None) -> int | None:
    """Return a budget that counts trials.

    Raises:
        UsageError: it is neither None nor an integer above zero.
    """
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} must be an integer above zero, got {value!r}")
    return value


@dataclass(frozen=True)
class Progress:
    """What the budgets are compared with.

    Attributes:
        valid: valid results of this task, those of the log included.
        trials: all results of this task, failures and those of the log included.
        best_trial: the number of the trial that found the best, or None.
    """

    valid: int
    trials: int
    best_trial: int | None


@dataclass
class Budget:
    """The limits of one run.

    Args:
        n_trial: valid results of the task, those of the log included; None for no limit.
        timeout: seconds of this run, the final re-measuring included; None for no limit.
        early_stopping: trials without a better one; None for no limit.
        clock: returns seconds; a test may give its own.
    """

    n_trial: int | None = None
    timeout: float | None = None
    early_stopping: int | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.n_trial = count("n_trial", self.n_trial)
        self.early_stopping = count("early_stopping", self.early_stopping)
        self.started = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds since this run began."""
        return self.clock() - self.started

    def spent(self, progress: Progress, reserve: float = 0.0) -> tuple[str, str] | None:
        """Return ``(budget, sentence)`` of the first budget that is spent, or None.

        Args:
            progress: where the run stands.
            reserve: seconds to keep for what comes after the last trial.
        """
        if self.n_trial is not None and progress.valid >= self.n_trial:
            return "n_trial", f"all {self.n_trial} trials are measured"
        if self.timeout is not None and self.elapsed + reserve >= self.timeout:
            return "timeout", f"the time of {self.timeout:g} s is used up"
        if self.early_stopping is None or progress.best_trial is None:
            return None
        since = progress.trials - 1 - progress.best_trial
        if since >= self.early_stopping:
            return "early_stopping", f"{since} trials brought nothing better"
        return None
