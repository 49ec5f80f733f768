"""Comparison of the speed of two kernels, from samples that were taken in pairs.

Two samples of one round lie milliseconds apart, so a clock that changes or a neighbour on the
machine slows both alike and falls out of their ratio. What is left has heavy tails: single samples
are hit by other processes. So the estimate is that of Hodges and Lehmann ("Estimates of location
based on rank tests", Ann. Math. Stat. 34, 1963), the median of the means of all pairs of
log-ratios, and the interval is that of Wilcoxon's signed-rank test (Hollander, Wolfe, Chicken,
"Nonparametric Statistical Methods", 3rd ed., section 3.4): exact for any number of rounds, it
assumes only that the noise is symmetric.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from loopwright.records import Outcome

#: Of all intervals.
CONFIDENCE = 0.95
#: A gain counts when its whole interval lies beyond this share. Smaller differences, such
#: as from the place of the code in memory, are not due to the schedule.
SMALLEST_GAIN = 0.005
#: Rounds without which there is no interval of 95 %.
FEWEST_ROUNDS = 6


@dataclass(frozen=True)
class PairedGain:
    """Relative gain in speed of one kernel over another.

    Example:
        >>> from loopwright.measure import PairedGain
        >>> gain = PairedGain(gain=0.31, low=0.29, high=0.33, rounds=20)
        >>> print(gain.outcome.value, round(gain.margin, 2))
        faster 0.02
    """

    gain: float  #: the estimate, such as 0.031 for 3.1 %; negative where it is slower
    low: float  #: lower end of the interval of the gain
    high: float
    rounds: int  #: number of paired samples it rests on

    @property
    def margin(self) -> float:
        return (self.high - self.low) / 2

    @property
    def outcome(self) -> Outcome:
        """The result in a word; a gain below `SMALLEST_GAIN` is a tie."""
        if self.low > SMALLEST_GAIN:
            return Outcome.FASTER
        # Slower by that share, seen from the other side.
        return Outcome.SLOWER if self.high < 1 / (1 + SMALLEST_GAIN) - 1 else Outcome.TIE


def paired_gain(base: Sequence[float], other: Sequence[float]) -> PairedGain | None:
    """Gain of ``other`` over ``base``, seconds per call, each above 0, sampled in the same rounds.

    None with fewer than `FEWEST_ROUNDS` rounds.

    Raises:
        ValueError: the numbers of samples differ.

    Example:
        >>> from loopwright.measure import paired_gain
        >>> before = [1.00, 1.02, 0.99, 1.01, 1.00, 1.03]
        >>> after = [0.50, 0.51, 0.50, 0.50, 0.51, 0.51]
        >>> gain = paired_gain(before, after)
        >>> print(f"{gain.gain:.1f}", gain.outcome.value, gain.rounds)
        1.0 faster 6
    """
    ratios = [math.log(b / o) for b, o in zip(base, other, strict=True)]
    cut = _cut(len(ratios))
    if cut is None:
        return None
    pairs = enumerate(ratios)
    means = sorted((x + y) / 2 for i, x in pairs for y in ratios[i:])
    return PairedGain(
        math.expm1(statistics.median(means)),
        math.expm1(means[cut]),
        math.expm1(means[-1 - cut]),
        len(ratios),
    )


@lru_cache(maxsize=128)
def _cut(rounds: int) -> int | None:
    """Number of means outside of the interval on each side; None where none is possible."""
    # How many of all choices of signs give each sum of ranks: the distribution of the test.
    ways = [1]
    for rank in range(1, rounds + 1):
        longer = [*ways, *[0] * rank]
        for total, count in enumerate(ways):
            longer[total + rank] += count
        ways = longer
    allowed = (1 - CONFIDENCE) / 2 * 2**rounds
    outside, reached = -1, 0
    for count in ways:
        reached += count
        if reached > allowed:
            break
        outside += 1
    return outside if outside >= 0 else None
