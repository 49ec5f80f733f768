"""What a worker process runs, and with which environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
    """

    module: str = "loopwright.measure.workers.worker"
    environment: Mapping[str, str | None] = field(default_factory=_SINGLE_THREADED.copy)
    arguments: tuple[str, ...] = ()

    def variables(self) -> dict[str, str]:
        """The environment of the process, in which our own package is found."""
        root = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        wanted = {**os.environ, "PYTHONPATH": path, **self.environment}
        return {name: value for name, value in wanted.items() if value is not None}
