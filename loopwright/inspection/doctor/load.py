"""Other users of the machine: other programs, and other virtual machines on the same hardware."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from loopwright.inspection.doctor.finding import Finding, ok, unknown, warning
from loopwright.inspection.doctor.system_files import SystemFiles

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
    """Counters of ``/proc/stat``; None where they cannot be read."""
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
    found = f"other programs keep {busy:.1f} of {cpus} CPUs busy"
    found += f" (load average {mean})" if mean else ""
    if busy < _BUSY:
        return ok("other load", found)
    return warning(
        "other load",
        found,
        "each takes turns with the kernels that are timed: times become longer and uncertain",
        "end them while you tune (`top` shows which), or keep CPUs free for tuning by taskset",
    )


def _stolen(share: float) -> Finding:
    found = f"the hypervisor gave {share:.1%} of the time to others (now, or since the start)"
    if share < _STOLEN:
        return ok("stolen time", found)
    return warning(
        "stolen time",
        found,
        "kernels stand still meanwhile; single times are too long",
        "tune on a machine of its own (dedicated CPUs), or more than once",
    )
