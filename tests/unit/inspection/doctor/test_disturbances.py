"""The doctor on other load, the clock, and the noise of times."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from loopwright.inspection.doctor import State, SystemFiles
from loopwright.inspection.doctor import disturbances as noise_module
from loopwright.inspection.doctor.disturbances import (
    cpu_times,
    load,
    noise,
    read_clock,
    spread,
    steps_of,
    timer,
)
from loopwright.measure import DeviceLock
from tests.unit.inspection.doctor.trees import tree

SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"


def stat(user: int, idle: int, steal: int = 0) -> str:
    total = f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\n"
    return total + "cpu0 1 0 0 1 0 0 0 0 0 0\ncpu1 1 0 0 1 0 0 0 0 0 0\nintr 12\n"


def watched(tmp_path, before: str, after: str):
    """The findings where the counters change while the doctor waits."""
    files = tree(tmp_path, {"/proc/stat": before, "/proc/loadavg": "1.50 1 1 1/1 1\n"})
    return load(files, lambda seconds: (tmp_path / "proc/stat").write_text(after))


def test_a_quiet_machine(tmp_path):
    busy, stolen = watched(tmp_path, stat(100, 1000), stat(101, 1099))
    assert busy.state is stolen.state is State.OK
    assert busy.found == "other programs keep 0.0 of 2 CPUs busy (load average 1.50)"


def test_other_programs(tmp_path):
    busy, stolen = watched(tmp_path, stat(100, 1000), stat(150, 1050))
    assert busy.state is State.WARNING
    assert busy.found.startswith("other programs keep 1.0 of 2 CPUs busy")
    assert stolen.state is State.OK


def test_stolen_time_now_and_before(tmp_path):
    _, now = watched(tmp_path, stat(0, 100000), stat(0, 100090, 10))
    assert now.state is State.WARNING
    assert "10.0%" in now.found
    _, earlier = watched(tmp_path, stat(0, 900, 100), stat(0, 1000, 100))
    assert earlier.state is State.WARNING


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu  a b c d\n", "intr 1\n"])
def test_counters_that_cannot_be_read(tmp_path, text):
    files = tree(tmp_path, {"/proc/stat": text})
    assert cpu_times(files) is None
    assert [f.state for f in load(files, lambda seconds: None)] == [State.UNKNOWN] * 2


def test_counters_that_go_back(tmp_path):
    busy, _ = watched(tmp_path, stat(100, 1000), stat(95, 1100))
    assert busy.found.startswith("other programs keep 0.0 of 2")


def test_counters_that_stand_still(tmp_path):
    files = tree(tmp_path, {"/proc/stat": stat(1, 1)})
    assert [f.state for f in load(files, lambda seconds: None)] == [State.UNKNOWN] * 2


@pytest.mark.parametrize(
    ("source", "resolution", "overhead", "state"),
    [
        ("tsc", 1e-9, 30e-9, State.OK),
        ("", 1e-9, 30e-9, State.OK),
        ("hpet", 1e-9, 900e-9, State.WARNING),
        ("tsc", 1e-3, 30e-9, State.WARNING),
        ("xen", 1e-9, 2e-4, State.WARNING),
    ],
)
def test_timer(tmp_path, source, resolution, overhead, state):
    assert timer(tree(tmp_path, {SOURCE: source}), resolution, overhead).state is state


def test_steps_of_clocks():
    assert steps_of([0, 0, 0, 1000, 1000, 2000]) == pytest.approx((1e-6, 4e-7))
    fine, overhead = steps_of([0, 40, 80, 121])
    assert fine < 1e-6
    assert overhead == pytest.approx(121e-9 / 3)
    assert steps_of([5, 5, 5]) == (math.inf, 0.0), "it stood still"


def test_a_coarse_clock_is_waited_for(tmp_path, monkeypatch):
    ticks = (4_000_000 * (n // 30_000) for n in itertools.count())
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(ticks))
    resolution, overhead = read_clock()
    assert resolution == pytest.approx(4e-3)
    assert timer(SystemFiles(tmp_path), resolution, overhead).state is State.WARNING


def test_this_machine_has_a_clock():
    resolution, overhead = read_clock()
    assert 0 < resolution < 1
    assert 0 < overhead < 1


def test_the_spread_is_between_percentiles_and_beside_the_median():
    times = np.random.default_rng(0).normal(1.0, 0.1, 4000)
    found = spread({1: times.tolist(), 8: (times / 1000).tolist()})
    assert found.state is State.WARNING
    shares = [float(word.rstrip("%")) for word in found.found.split() if word.endswith("%")]
    assert shares == pytest.approx([25.6, 25.6], abs=1.0), "2.56 standard deviations"
    assert "with 1 thread and" in found.found
    # two standard errors of the difference of two medians of five windows, drawn here
    rng = np.random.default_rng(1)
    medians = np.median(rng.normal(1.0, 0.1, (2, 20000, 5)), axis=2)
    expected = 2 * np.std(medians[0] - medians[1])
    assert f"{noise_module._seen(0.256):.2f}" in {f"{expected + d:.2f}" for d in (-0.01, 0, 0.01)}


def test_a_quiet_kernel():
    times = [1.0, 1.001] * 25
    assert spread({1: times}).state is State.OK


def test_noise_is_not_measured_while_another_process_has_the_device(monkeypatch):
    monkeypatch.setattr(noise_module, "_windows", lambda threads: pytest.fail("measured"))
    lock = DeviceLock()
    lock.acquire()
    try:
        found = noise([1])
    finally:
        lock.release()
    assert found.state is State.UNKNOWN
    assert "is timing kernels" in found.found


def test_noise_gives_the_device_back(monkeypatch):
    monkeypatch.setattr(noise_module, "_windows", lambda threads: [1.0] * 50)
    assert noise([1, 2]).state is State.OK
    lock = DeviceLock()
    assert lock.try_acquire() == ""
    assert lock.held
    assert lock.try_acquire() == ""
    lock.release()


def test_windows_of_the_reference_kernel_are_of_the_length_that_tuning_uses(monkeypatch):
    monkeypatch.setattr(noise_module, "COUNT", 10)
    times = noise_module._windows(1)
    assert len(times) == 10
    assert all(time > 0 for time in times)


def test_no_system_at_all(tmp_path):
    assert timer(SystemFiles(tmp_path), 1e-9, 1e-8).state is State.OK
