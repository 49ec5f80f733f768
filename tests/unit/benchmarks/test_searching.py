from __future__ import annotations

from benchmarks.searching import Step, first


def test_the_first_trial_that_reaches_a_share():
    steps = [Step(0, 1.0, 0.3), Step(1, 1.5, 0.2), Step(2, 2.5, 0.6), Step(3, 3.0, 0.9)]
    assert first(steps, 0.3) == (0, 1.0)
    assert first(steps[1:], 0.3) == (2, 2.5)
    assert first(steps, 0.95) is None
