"""Disturbances of times: other users of the machine, a coarse clock, and noise."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loopwright.errors import LoopwrightError
from loopwright.inspection.doctor.finding import Finding, SystemFiles, ok, unknown, warning
from loopwright.measure import WINDOW_S, WINDOWS
from loopwright.presenting import counted

#: Seconds over which the machine is watched.
WATCHED_S = 0.5
#: CPUs that may be busy with other things, and the share of time that may be stolen.
_BUSY, _STOLEN = 0.1, 0.01


@dataclass(frozen=True)
class CpuTimes:
    """Work of the CPUs since the start, in ticks, all CPUs together."""

    busy: int  # running something, be it the system
    stolen: int  # ready to run, while the hypervisor ran another machine
    total: int  # these, and idle time
    cpus: int  # number of CPUs


def load(files: SystemFiles, sleep: Callable[[float], None] = time.sleep) -> list[Finding]:
    """Watch the machine for a moment, in which this process sleeps."""
    before = cpu_times(files)
    if before is None:
        text = "the system does not tell what its CPUs do"
        return [unknown("other load", text), unknown("stolen time", text)]
    sleep(WATCHED_S)
    after = cpu_times(files) or before
    total = after.total - before.total
    if total <= 0:
        text = "the counters of the CPUs stand still"
        return [unknown("other load", text), unknown("stolen time", text)]
    # Counters may go back a little.
    busy = max(0.0, after.cpus * (after.busy - before.busy) / total)
    stolen = max((after.stolen - before.stolen) / total, after.stolen / max(1, after.total))
    return [_busy(busy, after.cpus, files.line("/proc/loadavg")), _stolen(stolen)]


def cpu_times(files: SystemFiles) -> CpuTimes | None:
    lines = (files.text("/proc/stat") or "").splitlines()
    words = next((line.split()[1:] for line in lines if line.startswith("cpu ")), [])
    if len(words) < 4 or not all(word.isdecimal() for word in words):
        return None
    # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already
    ticks = [*map(int, words[:8]), 0, 0, 0, 0][:8]
    user, nice, system, idle, waiting, irq, softirq, stolen = ticks
    busy = user + nice + system + irq + softirq
    cpus = sum(line.startswith("cpu") for line in lines) - 1
    return CpuTimes(busy, stolen, busy + stolen + idle + waiting, max(1, cpus))


def _busy(busy: float, cpus: int, averages: str) -> Finding:
    mean = averages.split(" ")[0]
    observation = f"other programs keep {busy:.1f} of {cpus} CPUs busy"
    observation += f" (load average {mean})" if mean else ""
    if busy < _BUSY:
        return ok("other load", observation)
    return warning(
        "other load",
        observation,
        "each takes turns with the kernels that are timed: times become longer and uncertain",
        "end them while you tune (`top` shows which), or keep CPUs free for tuning by taskset",
    )


def _stolen(share: float) -> Finding:
    observation = f"the hypervisor gave {share:.1%} of the time to others (now, or since the start)"
    if share < _STOLEN:
        return ok("stolen time", observation)
    return warning(
        "stolen time",
        observation,
        "kernels stand still meanwhile; single times are too long",
        "tune on a machine of its own (dedicated CPUs), or more than once",
    )


_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#: Sources for which the system must be called, which takes about a microsecond each time.
_SLOW = ("hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies")
#: Seconds that the clock may be too coarse by: a thousandth of a window.
_COARSE_S = WINDOW_S / 1000
_READS = 2000
#: A clock that stands still for so many readings is not waited for.
_MOST_READS = 1_000_000


def timer(files: SystemFiles, resolution: float, overhead: float) -> Finding:
    source = files.line(_SOURCE)
    observation = (
        f"{f'source {source}, ' if source else ''}steps of {1e9 * resolution:.3g} ns, "
        f"{1e9 * overhead:.3g} ns to read, for windows of {1e3 * WINDOW_S:.3g} ms"
    )
    if resolution <= _COARSE_S and overhead <= _COARSE_S and source not in _SLOW:
        return ok("timer", observation)
    return warning(
        "timer",
        observation,
        "a single call that takes some microseconds is timed badly: such kernels may lose their "
        "race by chance",
        "boot Linux with clocksource=tsc, where the CPU has a steady one (constant_tsc and "
        "nonstop_tsc in /proc/cpuinfo)",
    )


def read_clock() -> tuple[float, float]:
    """Seconds of the clock's smallest step, and of one reading."""
    reads = [time.perf_counter_ns() for _ in range(_READS)]
    while reads[-1] == reads[0] and len(reads) < _MOST_READS:
        reads.append(time.perf_counter_ns())
    return steps_of(reads)


