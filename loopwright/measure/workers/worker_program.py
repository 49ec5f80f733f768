"""What a worker process runs, and with which environment."""

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
    """What a worker process runs.

    Attributes:
        module: run as ``python -m MODULE ROLE MEMORY_BYTES PARENT_PID ARGUMENTS``; its main calls
            `loopwright.measure.workers.worker.main`.
        arguments: what else its role takes, such as the name of a device.
        environment: variables that differ from those of this process; None unsets one.
        own_folder: whether it works in an empty folder, which is removed when it has ended:
            drivers of devices leave files where they are, such as PoCL its drawings of what it
            cannot compile. Folders of its environment remain what they are for this process.
    """

    module: str = "loopwright.measure.workers.worker"
    environment: Mapping[str, str | None] = field(default_factory=_SINGLE_THREADED.copy)
    arguments: tuple[str, ...] = ()
    own_folder: bool = False

    def variables(self) -> dict[str, str]:
        """The environment of the process, in which our own package is found."""
        root = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        wanted = {**os.environ, "PYTHONPATH": path, **self.environment}
        known = {name: value for name, value in wanted.items() if value is not None}
        return {**known, **_absolute(known)} if self.own_folder else known


def _absolute(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables that name folders, each seen from this process."""
    named = {name: variables[name].split(os.pathsep) for name in _FOLDERS if variables.get(name)}
    seen = {name: os.pathsep.join(map(os.path.abspath, x)) for name, x in named.items()}
    if variables.get("LOOPWRIGHT_CACHE"):
        seen["LOOPWRIGHT_CACHE"] = str(env.cache_folder() or 0)
    return seen
