"""`PerformanceMonitor`: time, memory, caches and device use of this process, in five figures."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopwright.errors import UsageError
from loopwright.runtime import caches as usage
from loopwright.runtime.devices.interface import HOST
from loopwright.runtime.devices.launches import Timer, start_timer
from loopwright.runtime.profiling import calls

#: Calls on devices that may be waiting for their time; beyond it the older half is waited for.
_MOST_PENDING = 1024
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of a monitor since its start.

    Attributes:
        execution_time_ms: of all calls of compiled functions together, each by its device's clock.
        memory_usage_bytes: resident memory of the process and memory of device pools, at the
            moment of the metrics.
        cache_hits, cache_misses: of all caches of kernels, programs and other values.
        device_utilization: share of the time in which the busiest device ran a call, 0 to 1.
        calls: number of calls.
        utilization: that share by device, such as ``{"cpu(0)": 0.4}``.
    """

    execution_time_ms: float
    memory_usage_bytes: int
    cache_hits: int
    cache_misses: int
    device_utilization: float
    calls: int = 0
    utilization: Mapping[str, float] = field(default_factory=dict)


class PerformanceMonitor:
    """Watches the calls of compiled functions, of all threads, from `start` to `stop`.

    As a context manager it watches its block. Several may watch at the same time. Calls cost
    nothing more while none does. Calls from a loop in compiled code (`time_call`) are not seen.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], name="add_one")
        >>> with lw.runtime.profiling.PerformanceMonitor() as monitor:
        ...     f(np.zeros(4, "float32"), np.empty(4, "float32"))
        ...
        >>> metrics = monitor.metrics()
        >>> print(metrics.calls, metrics.execution_time_ms > 0)
        1 True
        >>> print(0 < metrics.device_utilization <= 1, metrics.memory_usage_bytes > 0)
        True True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watch: _Watch | None = None
        self._last: Metrics | None = None

    def start(self) -> None:
        """Begin to watch, from zero; UsageError where it watches already."""
        with self._lock:
            if self._watch is not None:
                raise UsageError("the monitor is running already; stop it first")
            self._watch = _Watch()
            calls.start(self._watch)

    def stop(self) -> Metrics:
        """Stop watching and return the metrics; UsageError where it does not watch."""
        with self._lock:
            if self._watch is None:
                raise UsageError("the monitor is not running; start it first")
            calls.stop(self._watch)
            self._last = self._watch.metrics()
            self._watch = None
            return self._last

    def metrics(self) -> Metrics:
        """Figures up to now, or up to the stop; UsageError where it was never started.

        Waits for calls that are still queued on devices.
        """
        with self._lock:
            if self._watch is not None:
                return self._watch.metrics()
            if self._last is None:
                raise UsageError("the monitor was never started")
            return self._last

    def __enter__(self) -> PerformanceMonitor:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Watch:
    """The counts from one start to one stop: an observer for `calls`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin = time.perf_counter()
        self._caches = usage.cache_totals()
        self._calls = 0
        self._seconds: dict[str, float] = {}
        self._pending: deque[tuple[str, Timer]] = deque()
        self._host_name = ""
        # Calls that run on the host, since when at least one does, and seconds when one did before.
        self._running = 0
        self._since = self._busy = 0.0

    def __call__(self, function: Any, args: tuple[object, ...]) -> Callable[[], None]:
        """Note the start of a call; returns a function to be called at its end."""
        home = calls.home_of(function, args)
        timer = start_timer(home)
        if home.device_type != HOST:
            return lambda: self._queued(str(home), timer)
        with self._lock:
            self._host_name = str(home)
            if not self._running:
                self._since = time.perf_counter()
            self._running += 1
        return lambda: self._done(timer)

    def _done(self, timer: Timer) -> None:
        timer.stop()
        with self._lock:
            self._running -= 1
            if not self._running:
                self._busy += time.perf_counter() - self._since
            self._calls += 1
            self._add(self._host_name, timer)

    def _queued(self, where: str, timer: Timer) -> None:
        """Keep the timer of a call on a device, which may still be queued there."""
        timer.stop()
        with self._lock:
            self._calls += 1
            self._pending.append((where, timer))
            if len(self._pending) > _MOST_PENDING:
                self._settle(_MOST_PENDING // 2)

    def _settle(self, left: int) -> None:
        """Wait for the oldest calls until `left` remain."""
        while len(self._pending) > left:
            self._add(*self._pending.popleft())

    def _add(self, where: str, timer: Timer) -> None:
        self._seconds[where] = self._seconds.get(where, 0.0) + timer.seconds()

    def metrics(self) -> Metrics:
        with self._lock:
            self._settle(0)
            elapsed = max(time.perf_counter() - self._begin, 1e-9)
            busy = dict(self._seconds)
            if self._host_name:
                now = time.perf_counter() - self._since if self._running else 0.0
                busy[self._host_name] = self._busy + now
            shares = {where: min(1.0, seconds / elapsed) for where, seconds in busy.items()}
            hits, misses = usage.cache_totals()
            return Metrics(
                1e3 * sum(self._seconds.values()),
                _resident_bytes() + usage.pooled_bytes(),
                hits - self._caches[0],
                misses - self._caches[1],
                max(shares.values(), default=0.0),
                self._calls,
                shares,
            )


def _resident_bytes() -> int:
    """Resident memory of this process; its peak where the system tells only that, or nothing."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
