"""Timing of compiled functions: `Evaluator` (time_evaluator) and the windows that tuning uses.

The loop that calls a function runs in compiled code of its own (timing.ll), so neither the
interpreter nor an optimiser that sees the function can distort it. Times are seconds per call.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loopwright.errors import ArgumentError, UsageError, did_you_mean
from loopwright.runtime import linker
from loopwright.runtime.devices.device import Device, device
from loopwright.runtime.devices.interface import HOST
from loopwright.runtime.kernels.device_function import sweep
from loopwright.runtime.kernels.function import BoundCall, failure
from loopwright.runtime.kernels.kernel import Kernel, KernelCall
from loopwright.runtime.kernels.timer import can_flush, flush, native_timer

FLUSH_NON_FIRST = "cache_flush_cpu_non_first_arg"
_GROWTH = 1.618


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Times of one benchmark, in seconds per call.

    ``results`` has one mean for each repeat.

    Example:
        >>> result = lw.runtime.BenchmarkResult((1e-3, 2e-3, 6e-3))
        >>> print(result.median, result.mean, result.min)
        0.002 0.0030000000000000005 0.001
    """

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        return statistics.median(self.results)

    @property
    def std(self) -> float:
        """Standard deviation of the repeats."""
        return statistics.pstdev(self.results)

    @property
    def min(self) -> float:
        return min(self.results)

    @property
    def max(self) -> float:
        return max(self.results)

    def __str__(self) -> str:
        unit, scale = ("ms", 1e3) if self.median >= 1e-3 else ("us", 1e6)
        if self.median >= 1:
            unit, scale = "s", 1.0
        parts = ((name, getattr(self, name)) for name in ("mean", "median", "std", "min", "max"))
        figures = ", ".join(f"{name} {value * scale:.4g}" for name, value in parts)
        return f"{figures} {unit} over {len(self.results)} repeats"


def time_call(call: KernelCall, number: int) -> float:
    """Run a bound call `number` times back to back; returns the seconds of all calls together.

    A loop in compiled code calls it, unless its kind of artifact has a timer of its own; on a
    device its own clock takes the time. RunError where a call failed; those after it did not run.
    """
    return call.time(number)


class Turns:
    """Calls of one function on several sets of arguments, timed in turn.

    Caches do not hold the data of a call where all sets together are larger than the caches. The
    calls share the workspace of the first.
    """

    def __init__(self, calls: Sequence[BoundCall]) -> None:
        self._calls, self._next = tuple(calls), 0
        places = [ctypes.addressof(call.pointers) for call in calls]
        self._sets = (ctypes.c_void_p * len(places))(*places)

    def time(self, number: int) -> float:
        """Seconds of `number` calls together; the next call of `time` goes on with the next set."""
        first, count = self._calls[0], len(self._calls)
        took = native_timer().turns(
            first.entry, self._sets, count, self._next, first.workspace, number
        )
        self._next = (self._next + number) % count
        if took < 0:
            raise failure(first.function, ctypes.c_int32(took & 0xFFFFFFFF).value)
        return float(took) * 1e-9


def time_once(function: Kernel, args: Sequence[object], number: int = 1) -> float:
    """Run a function `number` times back to back, without a warm-up; returns seconds per call.

    ArgumentError where an argument is not acceptable, RunError where a call failed.
    """
    check_options(number=number)
    return function.bind(*args).time(number) / number


def measure_windows(
    call: KernelCall, windows: int = 5, window_ms: float = 20.0, estimate: float | None = None
) -> tuple[float, ...]:
    """Time `windows` windows of about `window_ms` each; rank kernels by the median of the result.

    Returns seconds per call of each window, which holds at least one call. ``estimate`` is seconds
    per call as far as known; without it one call is timed first. RunError where a call failed.
    """
    check_options(windows=windows)
    once = time_call(call, 1) if estimate is None else estimate
    number = max(1, round(window_ms * 1e-3 / max(once, 1e-9)))
    return tuple(time_call(call, number) / number for _ in range(windows))


def grown(number: int, seconds: float, min_repeat_ms: float) -> int:
    """Number of calls to try after `number` calls took `seconds`, less than `min_repeat_ms`."""
    per_call_ms = seconds * 1e3 / number
    return int(max(min_repeat_ms / per_call_ms + 1, number * _GROWTH))


def run_repeat(
    measure: Callable[[int], float], number: int, min_repeat_ms: float, limit_zero: int
) -> tuple[float, int]:
    """Seconds per call, and the number of calls, raised until they take long enough (RT-32)."""
    zeros = 0
    while True:
        seconds = measure(number)
        zeros += seconds <= 0
        if seconds * 1e3 >= min_repeat_ms or zeros >= limit_zero:
            return seconds / number, number
        if seconds > 0:
            number = grown(number, seconds, min_repeat_ms)


def sampled(
    measure: Callable[[int], float],
    number: int,
    repeat: int,
    min_repeat_ms: float = 0,
    limit_zero: int = 100,
    cooldown_s: float = 0,
    repeats_to_cooldown: int = 1,
    before: Callable[[], object] | None = None,
) -> BenchmarkResult:
    """`repeat` results of `run_repeat`, each after a call of `before`; `number` only grows."""
    results = []
    for index in range(1, repeat + 1):
        if before is not None:
            before()
        seconds, number = run_repeat(measure, number, min_repeat_ms, limit_zero)
        results.append(seconds)
        if cooldown_s and index % repeats_to_cooldown == 0:
            time.sleep(cooldown_s)
    return BenchmarkResult(tuple(results))


