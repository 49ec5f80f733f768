"""All checks of the doctor, in the order of its report."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loopwright import env
from loopwright.errors import UsageError
from loopwright.inspection.doctor import (
    accelerators,
    disturbances,
    hardware,
    installation,
    limits,
    storage,
)
from loopwright.inspection.doctor.finding import Finding, State, SystemFiles, unknown
from loopwright.records import Json


@dataclass(frozen=True)
class Diagnosis:
    """Findings of the doctor, one for each check."""

    findings: tuple[Finding, ...]

    def count(self, state: State) -> int:
        """Number of findings of a state."""
        return sum(finding.state is state for finding in self.findings)

    @property
    def healthy(self) -> bool:
        """True when nothing keeps tuning from working; warnings do not."""
        return self.count(State.PROBLEM) == 0

    def to_json(self) -> dict[str, Json]:
        """JSON for scripts: all findings, and their number in each state."""
        return {
            "loopwright": env.version("loopwright"),
            "healthy": self.healthy,
            "counts": {state.value: self.count(state) for state in State},
            "findings": [finding.to_json() for finding in self.findings],
        }


def examine(
    folder: str | os.PathLike[str] = ".", *, measure: bool = True, files: SystemFiles | None = None
) -> Diagnosis:
    """Check everything that decides whether tuning works here, and how steady its times are.

    Takes about three seconds; without measuring, one.

    Args:
        folder: where logs are to be written.
        measure: also time a reference kernel, which needs the device for about a second.
        files: the system's files; None: those of this machine.

    Returns:
        The findings, in the order installation, CPU, limits, what disturbs, memory, files, devices.

    Example:
        >>> from loopwright.inspection.doctor import examine
        >>> diagnosis = examine(measure=False)
        >>> print(diagnosis.healthy == (diagnosis.to_json()["counts"]["problem"] == 0))
        True
    """
    files = files or SystemFiles()
    cpus = env.usable_cpus()
    threads = _threads(len(cpus))
    findings = [
        *_installation(files),
        *_processor(files, cpus, threads),
        limits.cpu_time(files, len(cpus)),
        limits.memory(files, len(cpus)),
        *limits.user_limits(limits.present_limits()),
        *disturbances.load(files),
        disturbances.timer(files, *disturbances.read_clock()),
        *([disturbances.noise(sorted({1, threads}))] if measure else []),
        hardware.huge_pages(files),
        hardware.alignment(hardware.numpy_addresses()),
        *_places(files, Path(folder)),
        accelerators.nvidia(files, os.environ),
        accelerators.opencl(files, os.environ),
    ]
    return Diagnosis(tuple(findings))


def _installation(files: SystemFiles) -> list[Finding]:
    names = ("xgboost", "xgboost-cpu")
    versions = {name: found for name in names if (found := _version(name))}
    variables = env.surroundings().get("variables", {})
    return [
        installation.system(platform.system(), platform.release(), platform.python_version()),
        installation.dependencies(_required(), _version),
        installation.xgboost(versions, platform.system()),
        installation.environment(lambda: env.Settings.from_environ(os.environ), variables),
        *installation.compiler(files),
    ]


def _processor(files: SystemFiles, cpus: Sequence[int], threads: int) -> list[Finding]:
    return [
        hardware.affinity(files, cpus, threads, env.num_threads_variable(os.environ)),
        hardware.siblings(files, cpus),
        hardware.governor(files, cpus),
        hardware.turbo(files),
    ]


def _places(files: SystemFiles, folder: Path) -> list[Finding]:
    return [
        storage.log_folder(files, folder),
        storage.temporary_folder(os.environ.get("TMPDIR", "")),
        storage.lock_folder(),
        _kernel_cache(),
    ]


def _threads(cpus: int) -> int:
    """Threads of a kernel; where the setting is not understood, one for each CPU."""
    from loopwright.runtime import get_num_threads

    try:
        return get_num_threads()
    except UsageError:
        return cpus


def _kernel_cache() -> Finding:
    try:
        return storage.kernel_cache(env.cache_folder())
    except UsageError:
        return unknown("kernel cache", "a variable is not understood, see `environment`")


def _version(distribution: str) -> str | None:
    """Version of an installed distribution; None for one that is not there."""
    found = env.version(distribution)
    return None if found == "not installed" else found


def _required() -> list[str]:
    """Requirements of the installed package; none where it is not installed as a package."""
    from importlib import metadata

    try:
        return metadata.requires("loopwright") or []
    except metadata.PackageNotFoundError:
        return []
