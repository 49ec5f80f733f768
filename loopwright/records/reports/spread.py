"""Spread of the timed windows of one measurement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def spread(times: Sequence[float]) -> float | None:
    """The distance between the quartiles of the times (seconds per call) as a share of their
    median: 0.02 where the middle half of the windows spans 2 % of it; None for fewer than two.

    Example:
        >>> from loopwright.records.reports.spread import spread
        >>> print(spread([1.0, 1.0, 1.1, 1.2, 1.2]), spread([1.0]))
        0.1818... None
    """
    return spreads([times])[0]


def spread_text(times: Sequence[float]) -> str:
    """`spread` for people: ``2.3%``, or ``-``."""
    share = spread(times)
    return "-" if share is None else f"{share:.1%}"


def spreads(times: Iterable[Sequence[float]]) -> list[float | None]:
    """`spread` of many measurements."""
    rows = list(times)
    shares: list[float | None] = [None] * len(rows)
    by_count: dict[int, list[int]] = {}
    for row, windows in enumerate(rows):
        by_count.setdefault(len(windows), []).append(row)
    for count, places in by_count.items():
        if count < 2:
            continue
        table = np.array([rows[place] for place in places], dtype=np.float64)
        low, middle, high = np.quantile(table, (0.25, 0.5, 0.75), axis=1)
        for place, share in zip(places, ((high - low) / middle).tolist(), strict=True):
            shares[place] = share
    return shares
