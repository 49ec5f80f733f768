"""Budgets of a run: trials, wall-clock time, trials without gain, a speed to reach, the least gain.

The gain of the trials to come is estimated from the latest ``w`` trials, a sample of what the tuner
proposes now. Had any quarter of them been measured alone, the logarithm of the best speed would
have been lower on average by

    B = sum_i (x_i - x_{i+1}) * P(none of the i fastest is in the quarter),

with ``x_1 >= x_2 >= ...`` the logarithms of their speeds, whatever their distribution. The gain of
``m`` further trials on a logarithmic scale,

    E = B * log(1 + m / w) / log(4),

is exact where the upper tail of speeds is that of a Pareto law, and too much where speeds are
bounded, as they are by the peak: a run goes on for too long rather than too short. Failures, and
candidates that racing dropped, count among the ``w``, which reaches back to the best at least.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TypeGuard

from loopwright.errors import UsageError

#: Share of the time of a run that the playoff at its end may take, unless the rounds that it needs
#: at least take longer; and the seconds that these take, roughly.
PLAYOFF_SHARE, PLAYOFF_S = 0.1, 3.0
#: Seconds of the fewest rounds of a playoff that give a verdict, building left out.
VERDICT_S = 0.5
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)


def seconds(duration: float | str | None) -> float | None:
    """A duration in seconds: of a number, ``"90s"``, ``"30m"``, ``"8h"``, ``"1d"``, or None."""
    if duration is None:
        return None
    value = _parse(duration) if isinstance(duration, str) else duration
    if not _is_number(value) or not 0 < value < math.inf:
        raise UsageError(
            f"timeout {duration!r} is not a duration; give seconds above zero, "
            "or a number with a unit such as 90s, 30m, 8h"
        )
    return float(value)


def _parse(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None or match[2].lower() not in _UNITS:
        return math.nan
    return float(match[1]) * _UNITS[match[2].lower()]


def clock(seconds: float) -> str:
    total = round(seconds)
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02d}s"
    return f"{total // 3600}h{total % 3600 // 60:02d}m"


def count(name: str, value: int | None) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} must be an integer above zero, got {value!r}")
    return value


def target_speed(target: float | None) -> float | None:
    """Check a target speed in GFLOP/s: None or a number above zero."""
    if target is None:
        return None
    if not _is_number(target) or not 0 < target < math.inf:
        raise UsageError(f"the target speed must be in GFLOP/s, above zero, got {target!r}")
    return float(target)


def gain_per_minute(min_gain: float | str | None) -> float | None:
    """A gain per minute as a share: of a number such as ``0.01``, ``"1%"``, or None."""
    if min_gain is None:
        return None
    value = _parse_share(min_gain) if isinstance(min_gain, str) else min_gain
    if not _is_number(value) or not 0 < value < math.inf:
        raise UsageError(
            f"min_gain {min_gain!r} is not a gain per minute; give a share above zero, "
            "such as 0.01 or 1%"
        )
    return float(value)


def _parse_share(text: str) -> float:
    number, percent, rest = text.strip().partition("%")
    try:
        return math.nan if rest else float(number) / (100.0 if percent else 1.0)
    except ValueError:
        return math.nan


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass(frozen=True)
class Progress:
    #: Valid results of this task, those of the log included.
    valid: int
    #: All results of this task, failures and those of the log included.
    trials: int
    #: Number of results before the one that found the best.
    best_trial: int | None
    #: Speed of the best.
    gflops: float | None = None
    #: Share by which the best is expected to become faster within a minute; None where it is
    #: unknown.
    gain: float | None = None


@dataclass
class Budget:
    #: Valid results of the task, those of the log included.
    n_trial: int | None = None
    #: Seconds of this run, the final re-measuring included.
    timeout: float | None = None
    #: Trials without a better one.
    early_stopping: int | None = None
    #: GFLOP/s of the best that are enough.
    target: float | None = None
    #: Share by which the best must be expected to become faster within a minute, see
    #: `expected_gain`.
    min_gain: float | None = None
    #: Returns seconds; a test may give its own.
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.n_trial = count("n_trial", self.n_trial)
        self.early_stopping = count("early_stopping", self.early_stopping)
        self.target = target_speed(self.target)
        self.min_gain = gain_per_minute(self.min_gain)
        self.started = self.clock()

    @property
    def elapsed(self) -> float:
        return self.clock() - self.started

    @property
    def left(self) -> float | None:
        return None if self.timeout is None else self.timeout - self.elapsed

    @property
    def limits(self) -> dict[str, float | None]:
        return {
            "n_trial": self.n_trial,
            "timeout": self.timeout,
            "early_stopping": self.early_stopping,
            "target_gflops": self.target,
            "min_gain": self.min_gain,
        }

    def room(self, valid: int) -> int | None:
        """Valid results beyond so many that there is room for; None for no limit."""
        return None if self.n_trial is None else max(0, self.n_trial - valid)

    def trials_left(self, progress: Progress) -> int | None:
        """Trials before a budget of trials ends the run; None for no limit. Better ones lengthen
        ``early_stopping``, and failures do not count for ``n_trial``, so that it may take longer.
        """
        left = [] if self.n_trial is None else [self.n_trial - progress.valid]
        if self.early_stopping is not None and progress.best_trial is not None:
            left.append(self.early_stopping - (progress.trials - 1 - progress.best_trial))
        return max(0, min(left)) if left else None

    def spent(self, progress: Progress, reserve: float = 0.0) -> tuple[str, str] | None:
        """Name and sentence of the first spent budget; ``reserve`` is seconds kept for the end."""
        if self.n_trial is not None and progress.valid >= self.n_trial:
            return "n_trial", f"all {self.n_trial} trials are measured"
        if self.timeout is not None and self.elapsed + reserve >= self.timeout:
            return "timeout", f"the time of {self.timeout:g} s is used up"
        gflops, gain = progress.gflops, progress.gain
        if self.target is not None and gflops is not None and gflops >= self.target:
            return "target", f"the best reached {gflops:.1f} of {self.target:g} GFLOP/s"
        if self.early_stopping is not None and progress.best_trial is not None:
            since = progress.trials - 1 - progress.best_trial
            if since >= self.early_stopping:
                return "early_stopping", f"{since} trials brought nothing better"
        if self.min_gain is not None and gain is not None and gain < self.min_gain:
            text = f"another minute is expected to gain {gain:.2%}, less than {self.min_gain:.2%}"
            return "min_gain", text
        return None


#: Least number of latest trials that are looked at, and of valid ones among them.
WINDOW, VALID = 64, 16
#: Trials whose gain is estimated: those of one round.
AHEAD = 16


def expected_gain(speeds: Sequence[float | None], trials: int = AHEAD) -> float | None:
    """Share by which the best is expected to become faster by further trials, 0.02 for two percent.

    ``speeds``, in any unit, are those of the latest trials, the best of all among them; None for a
    failure. With fewer than `WINDOW` trials, or `VALID` valid ones, nothing can be said.
    """
    logs = sorted((math.log(s) for s in speeds if s is not None), reverse=True)
    if len(speeds) < WINDOW or len(logs) < VALID:
        return None
    quarter = len(speeds) // 4
    brought, missed = 0.0, 1.0
    for i in range(len(logs) - 1):
        missed *= (len(speeds) - quarter - i) / (len(speeds) - i)
        brought += missed * (logs[i] - logs[i + 1])
        if missed < 1e-6:
            break
    return math.expm1(brought * math.log1p(trials / len(speeds)) / math.log(4.0))
