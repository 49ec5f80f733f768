"""Which CPUs this process may use, and whether two of them share a core."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.inspection.doctor.finding import Finding, ok, unknown, warning
from loopwright.inspection.doctor.system_files import SystemFiles, numbers_in

_CPU = "/sys/devices/system/cpu"


def affinity(files: SystemFiles, cpus: Sequence[int]) -> Finding:
    """Say how many of the machine's CPUs this process may use.

    Args:
        files: of the system.
        cpus: numbers of those that it may use.
    """
    online = numbers_in(files.line(f"{_CPU}/online"))
    if not online:
        return unknown("CPUs", f"{len(cpus)} may be used; the system does not list all of them")
    if len(cpus) >= len(online):
        return ok("CPUs", f"all {len(cpus)} may be used, and a kernel uses so many threads")
    return ok(
        "CPUs",
        f"{len(cpus)} of {len(online)} may be used (taskset, or a cgroup's cpuset), and a kernel "
        "uses so many threads",
    )


def siblings(files: SystemFiles, cpus: Sequence[int]) -> Finding:
    """Judge whether CPUs that may be used share a core (SMT, hyper-threading).

    Args:
        files: of the system.
        cpus: numbers of those that may be used.
    """
    cores = {_core(files, n) for n in cpus}
    if frozenset() in cores:
        return unknown("SMT", "the system does not tell which CPUs share a core")
    guest = "hypervisor" in (files.text("/proc/cpuinfo") or "").split()
    if len(cores) == len(cpus):
        doubt = ", as far as a virtual machine can tell" if guest else ""
        return ok("SMT", f"each CPU that may be used is a core of its own{doubt}")
    return warning(
        "SMT",
        f"{len(cpus)} CPUs are {len(cores)} cores, whose threads share their arithmetic units",
        "kernels that keep the vector units busy gain nothing from the second thread of a core, "
        "and their times vary more",
        f"try --threads {len(cores)} as well (LOOPWRIGHT_NUM_THREADS in programs)",
    )


def _core(files: SystemFiles, cpu: int) -> frozenset[int]:
    """The CPUs that share a core with one; empty where the system does not tell."""
    topology = f"{_CPU}/cpu{cpu}/topology"
    text = files.line(f"{topology}/core_cpus_list") or files.line(
        f"{topology}/thread_siblings_list"
    )
    return frozenset(numbers_in(text))
