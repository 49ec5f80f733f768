"""Real measurements in tests that are not about them, in less time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from loopwright.measure.paired_ratios import FEWEST_ROUNDS


@contextmanager
def quick_measuring() -> Iterator[None]:
    """Measure with one builder in this block, and hold playoffs of as many rounds as an interval
    needs.

    ``tests/unit/measure`` measures as everybody does.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loopwright.measure.options.usable_cpus", lambda: (0,))
        patch.setattr("loopwright.measure.playoff.JUDGING", (FEWEST_ROUNDS, FEWEST_ROUNDS))
        yield
