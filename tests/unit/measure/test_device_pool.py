"""Several devices side by side: the order of things with stand-ins, and two real devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loopwright.errors import RunError
from loopwright.measure.result import MeasureResult
from loopwright.measure.session import Clock, DevicePool, result_of
from loopwright.records import Checked
from tests.unit.measure.device_kernels import needs_opencl

ROOT = Path(__file__).parents[3]


class Runner:
    """A runner that does nothing itself."""

    def __init__(self, name: str) -> None:
        self.name, self.pump, self.resets = name, None, 0

    def another(self, pump: Callable[[Sequence[Any]], None]) -> Runner:
        other = Runner(self.name)
        other.pump = pump
        return other

    def undisturbed(self, measure: Callable[[], MeasureResult]) -> MeasureResult:
        return measure()

    def reset(self) -> None:
        self.resets += 1


class Watched:
    """Measures by looking who measures what at the same time."""

    def __init__(self, act: Callable[[Any, float | None], float]) -> None:
        self.act = act
        self.lock = threading.Lock()
        self.busy: dict[str, Any] = {}
        self.begun: list[Any] = []
        self.most = 0

    def __call__(self, runner: Any, build: Any, incumbent: float | None) -> MeasureResult:
        with self.lock:
            assert runner.name not in self.busy, "a device has two candidates at once"
            self.busy[runner.name] = build
            self.begun.append(build)
            self.most = max(self.most, len(self.busy))
        try:
            runner.pump([])
            return MeasureResult((self.act(build, incumbent),), checked=Checked.YES)
        finally:
            with self.lock:
                del self.busy[runner.name]


class Session:
    """A measure session whose candidates are numbers."""

    def __init__(self, measure: Watched) -> None:
        self.option = SimpleNamespace(runner=SimpleNamespace(check=False, cooldown_interval=0.0))
        self.clock, self._measure = Clock(), measure

    def on_thread(self, runner: Any) -> Any:
        measure = partial(self._measure, runner)
        return SimpleNamespace(option=self.option, clock=Clock(), runner=runner, measure=measure)


def pool(measure: Watched, devices: int = 2) -> DevicePool:
    runners = [Runner(f"device {n}") for n in range(devices)]
    return DevicePool(Session(measure), runners)  # type: ignore[arg-type]


def work(count: int) -> list[Any]:
    return list(range(count))


def slowly(candidate: int, incumbent: float | None) -> float:
    time.sleep(0.01)
    return 1.0 + candidate


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_each_device_has_one_candidate_at_a_time_and_results_keep_their_order(
    devices: int,
) -> None:
    measure, before = Watched(slowly), set(threading.enumerate())
    spread = pool(measure, devices)
    found = [result_of(f).median for f in spread.measure(work(12), None)]
    assert found == [1.0 + n for n in range(12)]
    assert sorted(measure.begun) == list(range(12))
    assert measure.begun[0] == 0
    assert measure.most == devices
    spread.stop()
    assert set(threading.enumerate()) <= before  # its threads have ended
    assert spread._threads == []


def test_a_faster_result_is_what_those_after_it_are_raced_with() -> None:
    seen: list[float | None] = []

    def act(candidate: int, incumbent: float | None) -> float:
        seen.append(incumbent)
        return 10.0 - candidate

    spread = pool(Watched(act), 1)
    for future in spread.measure(work(3), 20.0):
        result_of(future)
    spread.rest()
    assert seen == [20.0, 10.0, 9.0]
    spread.stop()


def test_a_lost_device_ends_the_run_at_its_candidate() -> None:
    def act(candidate: int, incumbent: float | None) -> float:
        if candidate == 1:
            raise RunError("cannot start a runner process: cuda(1) is gone")
        return 1.0

    spread = pool(Watched(act))
    first, second, *_ = spread.measure(work(4), None)
    assert result_of(first).median == 1.0
    with pytest.raises(RunError, match="cuda\\(1\\) is gone"):
        result_of(second)
    spread.stop()


def test_stopping_gives_up_what_is_measured_and_what_waits() -> None:
    begun = threading.Event()
    spread: DevicePool | None = None

    def act(candidate: int, incumbent: float | None) -> float:
        begun.set()
        assert spread is not None
        while True:  # a kernel that hangs, whose runner is waited for again and again
            time.sleep(0.005)
            spread._pump([])

    spread = pool(Watched(act), 1)
    futures = spread.measure(work(3), None)
    assert begun.wait(10)
    spread.stop()
    for future in futures:
        with pytest.raises(RunError, match="was given up; run the command again"):
            result_of(future)
    spread._session._measure = Watched(lambda candidate, incumbent: 2.0)  # and it can be used again
    assert result_of(spread.measure(work(1), None)[0]).median == 2.0
    spread.stop()


_AFTERWARDS = """
import sys, threading, time
sys.path.insert(0, {root!r})
from tests.unit.measure.test_device_pool import Watched, pool, result_of, slowly