class Evaluator:
    """Times a function: call it with the function's arguments, get a `BenchmarkResult`.

    One call that is not counted comes first. Then each of `repeat` repeats runs `f_preproc` once
    and times `number` calls back to back; if they took less than `min_repeat_ms`, more calls are
    timed (`max(min_repeat_ms / time of one + 1, number * 1.618)`) until they take as long. The
    number found is kept for the following repeats.

    Args:
        dev: the device; default the device that its kind of code runs on.
        number, repeat: calls per repeat, and repeats; each gives one entry of the results.
        min_repeat_ms: shortest length of a repeat in milliseconds.
        limit_zero_time_iterations: attempts that take no measurable time before giving up.
        cooldown_interval_ms: sleep in milliseconds after every `repeats_to_cooldown` repeats.
        cache_flush_bytes: before each repeat, write this many other bytes through the caches.
        f_preproc: called with the arguments before each repeat;
            ``"cache_flush_cpu_non_first_arg"`` evicts all but the first argument from the caches.
            It acts once per repeat, so cold caches are only seen with ``number=1``.

    Raises:
        UsageError: an option is out of range or unknown, or the code is for another device.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], name="add_one")
        >>> evaluate = lw.runtime.Evaluator(f["add_one"], number=100, repeat=3)
        >>> result = evaluate(np.zeros(4, "float32"), np.empty(4, "float32"))
        >>> print(len(result.results))
        3
    """

    def __init__(
        self,
        function: Kernel,
        dev: Device | str | None = None,
        *,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str | Callable[..., object] = "",
    ) -> None:
        self._device = None if dev is None else device(dev)
        (self._device or function.device).require()
        if self._device and self._device.device_type != function.device.device_type:
            raise UsageError(
                f"the code is for {function.device}, not for {self._device}; build it for that "
                "device"
            )
        check_options(
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            limit_zero_time_iterations=limit_zero_time_iterations,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
            cache_flush_bytes=cache_flush_bytes,
        )
        self.function, self.number, self.repeat = function, number, repeat
        self.min_repeat_ms, self.limit_zero = min_repeat_ms, limit_zero_time_iterations
        self.cooldown, self.repeats_to_cooldown = cooldown_interval_ms * 1e-3, repeats_to_cooldown
        self._flush_bytes = cache_flush_bytes
        self._sweep: npt.NDArray[np.uint8] | None = None
        self._prepare = _preproc(f_preproc)
        if f_preproc == FLUSH_NON_FIRST and function.device.device_type != HOST:
            raise UsageError(
                f"{FLUSH_NON_FIRST} is for functions of the host, and the code is for "
                f"{function.device}; use cache_flush_bytes"
            )

    def __call__(self, *args: object) -> BenchmarkResult:
        """Time the function on these arguments.

        ArgumentError where one is not acceptable (nothing ran), RunError where a call failed.
        """
        call = self.function.bind(*args)
        if self._device not in (None, call.device):
            raise ArgumentError(
                f"the arrays lie on {call.device}, and {self._device} is to be timed; copy them "
                "there"
            )
        call.run()

        def before() -> None:
            self._prepare(*args)
            if self._flush_bytes and call.device.device_type != HOST:
                sweep(call.device, self._flush_bytes)
            elif self._flush_bytes:
                if self._sweep is None:
                    self._sweep = np.zeros(self._flush_bytes, dtype=np.uint8)
                self._sweep += 1

        return sampled(
            call.time,
            self.number,
            self.repeat,
            self.min_repeat_ms,
            self.limit_zero,
            self.cooldown,
            self.repeats_to_cooldown,
            before,
        )


def check_options(**options: float) -> None:
    """Raise UsageError for benchmark options that are out of range; names as of `Evaluator`."""
    for name, value in options.items():
        low = 0 if name.endswith("_ms") or name == "cache_flush_bytes" else 1
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole and not name.endswith("_ms"):
            raise UsageError(f"{name} is {value!r}; it must be a whole number")
        if not isinstance(value, int | float):
            raise UsageError(f"{name} is {value!r}; it must be a number")
        if not value >= low:
            raise UsageError(f"{name} is {value!r}; it must be at least {low}")


def _preproc(f_preproc: str | Callable[..., object]) -> Callable[..., object]:
    if callable(f_preproc):
        return f_preproc
    if f_preproc == "":
        return lambda *args: None
    if f_preproc != FLUSH_NON_FIRST:
        raise UsageError(
            f"unknown f_preproc {f_preproc!r}{did_you_mean(f_preproc, [FLUSH_NON_FIRST])}; "
            f"it is {FLUSH_NON_FIRST!r}, a function of the arguments, or ''"
        )
    if not can_flush():
        raise UsageError(
            f"{FLUSH_NON_FIRST} does not work on {linker.architecture()}; use cache_flush_bytes"
        )
    return lambda *args: flush(*args[1:])