def steps_of(reads: Sequence[int]) -> tuple[float, float]:
    """Smallest step of a clock and a reading's time, seconds, from readings in nanoseconds."""
    steps = [b - a for a, b in pairwise(reads)]
    overhead = 1e-9 * (reads[-1] - reads[0]) / len(steps)
    # Equal values in a row: the clock is coarser than a reading takes, and shows its smallest step.
    if 0 in steps:
        return 1e-9 * min((step for step in steps if step), default=math.inf), overhead
    return time.get_clock_info("perf_counter").resolution, overhead


#: Windows that are taken for each number of threads: half a second.
COUNT = 50
#: Share by which windows may vary on a quiet machine.
_QUIET = 0.05


def noise(threads: Sequence[int]) -> Finding:
    """Time multiply-adds for each number of threads, unless another process times here."""
    from loopwright.measure import DeviceLock

    try:
        lock = DeviceLock()
        if holder := lock.try_acquire():
            return unknown("noise floor", f"not measured: {holder} is timing kernels")
        try:
            return spread({count: _windows(count) for count in threads})
        finally:
            lock.release()
    except ImportError as error:
        return unknown("noise floor", f"not measured: there is no compiler ({error})")
    except (LoopwrightError, OSError) as error:
        return unknown("noise floor", f"not measured: {error}")


def spread(samples: Mapping[int, Sequence[float]]) -> Finding:
    """Judge windows' seconds, ten or more: 10th to 90th percentile beside the median."""
    shares = {}
    for threads, times in samples.items():
        cuts = statistics.quantiles(times, n=10)
        shares[threads] = (cuts[-1] - cuts[0]) / statistics.median(times)
    parts = [f"{share:.1%} with {counted(n, 'thread')}" for n, share in shares.items()]
    worst = max(shares.values())
    observation = (
        f"windows of {1e3 * WINDOW_S:.3g} ms of one kernel vary by {' and '.join(parts)} "
        "(10th to 90th percentile)"
    )
    if worst <= _QUIET:
        return ok("noise floor", observation)
    return warning(
        "noise floor",
        observation,
        f"during a run, of two kernels that differ by less than about {_seen(worst):.0%} the "
        "slower one may lead; the playoff at the end decides by samples in turns",
        "see the findings about load, CPU time, governor and SMT; then look again",
    )


def _seen(share: float) -> float:
    """Twice the standard error of a difference of medians of `WINDOWS` windows."""
    # Of a normal distribution the distance of those percentiles is 2.56 standard deviations; the
    # standard error of a median is 1.25 times that of a mean.
    error = 1.25 * share / 2.56 / WINDOWS**0.5
    return float(2.0 * 2.0**0.5 * error)


def _windows(threads: int) -> tuple[float, ...]:
    from loopwright import runtime
    from loopwright.runtime import fma_kernel, measure_windows
    from loopwright.target import host_unit

    with runtime.pinned(threads):
        kernel = fma_kernel(threads, host_unit())
        # A call of a tenth of a window: long against handing it out to the threads.
        kernel.work[0] = max(1, round(kernel.units_per_second * WINDOW_S / 10))
        return measure_windows(kernel.call, COUNT, 1e3 * WINDOW_S)
