"""Variation of times here: windows of a reference kernel, by the project's own measuring."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from loopwright.errors import LoopwrightError
from loopwright.inspection.doctor.finding import Finding, ok, unknown, warning
from loopwright.measure.options import WINDOW_S, WINDOWS

#: Windows that are taken for each number of threads: half a second.
COUNT = 50
#: Share by which windows may vary on a quiet machine.
_QUIET = 0.05


def noise(threads: Sequence[int]) -> Finding:
    """Time a kernel of multiply-adds for each number of threads, and judge the spread.

    The device is taken as for tuning, so that nothing of loopwright is timed meanwhile; where
    another process has it, nothing is measured.
    """
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
    """Judge seconds of windows, at least ten for each number of threads: the distance of the 10th
    from the 90th percentile, beside the median.
    """
    shares = {threads: _spread(times) for threads, times in samples.items()}
    parts = [f"{share:.1%} with {n} thread{'s' * (n != 1)}" for n, share in shares.items()]
    worst = max(shares.values())
    found = (
        f"windows of {1e3 * WINDOW_S:.3g} ms of one kernel vary by {' and '.join(parts)} "
        "(10th to 90th percentile)"
    )
    if worst <= _QUIET:
        return ok("noise floor", found)
    return warning(
        "noise floor",
        found,
        f"during a run, of two kernels that differ by less than about {_seen(worst):.0%} the "
        "slower one may lead; the playoff at the end decides by samples in turns",
        "see the findings about load, CPU time, governor and SMT; then look again",
    )


def _spread(times: Sequence[float]) -> float:
    cuts = statistics.quantiles(times, n=10)
    return (cuts[-1] - cuts[0]) / statistics.median(times)


def _seen(share: float) -> float:
    """Difference that medians of `WINDOWS` windows show, two standard errors of a difference.

    The distance of those percentiles is 2.56 standard deviations of a normal distribution, and the
    standard error of a median is 1.25 times that of a mean.
    """
    error = 1.25 * share / 2.56 / WINDOWS**0.5
    return float(2.0 * 2.0**0.5 * error)


def _windows(threads: int) -> tuple[float, ...]:
    """Seconds per unit of work of each window, on ``threads`` pinned threads."""
    from loopwright import runtime
    from loopwright.runtime.kernels.timing import measure_windows
    from loopwright.runtime.peak import fma_kernel
    from loopwright.target import host_unit

    with runtime.pinned(threads):
        kernel = fma_kernel(threads, host_unit())
        # A call of a tenth of a window: long against handing it out to the threads.
        kernel.work[0] = max(1, round(kernel.units_per_second * WINDOW_S / 10))
        return measure_windows(kernel.call, COUNT, 1e3 * WINDOW_S)
