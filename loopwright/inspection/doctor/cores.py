"""CPUs that this process may use, and whether two of them share a core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loopwright.inspection.doctor.finding import Finding, ok, unknown, warning
from loopwright.inspection.doctor.system_files import SystemFiles, numbers_in

_CPU = "/sys/devices/system/cpu"


def affinity(
    files: SystemFiles,
    cpus: Sequence[int],
    threads: int,
    variable: str = "LOOPWRIGHT_NUM_THREADS",
) -> Finding:
    """Report the number of the machine's CPUs that this process may use, and of a kernel's threads.

    ``threads`` is the default of a kernel, ``variable`` that of the environment which sets it.
    """
    online = numbers_in(files.line(f"{_CPU}/online"))
    used = f"a kernel uses {threads} thread{'s' * (threads != 1)}"
    if threads > len(cpus):
        return warning(
            "CPUs",
            f"{len(cpus)} may be used, and {used} ({variable})",
            "threads take turns on a CPU, and the others wait for them",
            f"unset {variable}, or set it to {len(cpus)} at most",
        )
    if threads < len(cpus):
        used += f" ({variable})"
    if not online:
        text = f"{len(cpus)} may be used, and {used}; the system does not list all of them"
        return unknown("CPUs", text)
    if len(cpus) >= len(online):
        return ok("CPUs", f"all {len(cpus)} may be used, and {used}")
    why = "taskset, or a cgroup's cpuset"
    return ok("CPUs", f"{len(cpus)} of {len(online)} may be used ({why}), and {used}")


def siblings(files: SystemFiles, cpus: Sequence[int]) -> Finding:
    """Judge whether usable CPUs share a core (SMT, hyper-threading)."""
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
        f"try one thread a core as well: taskset -c {_first_of_each(cores, cpus)} before the "
        "command. (--threads takes the first CPUs, which may share a core)",
    )


def _first_of_each(cores: Iterable[frozenset[int]], cpus: Sequence[int]) -> str:
    """First usable CPU of each core, in the form that `taskset` takes."""
    return ",".join(map(str, sorted(min(core.intersection(cpus)) for core in cores)))


def _core(files: SystemFiles, cpu: int) -> frozenset[int]:
    """CPUs that share a core with one; empty where the system does not tell."""
    topology = f"{_CPU}/cpu{cpu}/topology"
    text = files.line(f"{topology}/core_cpus_list") or files.line(
        f"{topology}/thread_siblings_list"
    )
    return frozenset(numbers_in(text))
