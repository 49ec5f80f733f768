"""Program and environment of a worker process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loopwright import env

#: Folders, or lists of folders, that a process in another folder would look for there.
_FOLDERS = ("CUDA_CACHE_PATH", "LD_LIBRARY_PATH", "POCL_CACHE_DIR", "PYTHONPATH", "TMPDIR")
#: Workers use NumPy only to fill and compare arrays: its own threads would disturb what is timed.
_SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class WorkerProgram:
    """Program of a worker process."""

    #: Run as ``python -m MODULE ROLE MEMORY_BYTES PARENT_PID ARGUMENTS``; its main calls
    #: `loopwright.measure.workers.worker.main`.
    module: str = "loopwright.measure.workers.worker"
    #: Variables that differ from those of this process; None unsets one.
    environment: Mapping[str, str | None] = field(default_factory=_SINGLE_THREADED.copy)
    arguments: tuple[str, ...] = ()  # of the role, such as the name of a device
    #: Whether it works in an empty folder, removed at its end: drivers of devices leave files in
    #: the working folder, such as PoCL its drawings of what it cannot compile. Relative folders in
    #: its environment still refer to the folder of this process.
    own_folder: bool = False

    def variables(self) -> dict[str, str]:
        """The environment of the process, in which our own package is found."""
        root = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        wanted = {**os.environ, "PYTHONPATH": path, **self.environment}
        known = {name: value for name, value in wanted.items() if value is not None}
        return {**known, **_absolute(known)} if self.own_folder else known


def _absolute(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables that name folders, made absolute from this process."""
    named = {name: variables[name].split(os.pathsep) for name in _FOLDERS if variables.get(name)}
    seen = {name: os.pathsep.join(map(os.path.abspath, x)) for name, x in named.items()}
    if variables.get("LOOPWRIGHT_CACHE"):
        seen["LOOPWRIGHT_CACHE"] = str(env.cache_folder() or 0)
    return seen
