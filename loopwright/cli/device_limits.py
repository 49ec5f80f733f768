"""The limits of a device that ``bench`` compares kernels with, measured in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from loopwright.cli.schedules import ChosenSchedule
from loopwright.errors import BuildError, CodegenError, LowerError, RunError, UsageError
from loopwright.measure.playoff.device_limit import (
    arithmetic_limit,
    bandwidth_limit,
    in_this_process,
    uses_tensor_cores,
)
from loopwright.measure.playoff.machine_limit import MachineLimit, bytes_of, stays_in_cache
from loopwright.runtime import Artifact, Device
from loopwright.task import Task
from loopwright.tuner.run.state import flop_of

_T = TypeVar("_T")
#: Errors of building or running the kernel that measures a limit.
REFUSED = (BuildError, CodegenError, LowerError, RunError, UsageError)


class DeviceLimits:
    """The limits of a device that bound the kernels of a task."""

    def __init__(
        self, task: Task, scheduled: ChosenSchedule, artifact: Artifact, device: Device
    ) -> None:
        #: The name of the limit by arithmetic, empty without one; the reason why a limit is
        #: unknown.
        self.name, self.doubt = "", ""
        self._task, self._device = task, device
        self._nbytes = bytes_of(artifact)
        self._rate = in_this_process(device)
        self._arithmetic: MachineLimit | None = None
        flop, schedule = flop_of(task), scheduled.schedule
        if not flop or uses_tensor_cores(schedule.trace_json()):
            return
        self._arithmetic = self._unless_refused(
            lambda: arithmetic_limit(flop, schedule.dag, task.target, self._rate)
        )
        self.name = "" if self._arithmetic is None else self._arithmetic.name

    def peak(self) -> float | None:
        """Operations a second, measured now; None where unknown, or refused once."""
        limit = self._arithmetic
        found = None if limit is None else self._unless_refused(limit.rate)
        if found is None:
            self._arithmetic, self.name = None, ""
        return found

    def bandwidth(self) -> float | None:
        """Bytes a second of memory, measured now; None where unknown, or where a cache
        holds all.
        """
        if stays_in_cache(self._nbytes, self._device):
            return None
        return self._unless_refused(
            lambda: bandwidth_limit(self._nbytes, self._task.target, self._rate).rate()
        )

    def _unless_refused(self, measure: Callable[[], _T]) -> _T | None:
        try:
            return measure()
        except REFUSED as error:
            self.doubt = f"what {self._device} can do at most is not known: {error}"
            return None
