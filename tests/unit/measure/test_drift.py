"""A drift of the machine is noticed, and noise is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright.tuner.run.sentinel import BASELINE, Drift, DriftWatch


def series(rng: np.random.Generator, count: int, spread: float = 0.01) -> list[float]:
    """Medians of three windows on a machine that wanders, has neighbours and heavy tails."""
    level = np.zeros(count)
    for i in range(1, count):
        level[i] = 0.9 * level[i - 1] + spread * np.sqrt(1 - 0.81) * rng.standard_normal()
    windows = level[:, None] + 0.004 * rng.standard_t(2, (count, 3))
    windows += (rng.random((count, 3)) < 0.15) * rng.exponential(0.15, (count, 3))
    return [float(t) for t in 1e-3 * np.exp(np.median(windows, axis=1))]


def alarms(times: list[float]) -> list[tuple[int, Drift]]:
    watch = DriftWatch()
    found = [(i, watch.add(t)) for i, t in enumerate(times)]
    return [(i, drift) for i, drift in found if drift is not None]


def test_noise_hardly_ever_raises_the_alarm():
    rng = np.random.default_rng(3)
    count = sum(len(alarms(series(rng, 100))) for _ in range(100))
    assert count < 20  # in 10 000 samples


@pytest.mark.parametrize("shift", [0.05, 0.3, -0.1])
def test_a_shift_is_noticed_within_a_few_samples_and_dated(shift):
    rng = np.random.default_rng(4)
    lags, dates, sizes = [], [], []
    for _ in range(60):
        times = series(rng, 60)
        moved = times[:30] + [t * (1 + shift) for t in times[30:]]
        late = [(i, drift) for i, drift in alarms(moved) if i >= 30]
        assert late
        at, drift = late[0]
        lags.append(at - 29)
        dates.append(at + 1 - drift.samples)
        sizes.append(drift.shift)
    assert np.median(lags) <= 5
    assert abs(np.median(dates) - 30) <= 1
    assert np.median(sizes) == pytest.approx(shift, abs=0.02)


def test_after_an_alarm_the_new_level_is_usual():
    times = [1.0] * BASELINE + [1.5] * 40
    ((at, drift),) = alarms(times)
    assert drift == Drift(pytest.approx(0.5), at + 1 - BASELINE)


def test_a_shift_too_small_to_matter_is_none():
    assert alarms([1.0] * 20 + [1.02] * 100) == []
