"""Confidence interval of a median, and comparison of times that were not interleaved."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from loopwright.measure.paired_ratios import CONFIDENCE, SMALLEST_GAIN
from loopwright.records import Outcome
from loopwright.records.reports.differences import FEWEST_WINDOWS, ratio_interval

#: An interval that is wider to each side holds too many differences to say that there is none.
_TOO_NOISY = 0.1


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """Confidence interval (95 %) of the median of samples; None with fewer than 6 samples.

    Its ends are samples themselves: each sample lies below the median with probability 1/2,
    whatever the shape of the noise is, so that the binomial distribution tells how many may lie
    outside (Hollander, Wolfe, Chicken, "Nonparametric Statistical Methods", 3rd ed., section 3.5).

    Args:
        samples: in any order.

    Example:
        >>> from loopwright.inspection import median_interval
        >>> print(median_interval([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7]))
        (1.0, 1.7)
    """
    ordered, count = sorted(samples), len(samples)
    outside, reached = 0, 0
    for k in range(count):
        reached += math.comb(count, k)
        if reached > (1 - CONFIDENCE) / 2 * 2**count:
            break
        outside = k + 1
    return (ordered[outside - 1], ordered[-outside]) if outside else None


@dataclass(frozen=True)
class Change:
    """Change of the time of a kernel from one measurement to another.

    Attributes:
        gain: share by which it is faster now, such as 0.031 for 3.1 %; negative where slower.
        low: lower end of the 95 % confidence interval of the gain.
        high: upper end.

    Example:
        >>> from loopwright.inspection import Change
        >>> print(Change(gain=0.31, low=0.29, high=0.33).gain)
        0.31
    """

    gain: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        """Half of the width of the interval."""
        return (self.high - self.low) / 2

    @property
    def outcome(self) -> Outcome:
        """Word for the change; less than half a percent is a tie."""
        if self.low > SMALLEST_GAIN:
            return Outcome.FASTER
        return Outcome.SLOWER if self.high < -SMALLEST_GAIN else Outcome.TIE

    def text(self) -> str:
        """Change in words: ``same within the noise (2.0 % slower +- 3.1 %)``."""
        word = "faster" if self.gain > 0 else "slower"
        figures = f"{abs(self.gain) * 100:.1f} % {word} +- {self.margin * 100:.1f} %"
        if self.outcome is not Outcome.TIE:
            return figures
        if self.margin > _TOO_NOISY:
            return f"not to be compared: the samples scatter too much ({figures})"
        return f"same within the noise ({figures})"


def change(before: Sequence[float], now: Sequence[float]) -> Change | None:
    """Compare two sets of times of one kernel, taken at different moments.

    The interval is that of `records.reports.differences.time_ratio`. It covers the noise within
    each set, not changes of the machine between them.

    Args:
        before: seconds per call.
        now: seconds per call.

    Returns:
        None where one of them has fewer than 5 samples.

    Example:
        >>> from loopwright.inspection import change
        >>> now = change([1.00, 1.01, 0.99, 1.00, 1.02, 1.00], [0.50, 0.51, 0.50, 0.49, 0.50, 0.50])
        >>> print(f"{now.gain:.1f}", now.low < now.gain < now.high)
        1.0 True
    """
    if min(len(before), len(now)) < FEWEST_WINDOWS:
        return None
    low, high = ratio_interval(now, before)
    gain = statistics.median(before) / statistics.median(now) - 1
    # A median of so few samples may lie outside of what was drawn.
    return Change(gain, min(low - 1, gain), max(high - 1, gain))
