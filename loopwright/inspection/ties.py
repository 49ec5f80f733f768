"""Ties with a winner: candidates whose time cannot be told from its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loopwright.measure.paired_ratios import paired_gain
from loopwright.records import Outcome, Record, ranked
from loopwright.records.playoffs import playoffs
from loopwright.records.reports.differences import time_ratio

#: Number of candidates that are compared: those nearest in rank.
LOOKED_AT = 32


@dataclass(frozen=True)
class Tie:
    """Candidate that may be as fast as the winner."""

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
    no tie. Only the `LOOKED_AT` candidates that are nearest in rank are compared.

    Args:
        winner: a record that has times; any one, not only the best.
        records: those of its setup.
        order: result of :func:`loopwright.records.ranked` for them, where that is known already.

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
    """Place of a record's candidate among ranked ones, from 0; None where it is not there."""
    # One by one: most often it is the first, and columns of records in this order take long.
    rows = (row for row, other in enumerate(order) if other.candidate == record.candidate)
    return next(rows, None)


def _nearest(winner: Record, order: Sequence[Record]) -> list[Record]:
    """Other candidates that are nearest to a record in rank; the best where it has no rank."""
    first = max(0, (place_of(winner, order) or 0) - LOOKED_AT // 2)
    near = order[first : first + LOOKED_AT + 1]
    return [other for other in near if other.candidate != winner.candidate][:LOOKED_AT]


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


def _window_tie(winner: Record, other: Record) -> Tie | None:
    ratio = time_ratio(winner, other)
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return Tie(other, ratio.value, ratio.low, ratio.high, False)
