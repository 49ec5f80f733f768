"""Profiles: of the host's functions, of Python functions, and of kernels on a simulated device."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import numpy as np
import pytest

from loopwright.errors import ArgumentError, RunError, UsageError
from loopwright.runtime import Device, Function, Module, opencl, profiling
from loopwright.runtime.devices import launches
from loopwright.runtime.profiling import calls
from loopwright.runtime.profiling.calls import MetricCollector, ResourceCollector
from tests.unit.runtime import kernels
from tests.unit.runtime.profiling.simulated import Clocked, Kernels, Opaque, TwoKernels, clocked

ORIGINAL = vars(Function)["__call__"]


@pytest.fixture(autouse=True)
def _calls_are_as_they_were() -> Iterator[None]:
    yield
    assert vars(Function)["__call__"] is ORIGINAL, "a call costs what it cost before"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocked]:
    monkeypatch.setattr(calls, "_classes", [*calls._classes])
    profiling.observe_calls_of(TwoKernels)
    profiling.observe_calls_of(Opaque)
    profiling.observe_calls_of(TwoKernels)
    with clocked() as api:
        yield api


@pytest.fixture(scope="module")
def sleeper() -> Module:
    return kernels.sleep()


def nap(module: Module, us: int) -> None:
    module(np.array([us], np.int32), np.zeros(1, np.int64))


def test_a_function_of_the_host_is_one_row(sleeper: Module) -> None:
    counter = np.zeros(1, np.int64)
    report = profiling.profile(
        sleeper, (np.array([2000], np.int32), counter), number=5, warmup=2, flop=4e9
    )
    assert counter[0] == 7
    (row,) = report.calls
    assert (row.name, row.device, row.count, row.nbytes) == ("sleep", "cpu(0)", 5, 5 * 12)
    assert row.gflop == 20
    assert row.seconds >= 5 * 2000e-6
    assert report.runs == 5
    assert report.percent(row) == 100
    assert report.configuration["threads"].isdigit()


def test_each_call_of_a_python_function_is_a_row(sleeper: Module) -> None:
    add_one = kernels.add_one()
    a, b = np.zeros((2, 3), "float32"), np.zeros((2, 3), "float32")

    def work(us: int) -> None:
        nap(sleeper, us)
        add_one(a, b)
        time.sleep(0.01)
        nap(sleeper, us)

    report = profiling.profile(work, [3000], number=2, flop={"add_one": 6e9})
    assert [call.name for call in report.calls] == ["sleep", "add_one", "sleep"] * 2
    slow, quick = report.rows()
    assert (slow.name, slow.count, slow.gflop) == ("sleep", 4, None)
    assert slow.seconds >= 4 * 3000e-6
    assert (quick.name, quick.count, quick.nbytes, quick.gflop) == ("add_one", 2, 2 * 48, 12)
    assert report.wall_seconds >= report.seconds + 0.02, "what is between calls is in it"
    (total,) = report.devices()
    assert (total.device, total.count, total.percent) == ("cpu(0)", 6, 100)


def test_each_launch_of_a_device_is_a_row(api: Clocked) -> None:
    program = Kernels(api, {"first": 1e-3, "second": 3e-3})
    function = TwoKernels(program)
    report = profiling.profile(function, number=3, warmup=0, flop={"second": 1e9})
    assert [call.name for call in report.calls] == ["first", "second"] * 3
    second, first = report.rows()
    assert (second.name, second.device, second.count) == ("second", "ext_dev(0)", 3)
    assert second.seconds == pytest.approx(9e-3)
    assert (second.nbytes, second.gflop) == (3 * 200, 3)
    assert (first.nbytes, first.gflop) == (3 * 100, None)
    assert report.percent(first) == pytest.approx(25)
    # What goes to the device is what the function asked for.
    memory = function.memory
    assert program.launched[:2] == [
        ("first", (4, 1, 1), (32, 1, 1), (memory, 7), 0, None),
        ("second", (1, 1, 1), (1, 1, 1), (memory, memory), 16, None),
    ]


def test_launches_and_calls_of_several_devices_are_told_apart(
    api: Clocked, sleeper: Module
) -> None:
    two = TwoKernels(Kernels(api, {"first": 1e-3, "second": 3e-3}))
    opaque = Opaque(api, 0.5)

    def work() -> None:
        opaque()
        nap(sleeper, 1000)
        two()

    report = profiling.profile(work, number=1)
    assert [call.name for call in report.calls] == ["opaque", "sleep", "first", "second"]
    assert report.calls[0].seconds == pytest.approx(0.5)
    there, here = report.devices()
    assert (there.device, there.count) == ("ext_dev(0)", 3)
    assert there.seconds == pytest.approx(0.504)
    assert (here.device, here.count) == ("cpu(0)", 1)


def test_nothing_is_recorded_while_nobody_asks(api: Clocked) -> None:
    program = Kernels(api, {"first": 1.0, "second": 1.0})
    assert launches.recorded(program, api, 0) is program
    TwoKernels(program)()
    assert api.events == 0
    with launches.recording() as spans:
        other = threading.Thread(target=TwoKernels(program))
        other.start()
        other.join()
        assert not spans, "another thread is not recorded"
        with pytest.raises(KeyError):
            launches.recorded(program, api, 0).launch("third", (1, 1, 1), (1, 1, 1), [])
        assert not spans, "a launch that was refused is none"


def test_a_clock_that_runs_backwards_counts_as_nothing(api: Clocked) -> None:
    report = profiling.profile(Opaque(api, -1e-7), number=1)
    assert report.calls[0].seconds == 0
    assert report.percent(report.calls[0]) == 0


def test_a_call_belongs_to_the_device_of_its_arrays(api: Clocked) -> None:
    function = Opaque(api, 1.0)
    there = SimpleNamespace(device=Device("ext_dev", 1))
    here = SimpleNamespace(device=Device("cpu", 0))
    assert calls.home_of(function, (here, 3, there)) == Device("ext_dev", 1)
    assert calls.home_of(function, (here,)) == Device("ext_dev", 0)


TWICE = b"""
__kernel void twice(__global const float *a, __global float *b, long n) {
  int i = get_global_id(0);
  if (i < n) b[i] = 2 * a[i];
}
"""


def test_launches_of_opencl_have_the_time_of_their_events() -> None:
    if not opencl().exist:
        pytest.skip(opencl().why_absent())
    api = opencl().api
    memory = api.allocate(0, 4096)
    program = api.load(0, TWICE, ["twice"])
    begin = time.perf_counter()
    with launches.recording() as spans:
        for _ in range(2):
            shown = launches.recorded(program, api, 0)
            shown.launch("twice", (8, 1, 1), (128, 1, 1), [memory, memory, 1000])
        seconds = [span.timer.seconds() for span in spans]
    wall = time.perf_counter() - begin
    api.free(memory)
    assert [(s.name, s.device, s.nbytes) for s in spans] == [("twice", "opencl(0)", 8192)] * 2
    assert all(0 < s < wall for s in seconds)
    assert sum(seconds) <= wall


class Counting(MetricCollector):
    def __init__(self) -> None:
        self.log: list[str] = []

    def start(self, device: Device) -> object:
        self.log.append(f"start {device}")
        return len(self.log)

    def stop(self, started: object) -> Mapping[str, int | float]:
        self.log.append(f"stop {started}")
        return {"pairs": 1}


def test_collectors_count_around_each_call(sleeper: Module) -> None:
    counting = Counting()
    report = profiling.profile(nap, (sleeper, 1), number=3, warmup=0, collectors=[counting])
    assert counting.log == [
        *("start cpu(0)", "stop 1", "start cpu(0)", "stop 3", "start cpu(0)", "stop 5")
    ]
    (row,) = report.rows()
    assert row.metrics == {"pairs": 3}
    assert "pairs" in report.table().splitlines()[0]


def test_page_faults_are_counted() -> None:
    collector = ResourceCollector()
    started = collector.start(Device("cpu", 0))
    np.zeros(64 << 20, np.uint8)[::4096] = 1
    assert collector.stop(started)["Minor faults"] > 0


def test_other_threads_are_not_in_the_profile(sleeper: Module) -> None:
    def work() -> None:
        other = threading.Thread(target=nap, args=(sleeper, 1))
        other.start()
        other.join()
        nap(sleeper, 1)

    assert len(profiling.profile(work, number=1, warmup=0).calls) == 1


def test_a_call_inside_a_call_is_part_of_it(api: Clocked, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Opaque(api, 1.0)

    class Outer(Opaque):
        name = "outer"

        def __call__(self) -> None:
            inner()
            api.now += 2.0

    profiling.observe_calls_of(Outer)
    report = profiling.profile(Outer(api, 0.0), number=1, warmup=0)
    assert [(call.name, call.seconds) for call in report.calls] == [("outer", 3.0)]


def test_profile_function() -> None:
    counter = np.zeros(1, np.int64)
    timed = profiling.profile_function(kernels.count(), "cpu", func_name="count", warmup_iters=3)
    assert timed(counter).calls[0].count == 1
    assert counter[0] == 4

    module = kernels.count()

    @profiling.profile_function
    def work(counter: np.ndarray) -> None:
        """Count."""
        module(counter)

    assert (work.__name__, work.__doc__) == ("work", "Count.")
    assert work(counter).calls[0].name == "count"


def test_what_cannot_be_profiled() -> None:
    module, args = kernels.count(), (np.zeros(1, np.int64),)
    for bad in ({"number": 0}, {"number": 1.5}, {"warmup": -1}, {"number": True}):
        with pytest.raises(UsageError, match="whole number"):
            profiling.profile(module, args, **bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"names 'cuont' \(did you mean 'count'\?\)"):
        profiling.profile(module, args, flop={"cuont": 1})
    other = kernels.add_one()
    a, b = np.zeros((2, 3), "float32"), np.zeros((2, 3), "float32")
    with pytest.raises(UsageError, match="flop is one number, but count, add_one ran"):
        profiling.profile(lambda: (module(*args), other(a, b)), flop=1)
    with pytest.raises(UsageError, match=r"the code is for cpu\(0\), not for cuda\(0\)"):
        profiling.profile_function(module.get_function("count"), "cuda")
    with pytest.raises(UsageError, match="func_name 'f' is for modules"):
        profiling.profile_function(print, func_name="f")
    with pytest.raises(AttributeError, match="no function 'f'"):
        profiling.profile_function(module, func_name="f")
    for wrong in ((), (np.zeros(2, np.int64),)):
        with pytest.raises(ArgumentError):
            profiling.profile(module, wrong)


def test_a_failing_call_leaves_nothing_behind() -> None:
    fails = kernels.artifact(kernels.FAIL, "fail", [kernels.arg("code", [1], "int32")])
    module = Module(fails)
    with pytest.raises(RunError, match="failed with code 3"):
        profiling.profile(lambda: module(np.array([3], np.int32)), warmup=0)
    assert launches._recorded.get() is None
