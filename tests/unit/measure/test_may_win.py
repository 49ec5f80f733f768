"""Who stays in the first part of a playoff."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright.measure import ErrorKind, MeasureError
from loopwright.measure.playoff import Finalist, may_win


def finalist(slot: int, *times: float, failed: bool = False) -> Finalist:
    config: Any = slot
    found = Finalist(slot, config)
    found.times = list(times)
    found.error = MeasureError(ErrorKind.RUN_CRASH, "signal 11") if failed else None
    return found


@pytest.mark.parametrize(
    ("players", "stay"),
    [
        ([finalist(1, 1.0, 1.0, 1.0), finalist(2, 1.2, 1.2, 1.2)], [1]),
        ([finalist(1, 1.0, 1.0, 1.0), finalist(2, 1.2, 1.05, 1.2)], [1, 2]),
        # The machine was slow for a round: both were, so the ratio tells it.
        ([finalist(1, 1.0, 9.0, 1.0), finalist(2, 1.2, 10.8, 1.2)], [1]),
        ([finalist(1, 1.0, failed=True), finalist(2, 1.2, 1.2, 1.2)], [2]),
        ([finalist(1, 1.0, failed=True)], []),
        ([], []),
    ],
)
def test_who_loses_in_every_round_leaves(players: list[Finalist], stay: list[int]) -> None:
    assert [f.slot for f in may_win(players)] == stay


def test_who_left_in_fast_minutes_wins_against_nobody_who_stayed() -> None:
    """The machine became slower after the third round, when the first one had lost them all."""
    left, stayed = finalist(1, 1.2, 1.2, 1.2), finalist(2, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0)
    left.left = True
    failed = finalist(3, failed=True)
    assert sorted([failed, left, stayed], key=lambda f: f.order) == [stayed, left, failed]
