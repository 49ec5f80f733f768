"""The monitor: what it sees of calls, caches and memory, and that it leaves no trace."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from loopwright.errors import RunError, UsageError
from loopwright.runtime import Device, Function, Module, RuntimeCache
from loopwright.runtime import caches as usage
from loopwright.runtime.memory import device_allocator
from loopwright.runtime.profiling import PerformanceMonitor, calls, monitor, observe_calls_of
from loopwright.testing.simulated_device import SimulatedDevice
from tests.unit.runtime import kernels
from tests.unit.runtime.profiling.simulated import Opaque, clocked

ORIGINAL = vars(Function)["__call__"]


@pytest.fixture(autouse=True)
def _calls_are_as_they_were() -> Iterator[None]:
    yield
    assert vars(Function)["__call__"] is ORIGINAL


@pytest.fixture(scope="module")
def sleeper() -> Module:
    return kernels.sleep()


def nap(module: Module, us: int) -> None:
    module(np.array([us], np.int32), np.zeros(1, np.int64))


def test_it_sees_the_calls_of_its_block(sleeper: Module) -> None:
    nap(sleeper, 5000)
    with PerformanceMonitor() as watch:
        assert vars(Function)["__call__"] is not ORIGINAL
        nap(sleeper, 5000)
        time.sleep(0.02)
        nap(sleeper, 5000)
        before = watch.metrics()
        nap(sleeper, 5000)
    nap(sleeper, 5000)
    seen = watch.metrics()
    assert (before.calls, seen.calls) == (2, 3)
    assert 10 <= before.execution_time_ms < seen.execution_time_ms
    assert seen.execution_time_ms >= 15
    assert 0 < seen.device_utilization < 1
    assert seen.utilization == {"cpu(0)": seen.device_utilization}


def test_calls_of_several_threads_overlap_and_utilization_stays_a_share(sleeper: Module) -> None:
    with PerformanceMonitor() as watch:
        threads = [threading.Thread(target=nap, args=(sleeper, 30_000)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen = watch.metrics()
    assert seen.calls == 4
    assert seen.execution_time_ms >= 120
    assert 0 < seen.device_utilization <= 1


class Waiting:
    """A function of the host that runs until it is let go."""

    name = "waiting"
    args = ()
    device = Device("cpu", 0)

    def __init__(self) -> None:
        self.inside, self.let_go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.inside.set()
        self.let_go.wait(timeout=60)


def test_a_call_that_runs_counts_in_the_utilization(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_classes", [*calls._classes])
    observe_calls_of(Waiting)
    function = Waiting()
    with PerformanceMonitor() as watch:
        thread = threading.Thread(target=function)
        thread.start()
        assert function.inside.wait(timeout=60)
        time.sleep(0.002)
        seen = watch.metrics()
        function.let_go.set()
        thread.join()
    assert (seen.calls, seen.execution_time_ms) == (0, 0)
    assert seen.device_utilization > 0
    assert watch.metrics().calls == 1


def test_devices_have_their_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_classes", [*calls._classes])
    monkeypatch.setattr(monitor, "_MOST_PENDING", 4)
    observe_calls_of(Opaque)
    with clocked() as api, PerformanceMonitor() as watch:
        for _ in range(5):
            Opaque(api, 1e-6)()
        assert api.waits == 3, "the oldest calls are waited for when too many are open"
        seen = watch.metrics()
        assert seen.calls == api.waits == 5
        assert seen.execution_time_ms == pytest.approx(5e-3)
        Opaque(api, 1e9)()
    assert watch.metrics().utilization == {"ext_dev(0)": 1.0}


def test_caches_and_memory(sleeper: Module) -> None:
    class Pool:
        held = 1 << 40

    pool = Pool()
    cache: RuntimeCache[bytes] = RuntimeCache()
    cache.get("a")
    with PerformanceMonitor() as watch:
        cache.put("a", b"1")
        cache.get("a")
        RuntimeCache().get("b")
        before = watch.metrics()
        usage.watch_pool(pool, lambda p: p.held)
        pooled = usage.pooled_bytes()
    seen = watch.metrics()
    assert (seen.cache_hits, seen.cache_misses) == (1, 1)
    assert 1 << 20 < before.memory_usage_bytes < 1 << 40 < seen.memory_usage_bytes
    del pool
    assert usage.pooled_bytes() == pooled - (1 << 40)


def test_memory_of_a_device_counts_as_used() -> None:
    with SimulatedDevice(), PerformanceMonitor() as watch:
        before = watch.metrics().memory_usage_bytes
        pool = device_allocator((12, 0))
        memory = pool.alloc(1 << 28)
        assert watch.metrics().memory_usage_bytes >= before + (1 << 28)
        pool.free(memory)
        pool.release_cached()


def test_several_watch_at_the_same_time(sleeper: Module) -> None:
    with PerformanceMonitor() as outer:
        with PerformanceMonitor() as inner:
            nap(sleeper, 1)
        nap(sleeper, 1)
    assert (outer.metrics().calls, inner.metrics().calls) == (2, 1)


def test_a_failing_call_is_a_call() -> None:
    fails = kernels.artifact(kernels.FAIL, "fail", [kernels.arg("code", [1], "int32")])
    module = Module(fails)
    watch = PerformanceMonitor()
    with pytest.raises(RunError, match="failed with code 3"), watch:
        module(np.array([3], np.int32))
    assert watch.metrics().calls == 1


def test_starting_and_stopping_out_of_turn(sleeper: Module) -> None:
    watch = PerformanceMonitor()
    for ask in (watch.metrics, watch.stop):
        with pytest.raises(UsageError, match="start"):
            ask()
    watch.start()
    with pytest.raises(UsageError, match="running already"):
        watch.start()
    nap(sleeper, 1)
    assert watch.stop().calls == 1
    watch.start()
    assert watch.stop().calls == 0, "it begins from zero"
