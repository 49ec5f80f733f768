"""`profile`: time of each function or kernel, by device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import Any

from loopwright.errors import UsageError, did_you_mean, shown
from loopwright.runtime import pool
from loopwright.runtime.devices.device import Device, device
from loopwright.runtime.devices.interface import HOST
from loopwright.runtime.devices.launches import Span, recording, start_timer
from loopwright.runtime.kernels.function import Function
from loopwright.runtime.kernels.symbolic import SymbolicFunction
from loopwright.runtime.kernels.timing import time_call
from loopwright.runtime.module import Module
from loopwright.runtime.profiling import calls
from loopwright.runtime.profiling.calls import MetricCollector
from loopwright.runtime.profiling.report import ProfiledCall, Report

#: Operations of one call: of the function that is profiled, or of several by their names.
Flop = float | Mapping[str, float]
_Started = list[tuple[MetricCollector, object]]


def profile(
    function: Module | Callable[..., object],
    args: Sequence[object] = (),
    number: int = 10,
    *,
    warmup: int = 1,
    flop: Flop | None = None,
    collectors: Sequence[MetricCollector] = (),
) -> Report:
    """Run a function several times and report the time of each compiled function or kernel.

    The function may be a module, of which the entry function is meant. A compiled function of the
    host is timed by the loop in compiled code, all runs in one row. Of anything else, such as a
    Python function that calls several, each call of a compiled function is a row; where a device
    reports the launches of a call, each launch is one. Time between calls is only in
    `Report.wall_seconds`. UsageError for a number out of range, ArgumentError for an argument that
    is not acceptable, RunError where a call failed.

    Args:
        warmup: runs before the `number` that count.
        flop: floating point operations of one call; for several functions or kernels a mapping of
            their names.
        collectors: further counts around each call; not around single launches, which are only
            queued when they return.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], name="add_one")
        >>> args = [np.zeros(4, "float32"), np.empty(4, "float32")]
        >>> report = lw.runtime.profiling.profile(f, args, number=100, flop=4)
        >>> print([(call.name, call.device, call.count, call.nbytes) for call in report.calls])
        [('add_one', 'cpu(0)', 100, 3200)]
    """
    _count("number", number, 1)
    _count("warmup", warmup, 0)
    work = function.get_function(function.entry_name) if isinstance(function, Module) else function
    configuration = {"threads": str(pool.get_num_threads())}
    for _ in range(warmup):
        work(*args)
    if isinstance(work, Function | SymbolicFunction) and work.device.device_type == HOST:
        call = work.bind(*args)
        started = [(collector, collector.start(work.device)) for collector in collectors]
        seconds = time_call(call, number)
        metrics = _stop(started)
        nbytes = number * sum(arg.nbytes for arg in call.args)
        row = ProfiledCall(work.name, str(work.device), seconds, number, nbytes, None, metrics)
        return Report(_with_flop([row], flop), seconds, number, configuration)
    with recording() as spans, calls.observed(_CallWatch(spans, collectors)):
        begin = time.perf_counter()
        for _ in range(number):
            work(*args)
        rows = [
            ProfiledCall(
                span.name,
                span.device,
                span.timer.seconds(),  # waits for the device
                nbytes=span.nbytes,
                metrics=span.metrics,
            )
            for span in spans
        ]
        wall = time.perf_counter() - begin
    return Report(_with_flop(rows, flop), wall, number, configuration)


class _CallWatch:
    """Notes calls of the thread that made it: an observer for `calls.observed`."""

    def __init__(self, spans: list[Span], collectors: Sequence[MetricCollector]) -> None:
        self._spans, self._collectors = spans, collectors
        self._thread = threading.get_ident()

    def __call__(self, function: Any, args: tuple[object, ...]) -> Callable[[], None]:
        """Note the start of a call; returns a function to be called at its end."""
        if threading.get_ident() != self._thread:
            return lambda: None
        home = calls.home_of(function, args)
        before = len(self._spans)
        started = [(collector, collector.start(home)) for collector in self._collectors]
        timer = start_timer(home)

        def end() -> None:
            timer.stop()
            metrics = _stop(started)
            if len(self._spans) > before:  # the device reported each launch
                return
            nbytes = sum(arg.nbytes for arg in function.args)
            self._spans.append(Span(function.name, str(home), timer, nbytes, metrics))

        return end


def _with_flop(rows: Sequence[ProfiledCall], flop: Flop | None) -> tuple[ProfiledCall, ...]:
    """The rows with the operations of their calls, where those are known."""
    if flop is None:
        return tuple(rows)
    names = dict.fromkeys(row.name for row in rows)
    if not isinstance(flop, Mapping):
        if len(names) > 1:
            raise UsageError(
                f"flop is one number, but {', '.join(names)} ran; pass a mapping of their names"
            )
        flop = dict.fromkeys(names, flop)
    unknown = [name for name in flop if name not in names]
    if unknown:
        raise UsageError(
            f"flop names {unknown[0]!r}{did_you_mean(unknown[0], names)}, which did not run; "
            f"what ran: {', '.join(names)}"
        )
    return tuple(
        replace(row, gflop=row.count * flop[row.name] * 1e-9) if row.name in flop else row
        for row in rows
    )


def _stop(started: _Started) -> dict[str, int | float]:
    metrics: dict[str, int | float] = {}
    for collector, state in reversed(started):
        metrics.update(collector.stop(state))
    return metrics


def _count(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise UsageError(f"{name} is {shown(value)}; it must be a whole number, at least {low}")


def profile_function(
    function: Module | Callable[..., object],
    dev: Device | str | None = None,
    collectors: Sequence[MetricCollector] = (),
    func_name: str | None = None,
    warmup_iters: int = 10,
    *,
    number: int = 1,
    flop: Flop | None = None,
) -> Callable[..., Report]:
    """A function that profiles ``function`` on its arguments and returns the `Report`.

    Also a decorator of a Python function. TVM's ``profile_function`` takes the same arguments; its
    result gives the metrics of collectors only.

    Args:
        function, collectors, number, flop: see `profile`.
        dev: where it runs; default, and only choice, the device that its code is for; UsageError
            for another one.
        func_name: name of a module's function; default its entry function. UsageError without a
            module, AttributeError where the module has no such function.
        warmup_iters: runs before those that count.
    """
    work: Callable[..., object] = function
    if isinstance(function, Module):
        work = function.get_function(func_name or function.entry_name)
    elif func_name is not None:
        raise UsageError(f"func_name {func_name!r} is for modules; pass the function itself")
    home = getattr(work, "device", None)
    if dev is not None and home is not None and device(dev) != home:
        raise UsageError(f"the code is for {home}, not for {device(dev)}; build it for that device")

    def profiled(*args: object) -> Report:
        return profile(work, args, number, warmup=warmup_iters, flop=flop, collectors=collectors)

    return update_wrapper(profiled, work) if hasattr(work, "__name__") else profiled