def later():
    threading.main_thread().join()
    print(result_of(pool(Watched(slowly)).measure([3], None)[0]).median)

threading.Thread(target=later).start()
pool(Watched(lambda candidate, incumbent: time.sleep(60))).measure([0, 1, 2], None)
"""


def test_a_pool_works_after_the_main_thread_and_a_hanging_one_keeps_no_process() -> None:
    command = [sys.executable, "-c", _AFTERWARDS.format(root=str(ROOT))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4.0\n", "")


def test_a_device_rests_after_each_candidate_and_not_before_one() -> None:
    begun: list[float] = []

    def act(candidate: int, incumbent: float | None) -> float:
        begun.append(time.monotonic())
        return 1.0

    spread = pool(Watched(act), 1)
    spread._session.option.runner.cooldown_interval = 0.4  # type: ignore[misc]
    spread.measure(work(2), None)
    spread.rest()
    assert begun[1] - begun[0] >= 0.4
    time.sleep(0.5)
    asked = time.monotonic()
    spread.measure(work(1), None)
    spread.rest()
    assert begun[2] - asked < 0.3  # it has rested
    spread.stop()


_TWO = """
import json, sys
sys.path.insert(0, {root!r})
from tests.unit.measure import test_device_tuning as one
from loopwright import records
from loopwright.measure import LocalBuilder, LocalRunner, Measurer, MeasureInput, measure_option
from loopwright.task import create_task, template

if __name__ == "__main__":
    template(one.NAME, reference=lambda a, b: a.astype("float64") @ b)(one.matmul)
    task = create_task(one.NAME, (64,), one.TARGET)
    option = measure_option(
        LocalBuilder(n_parallel=1, timeout=30),
        LocalRunner(number=1, repeat=2, device=["opencl:0", "opencl:1"]),
    )
    with Measurer(task, option) as m:
        pids = [s.worker.pid for s in m.session.runners]
        inputs = [MeasureInput(task, task.config_space.get(i)) for i in range(6)]
        results = list(m.measure(inputs))
        asked = [s.worker.answered for s in m.session.runners]
        again = m.measure_again([task.config_space.get(0)], 2)
    print(json.dumps({{
        "devices": [str(d) for d in m.session.devices],
        "locks": [lock.path.name for lock in m.session.locks],
        "kinds": [r.error and r.error.kind for r in results],
        "checked": [r.checked.value for r in results],
        "errors": [r.max_error for r in results if r.checked.value == "yes"],
        "pids": len(set(pids)), "asked": asked, "again": again[0].usable,
    }}))
"""


@needs_opencl
def test_two_real_devices_measure_one_batch(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(_TWO.format(root=str(ROOT)))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={
            **os.environ,
            "POCL_DEVICES": "pthread pthread",
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    if '"devices"' not in done.stdout:
        pytest.fail(done.stdout)
    told = json.loads(done.stdout)
    assert told["devices"] == ["opencl(0)", "opencl(1)"]
    assert told["pids"] == 2
    assert len(set(told["locks"])) == 3  # of each device, and of the CPU, which plays both
    assert sorted(map(str, told["kinds"])) == ["COMPILE"] * 2 + ["None"] * 4
    assert told["checked"].count("yes") >= 1
    assert max(told["errors"]) < 1e-3
    assert min(told["asked"]) >= 2  # both made data and raced a kernel
    assert told["again"]
