"""Clock by which kernels are timed."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import pairwise

from loopwright.inspection.doctor.finding import Finding, ok, warning
from loopwright.inspection.doctor.system_files import SystemFiles
from loopwright.measure.options import WINDOW_S

_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#: Sources for which the system must be called, which takes about a microsecond each time.
_SLOW = ("hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies")
#: Seconds that the clock may be too coarse by: a thousandth of a window.
_COARSE_S = WINDOW_S / 1000
_READS = 2000
#: A clock that stands still for so many readings is not waited for.
_MOST_READS = 1_000_000


def timer(files: SystemFiles, resolution: float, overhead: float) -> Finding:
    """Judge the clock by the seconds of its smallest step and of a reading."""
    source = files.line(_SOURCE)
    found = (
        f"{f'source {source}, ' if source else ''}steps of {1e9 * resolution:.3g} ns, "
        f"{1e9 * overhead:.3g} ns to read, for windows of {1e3 * WINDOW_S:.3g} ms"
    )
    if resolution <= _COARSE_S and overhead <= _COARSE_S and source not in _SLOW:
        return ok("timer", found)
    return warning(
        "timer",
        found,
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
    """Smallest step of a clock in seconds, and the seconds of one reading, from at least two
    successive readings in nanoseconds.

    A clock that gives the same value twice in a row is coarser than a reading takes; its smallest
    step is then seen. Otherwise it is as fine as the system says.
    """
    steps = [b - a for a, b in pairwise(reads)]
    overhead = 1e-9 * (reads[-1] - reads[0]) / len(steps)
    if 0 in steps:
        return 1e-9 * min((step for step in steps if step), default=math.inf), overhead
    return time.get_clock_info("perf_counter").resolution, overhead
