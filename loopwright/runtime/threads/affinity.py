"""CPUs of a thread pool's threads: the modes of `loopwright.runtime.config_threadpool`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loopwright.errors import UsageError, did_you_mean, shown

SYSTEM = Path("/sys/devices/system/cpu")
#: Meaning of each mode.
MODES = {
    "none": "the system chooses",
    "compact": "neighbours share cores and packages",
    "spread": "a core of its own for each thread, in other packages by turns, while there are some",
    "big": "the CPUs of the highest clock, one for each thread",
    "little": "those of the lowest",
    "one_per_thread": "the listed CPUs in their order, one for each thread",
    "shared": "each thread on any of the listed CPUs",
}
#: TVM's ``AffinityMode`` in C++: kBig, kLittle, kSpecifyOneCorePerThread and
#: kSpecifyThreadShareAllCore.
TVM_CODES = {1: "big", -1: "little", -2: "one_per_thread", -3: "shared"}
_LISTED = ("one_per_thread", "shared")


@dataclass(frozen=True, slots=True)
class Cpu:
    """One CPU as the system describes it."""

    #: As affinities name it.
    number: int
    #: CPUs of one core in one package share its units.
    package: int
    core: int
    #: Highest clock; 0 where the system does not tell.
    max_khz: int


def topology(numbers: Sequence[int], system: Path = SYSTEM) -> list[Cpu]:
    """The CPUs of these numbers; each a core of its own where the system does not tell."""
    cpus = []
    for number in numbers:
        folder = system / f"cpu{number}"
        package = _number(folder / "topology" / "physical_package_id", 0)
        core = _number(folder / "topology" / "core_id", number)
        clock = _number(folder / "cpufreq" / "cpuinfo_max_freq", 0)
        cpus.append(Cpu(number, package, core, clock))
    return cpus


def _number(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return otherwise


def mode_named(mode: str | int) -> str:
    """The name of a mode, which may be given by TVM's code; UsageError where there is none."""
    if isinstance(mode, int) and not isinstance(mode, bool) and mode in TVM_CODES:
        return TVM_CODES[mode]
    if not isinstance(mode, str) or mode not in MODES:
        hint = did_you_mean(mode, MODES) if isinstance(mode, str) else ""
        raise UsageError(f"no affinity mode {shown(mode)}{hint}; it is one of {', '.join(MODES)}")
    return mode


def cpu_order(mode: str, usable: Sequence[Cpu], listed: Sequence[int] | None) -> list[int]:
    """The CPUs that a mode other than ``none`` uses, in the order in which threads take them.

    UsageError where a CPU may not be used or is listed twice, or a mode that needs a list has none.
    """
    if listed is None and mode in _LISTED:
        raise UsageError(f"the affinity mode {mode!r} needs a list of CPUs; pass cpus=[...]")
    if listed is not None:
        _check_listed(listed, [cpu.number for cpu in usable])
    if mode in _LISTED:
        return list(listed or ())
    chosen = [cpu for cpu in usable if listed is None or cpu.number in listed]
    clocks = [cpu.max_khz for cpu in chosen]
    if mode in ("big", "little"):
        wanted = max(clocks) if mode == "big" else min(clocks)
        return [cpu.number for cpu in chosen if cpu.max_khz == wanted]
    if mode == "compact":
        return [c.number for c in sorted(chosen, key=lambda c: (c.package, c.core, c.number))]
    return _spread(chosen)


def _spread(cpus: Sequence[Cpu]) -> list[int]:
    """One CPU of each core first, packages in turns; then the second of each core, and so on."""
    cores: Counter[tuple[int, int]] = Counter()
    places: Counter[tuple[int, int]] = Counter()
    keys = []
    for cpu in sorted(cpus, key=lambda c: (c.package, c.core, c.number)):
        turn = cores[cpu.package, cpu.core]
        cores[cpu.package, cpu.core] += 1
        rank = places[cpu.package, turn]
        places[cpu.package, turn] += 1
        keys.append((turn, rank, cpu.package, cpu.number))
    return [number for *_, number in sorted(keys)]


def _check_listed(listed: Sequence[int], usable: Sequence[int]) -> None:
    if not listed:
        raise UsageError("the list of CPUs is empty; name at least one")
    for number in listed:
        if isinstance(number, bool) or number not in usable:
            may = ", ".join(map(str, usable))
            raise UsageError(f"CPU {shown(number)} may not be used here; those that may: {may}")
    if len(set(listed)) < len(listed):
        raise UsageError(f"the list of CPUs names one twice: {shown(list(listed))}")


def places(mode: str, order: Sequence[int], threads: int) -> tuple[frozenset[int], ...]:
    """The CPUs of each thread, the caller's first; more threads than CPUs begin again."""
    if mode == "shared":
        return (frozenset(order),) * threads
    return tuple(frozenset({order[i % len(order)]}) for i in range(threads))
