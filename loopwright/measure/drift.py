"""Detection of changes of the machine, from times of a reference kernel.

The detector is a two-sided CUSUM (Page, "Continuous inspection schemes", Biometrika 41, 1954) over
the logarithms of the times, in units of their own spread. Times of kernels have heavy tails, so
place and spread are the median and the median absolute deviation of the first samples, each
residual counts at most `_CLIP` (Lucas and Crosier, "Robust CUSUM", Commun. Stat. 11, 1982), and a
shift that is smaller than `SMALLEST_SHIFT` is none.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

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
    """The machine has become slower or faster."""

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
        for sign in (1, -1):
            self._count(sign, step)
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

    def _count(self, sign: int, step: float) -> None:
        """Add a residual to the sum of one side; the time since its last zero dates the change."""
        self._sums[sign] = max(0.0, self._sums[sign] + sign * step - _SLACK)
        self._since[sign] = self._since[sign] + 1 if self._sums[sign] > 0 else 0
