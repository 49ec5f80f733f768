"""Comparison of times: ties with a winner, intervals of medians, changes between measurements."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loopwright.measure import CONFIDENCE, SMALLEST_GAIN, paired_gain
from loopwright.records import (
    FEWEST_WINDOWS,
    Outcome,
    Record,
    playoffs,
    ranked,
    ratio_interval,
    time_ratio,
)

#: Number of candidates that are compared: those nearest in rank.
LOOKED_AT = 32


@dataclass(frozen=True)
class Tie:
    record: Record
    ratio: float  # its time over that of the winner
    low: float  # lower end of the 95 % confidence interval of that ratio
    high: float  # upper end of it
    #: Whether both were sampled in the same rounds of a playoff; otherwise changes of the machine
    #: between the two measurements are not in the interval.
    paired: bool


def ties_of(
    winner: Record, records: Iterable[Record], order: Sequence[Record] | None = None
) -> list[Tie]:
    """Find the candidates that cannot be told from a winner, the fastest first.

    Samples of one playoff are compared in pairs, by the intervals that verdicts rest on; others by
    a bootstrap of their windows. A candidate with fewer than five windows has no interval, and is
    no tie. Only the `LOOKED_AT` candidates that are nearest in rank, by ``order``, are compared.
    """
    records = list(records)
    playoff = playoffs(records)
    order = ranked(records) if order is None else order
    first = max(0, (place_of(winner, order) or 0) - LOOKED_AT // 2)
    near = order[first : first + LOOKED_AT + 1]
    ties = []
    for other in [one for one in near if one.candidate != winner.candidate][:LOOKED_AT]:
        same = winner.id in playoff and playoff[winner.id] == playoff.get(other.id)
        tie = _paired_tie(winner, other) if same else None
        ratio = time_ratio(winner, other) if tie is None else None
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            tie = Tie(other, ratio.value, ratio.low, ratio.high, False)
        if tie is not None and tie.low <= 1.0 <= tie.high:
            ties.append(tie)
    return sorted(ties, key=lambda tie: tie.ratio)


def place_of(record: Record, order: Sequence[Record]) -> int | None:
    """Place of a record's candidate among ranked ones, from 0; None where it is not there."""
    # One by one: most often it is the first, and columns of records in this order take long.
    rows = (row for row, other in enumerate(order) if other.candidate == record.candidate)
    return next(rows, None)


def _paired_tie(winner: Record, other: Record) -> Tie | None:
    """Tie by the rounds of both: candidates that lose early have fewer, from the first on."""
    rounds = min(len(winner.times), len(other.times))
    gain = paired_gain(other.times[:rounds], winner.times[:rounds])
    if gain is None:
        return None
    # A gain too small to count is none, as in a verdict.
    near = 1.0 if gain.outcome is Outcome.TIE else 1.0 + gain.low
    low, high = min(near, 1.0 + gain.low), max(near, 1.0 + gain.high)
    return Tie(other, 1.0 + gain.gain, low, high, True)


#: Fewer samples have no interval: both ends would lie outside of them.
_FEWEST = 6
#: An interval that is wider to each side holds too many differences to say that there is none.
_TOO_NOISY = 0.1


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """Confidence interval (95 %) of the median of samples; None with fewer than 6 samples.

    Its ends are samples themselves: each lies below the median with probability 1/2, whatever the
    shape of the noise is, so that the binomial distribution tells how many may lie outside
    (Hollander, Wolfe, Chicken, "Nonparametric Statistical Methods", 3rd ed., section 3.5).
    """
    from scipy.stats import quantile_test

    if len(samples) < _FEWEST:
        return None
    interval = quantile_test(samples, p=0.5).confidence_interval(CONFIDENCE)
    return float(interval.low), float(interval.high)


@dataclass(frozen=True)
class Change:
    """Change of the time of a kernel from one measurement to another.

    Example:
        >>> from loopwright.inspection import Change
        >>> print(Change(gain=0.31, low=0.29, high=0.33).gain)
        0.31
    """

    gain: float  #: share by which it is faster now, such as 0.031 for 3.1 %; negative: slower
    low: float  #: lower end of the 95 % confidence interval of the gain
    high: float

    @property
    def margin(self) -> float:
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
    """Compare two sets of times of one kernel, in seconds per call, taken at different moments.

    The interval is that of `records.reports.differences.time_ratio`. It covers the noise within
    each set, not changes of the machine between them. None where one has fewer than 5 samples.

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
