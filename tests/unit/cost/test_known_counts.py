"""Counts that are remembered, against going through the lanes of each description."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright.cost.symbolic import warps
from loopwright.cost.symbolic.warps import BANKS, KnownCounts, count_lanes, described

Accesses = list[tuple[str, tuple[Any, ...]]]


def accesses_of(seed: int, n: int = 300) -> Accesses:
    """Accesses of global and shared memory, with one digit and with two."""
    rng = np.random.default_rng(seed)
    head = rng.integers(1, 33, n) * 128.0 + 2.0 ** rng.integers(2, 5, n)
    run = 2.0 ** rng.integers(0, 5, n)
    digit = (rng.integers(0, 20000, n) * 4 * 128 + run) * 128 + 32 // run
    return [
        ("sectors", (32, 32, head, (4 * 128 + 1) * 128 + 8, digit)),
        ("wavefronts", (BANKS, 32, 16 * 128 + 4, digit)),
    ]


@pytest.mark.parametrize("kept", [1 << 12, 700, 10])
def test_counts_are_those_of_the_lanes_however_many_are_kept(kept: int) -> None:
    known = KnownCounts(kept)
    for seed in (0, 1, 0, 2, 1):
        accesses = accesses_of(seed)
        direct = count_lanes(described(accesses)).reshape(2, -1)
        assert np.array_equal(known.columns(accesses), direct)


def test_what_was_counted_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def noting(columns: Any) -> Any:
        counted.append(columns.shape[1])
        return count_lanes(columns)

    monkeypatch.setattr(warps, "count_lanes", noting)
    known, accesses = KnownCounts(), accesses_of(3)
    first = known.columns(accesses)
    different = len(np.unique(described(accesses), axis=1).T)
    assert sum(counted) == different
    assert np.array_equal(known.columns(accesses), first)
    assert sum(counted) <= different + 5  # a few may have lost both of their places


def test_descriptions_of_one_place_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warps, "_SPREAD", np.zeros(64, np.int64))
    known = KnownCounts()
    for seed in (0, 0, 1):
        accesses = accesses_of(seed, 20)
        direct = count_lanes(described(accesses)).reshape(2, -1)
        assert np.array_equal(known.columns(accesses), direct)
