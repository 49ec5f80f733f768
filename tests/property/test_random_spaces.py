"""Automatic spaces of random programs: every point gives what NumPy gives."""

from __future__ import annotations

from contextlib import closing

import pytest

from loopwright.testing import fuzz
from loopwright.testing.differential import Checker


@pytest.mark.parametrize(
    ("first", "count"), [(0, 60), pytest.param(10_000, 1500, marks=pytest.mark.slow)]
)
def test_points_of_structures(first: int, count: int) -> None:
    with closing(Checker()) as checker:
        run = fuzz.Fuzz(checker=checker, shrink_seconds=0)
        run.run_all(range(first, first + count), fuzz.SPACES)
    assert not run.failures, run.summary()
    # Programs of several stages and reductions, which rules know: hardly any has nothing to do.
    assert run.ends[fuzz.SPACES, "ran"] == count
    assert run.applied["annotate"] > count // 2
    assert min(run.applied["cache_write"], run.applied["cache_read"]) > 0, run.summary()
