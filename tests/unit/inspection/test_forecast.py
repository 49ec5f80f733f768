"""How well what was measured next would have been predicted."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright.errors import RecordError
from loopwright.inspection.report.series import AHEAD, FEWEST, forecasts
from loopwright.records import Record
from tests.unit.inspection.report_logs import trial


def drawn(count: int, noise: float, seed: int = 0) -> list[Record]:
    """Trials whose time is a sum over two knobs, and noise."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 8, count), rng.integers(0, 8, count)
    times = np.exp(0.3 * a - 0.2 * b + noise * rng.standard_normal(count)) * 1e-3
    return [
        trial(n, config={"a": int(a[n]), "b": [-1, int(b[n])]}, times=(float(times[n]),),
              error=None, dropped=False)
        for n in range(count)
    ]  # fmt: skip


def test_what_knobs_decide_is_learned() -> None:
    found = forecasts(drawn(300, noise=0.01))
    assert found[0].before == found[0].trained_on == FEWEST
    assert found[-1].correlation > 0.95
    assert found[-1].correlation > found[0].correlation
    befores = [one.before for one in found]
    assert befores == sorted(set(befores))
    # Every trial from the first place on is predicted once.
    assert sum(one.count for one in found) == 300 - FEWEST
    assert all(one.count >= AHEAD for one in found)


def test_noise_is_not_learned() -> None:
    rng = np.random.default_rng(1)
    times = (float(t) * 1e-3 for t in rng.uniform(1, 2, 300))
    records = [trial(one.trial, config=one.config, times=(next(times),), error=None)
               for one in drawn(300, 0.0)]  # fmt: skip
    assert abs(np.mean([one.correlation for one in forecasts(records)])) < 0.25


def test_the_same_records_give_the_same_answer() -> None:
    records = drawn(120, 0.1)
    assert forecasts(records, places=3) == forecasts(records, places=3)


def test_failures_and_what_was_measured_again_are_left_out() -> None:
    records = drawn(100, 0.1)
    more = [trial(6), trial(3, phase="playoff"), trial(2, same_as="0123456789")]
    assert forecasts([*more, *records], places=3) == forecasts(records, places=3)


def test_too_little_is_refused_with_the_reason() -> None:
    with pytest.raises(RecordError, match="there are 20 trials with a time, and 36 are needed"):
        forecasts(drawn(20, 0.0))
    with pytest.raises(RecordError, match="no knob varies"):
        forecasts([trial(n, config={"a": 1}, times=(1e-3,), error=None) for n in range(50)])
