"""How sure a winner is: the candidates whose time cannot be told from its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loopwright.measure.playoff.paired_ratios import paired_gain
from loopwright.records import Outcome, Record, ranked
from loopwright.records.playoffs import playoffs
from loopwright.records.reports.differences import time_ratio

#: So many candidates are looked at: those that are nearest in rank.
LOOKED_AT = 32


@dataclass(frozen=True)
class Tie:
    """A candidate that may be as fast as the winner.

    Attributes:
        record: its record.
        ratio: its time by that of the winner.
        low: lower end of the interval of 95 % of that ratio.
        high: upper end of it.
        paired: True where both were sampled in the same rounds of a playoff; otherwise what
            changed on the machine between the two measurements is not in the interval.
    """

    record: Record
    ratio: float
    low: float
    high: float
    paired: bool


def ties_of(
    winner: Record, records: Iterable[Record], order: Sequence[Record] | None = None
) -> list[Tie]:
    """The candidates that cannot be told from a winner, the fastest first.

    Samples of one playoff are compared in pairs, by the intervals that verdicts rest on; others by
    a bootstrap of their windows. A candidate with fewer than five windows has no interval, and is
    no tie. Only the `LOOKED_AT` candidates that are nearest in rank are looked at.

    Args:
        winner: a record that has times; any one, not only the best.
        records: those of its setup.
        order: what :func:`loopwright.records.ranked` gives for them, where that is known already.

    Example:
        >>> from loopwright.inspection.ties import ties_of
        >>> records = lw.records.load("matmul.jsonl").records
        >>> ties = ties_of(lw.records.best(records), records)
        >>> print(all(tie.record in records for tie in ties))
        True
    """
    records = list(records)
    playoff = playoffs(records)
    found = []
    for other in _nearest(winner, ranked(records) if order is None else order):
        same = winner.id in playoff and playoff[winner.id] == playoff.get(other.id)
        tie = _paired_tie(winner, other) if same else None
        if tie is None:
            tie = _window_tie(winner, other)
        if tie is not None and tie.low <= 1.0 <= tie.high:
            found.append(tie)
    return sorted(found, key=lambda tie: tie.ratio)


def place_of(record: Record, order: Sequence[Record]) -> int | None:
    """The place of a record's candidate among ranked ones, from 0; None where it is not there."""
    # One by one: most often it is the first, and columns of records in this order take long.
    rows = (row for row, other in enumerate(order) if other.candidate == record.candidate)
    return next(rows, None)


def _nearest(winner: Record, order: Sequence[Record]) -> list[Record]:
    """The other candidates that are nearest to a record in rank; the best where it has no rank."""
    first = max(0, (place_of(winner, order) or 0) - LOOKED_AT // 2)
    near = order[first : first + LOOKED_AT + 1]
    return [other for other in near if other.candidate != winner.candidate][:LOOKED_AT]


def _paired_tie(winner: Record, other: Record) -> Tie | None:
    """By the rounds that both took part in: those that lose early have fewer, from the first on."""
    rounds = min(len(winner.times), len(other.times))
    gain = paired_gain(other.times[:rounds], winner.times[:rounds])
    if gain is None:
        return None
    # A gain too small to count is none, as in a verdict.
    near = 1.0 if gain.outcome is Outcome.TIE else 1.0 + gain.low
    low, high = min(near, 1.0 + gain.low), max(near, 1.0 + gain.high)
    return Tie(other, 1.0 + gain.gain, low, high, True)


def _window_tie(winner: Record, other: Record) -> Tie | None:
    ratio = time_ratio(winner, other)
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return Tie(other, ratio.value, ratio.low, ratio.high, False)
