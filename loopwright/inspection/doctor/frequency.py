"""Clock of the CPU: the choice of its frequency, and whether it may exceed the nominal one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from loopwright.inspection.doctor.finding import Finding, ok, unknown, warning
from loopwright.inspection.doctor.system_files import SystemFiles

_CPU = "/sys/devices/system/cpu"
#: Drivers whose governor ``powersave`` still lets the CPU itself go to full speed under load.
_SELF_GOVERNED = ("intel_pstate", "amd-pstate-epp")


def governor(files: SystemFiles, cpus: Sequence[int]) -> Finding:
    """Judge the governor of the frequency of the usable CPUs."""
    names = Counter(files.line(f"{_CPU}/cpu{n}/cpufreq/scaling_governor") for n in cpus)
    names.pop("", None)
    if not names:
        return unknown(
            "CPU governor", "the system does not tell (usual in virtual machines and containers)"
        )
    driver = files.line(f"{_CPU}/cpu{cpus[0]}/cpufreq/scaling_driver")
    found = ", ".join(sorted(names)) + (f" (driver {driver})" if driver else "")
    calm = {"performance"} | ({"powersave"} if driver in _SELF_GOVERNED else set())
    if set(names) <= calm:
        return ok("CPU governor", found)
    return warning(
        "CPU governor",
        found,
        "the clock rises only after some milliseconds of work, so that short kernels look slow "
        "and times vary",
        "sudo cpupower frequency-set -g performance",
    )


def turbo(files: SystemFiles) -> Finding:
    """Report whether the clock may exceed its nominal frequency, and so depend on heat and load."""
    no_turbo = files.number(f"{_CPU}/intel_pstate/no_turbo")
    boost = files.number(f"{_CPU}/cpufreq/boost")
    if no_turbo is None and boost is None:
        return unknown("turbo", "the system does not tell (usual in virtual machines, and on Arm)")
    if no_turbo == 1 or boost == 0:
        return ok("turbo", "off: the clock is steady, and slower than in use with it")
    return ok(
        "turbo",
        "on: the clock depends on heat and on how many cores work; a run watches a reference "
        "kernel for that, and compares the best in turns",
    )
