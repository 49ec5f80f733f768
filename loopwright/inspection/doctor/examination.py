"""All checks of the doctor, in the order of its report."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from loopwright import env
from loopwright.errors import UsageError
from loopwright.inspection.doctor import disturbances, hardware, installation, limits
from loopwright.inspection.doctor.finding import Finding, State, SystemFiles, unknown
from loopwright.records import Json


@dataclass(frozen=True)
class Diagnosis:
    findings: tuple[Finding, ...]

    def count(self, state: State) -> int:
        return sum(finding.state is state for finding in self.findings)

    @property
    def healthy(self) -> bool:
        """True when nothing keeps tuning from working; warnings do not."""
        return self.count(State.PROBLEM) == 0

    def to_json(self) -> dict[str, Json]:
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

    Takes about three seconds; without ``measure``, which times a reference kernel on the device for
    about a second, one. Logs are to be written to ``folder``.
    """
    from loopwright.runtime import get_num_threads

    files, folder = files or SystemFiles(), Path(folder)
    cpus = env.usable_cpus()
    try:
        threads = get_num_threads()
    except UsageError:  # the setting is not understood
        threads = len(cpus)
    try:
        requirements = metadata.requires("loopwright") or []
    except metadata.PackageNotFoundError:
        requirements = []
    try:
        cache = limits.kernel_cache(env.cache_folder())
    except UsageError:
        cache = unknown("kernel cache", "a variable is not understood, see `environment`")
    xgboost = {name: version for name in installation.XGBOOST if (version := _version(name))}
    variables = env.surroundings().get("variables", {})
    findings = [
        installation.system(platform.system(), platform.release(), platform.python_version()),
        installation.dependencies(requirements, _version),
        installation.xgboost(xgboost, platform.system()),
        installation.environment(lambda: env.Settings.from_environ(os.environ), variables),
        *installation.compiler(files),
        hardware.affinity(files, cpus, threads, env.num_threads_variable(os.environ)),
        hardware.siblings(files, cpus),
        hardware.governor(files, cpus),
        hardware.turbo(files),
        limits.cpu_time(files, len(cpus)),
        limits.memory(files, len(cpus)),
        *limits.user_limits(limits.present_limits()),
        *disturbances.load(files),
        disturbances.timer(files, *disturbances.read_clock()),
        *([disturbances.noise(sorted({1, threads}))] if measure else []),
        hardware.huge_pages(files),
        hardware.alignment(hardware.numpy_addresses()),
        limits.log_folder(files, folder),
        limits.temporary_folder(os.environ.get("TMPDIR", "")),
        limits.lock_folder(),
        cache,
        hardware.nvidia(files, os.environ),
        hardware.opencl(files, os.environ),
    ]
    return Diagnosis(tuple(findings))


def _version(distribution: str) -> str | None:
    version = env.version(distribution)
    return None if version == "not installed" else version
