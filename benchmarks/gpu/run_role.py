"""A process that holds the device and a case's arrays; it can be killed where a kernel hangs.

It needs the runtime alone, no compiler. Arrays lie between guard zones, and outputs hold what
cannot be right before an answer is checked.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import numpy as np

from benchmarks.gpu.cases import BY_NAME, PEAK, Case
from benchmarks.gpu.data import Array, inputs, problem
from benchmarks.gpu.libraries import SWEEP, SWEEP_BYTES
from benchmarks.gpu.messages import (
    GpuDataRequest,
    GpuReady,
    GpuTrial,
    GpuTrialRequest,
    GpuTurn,
    GpuTurnRequest,
)
from benchmarks.gpu.peak import EXPECTED
from loopwright import runtime
from loopwright.errors import DeviceLostError, InternalError, LoopwrightError, RunError
from loopwright.measure.inputs import arguments
from loopwright.measure.workers.device_kernels import DeviceHost, DeviceMemory
from loopwright.measure.workers.protocol import Failed, Message, Reply
from loopwright.measure.workers.worker import main
from loopwright.records import ErrorKind

#: A candidate that takes so many times the best one's time is not timed again.
_BEHIND = 1.5
#: The shortest time that is told: clocks of devices tick, and a time must be more than nothing.
_TICK_S = 1e-9


class GpuRunRole:
    """Times and checks programs on one device.

    Args:
        device: such as ``"cuda:0"``.

    Raises:
        UsageError: it cannot be used; the message says what is missing.
    """

    def __init__(self, device: str) -> None:
        self._host = DeviceHost(runtime.device(device))
        self._case: Case | None = None
        self._given: list[Array] = []
        self._memory: DeviceMemory | None = None
        self._call: runtime.DeviceCall | None = None
        self._sweep = _sweep_memory(self._host.device)

    def answer(self, request: Message) -> Reply:
        """Do what the request says; after an error the device is probed."""
        try:
            match request:
                case GpuDataRequest():
                    return self._make_data(request)
                case GpuTrialRequest():
                    return self._trial(request)
                case GpuTurnRequest():
                    return GpuTurn(times=self._times(request.samples))
        except RunError as error:
            broken = self._broken(error)
            return Failed(kind=ErrorKind.RUN_ERROR, text=f"{error}{broken}", tainted=bool(broken))
        raise InternalError(f"a runner was sent a {type(request).__name__}")

    def _broken(self, error: RunError) -> str:
        """Why this process can run no more kernels; empty: it can."""
        if isinstance(error, DeviceLostError):
            return "; the runner is started again"
        try:
            self._host.probe()
        except LoopwrightError as found:
            return f"; after it {found}; the runner is started again"
        return ""

    def _make_data(self, request: GpuDataRequest) -> GpuReady:
        self._call = self._memory = None  # before the next one is made: both need not fit
        self._case = case = BY_NAME[request.case]
        artifact = runtime.Artifact.load(Path(request.path))
        self._memory = self._host.memory(arguments(artifact))
        self._given = inputs(case, case.sizes(request.small), request.seed)
        self._memory.fill_inputs(self._given)
        return GpuReady(device=self._host.device.device_name)

    @property
    def _arrays(self) -> DeviceMemory:
        if self._memory is None:
            raise InternalError("a runner was asked to run without data")
        return self._memory

    def _trial(self, request: GpuTrialRequest) -> GpuTrial:
        self._call = None
        artifact = runtime.Artifact.load(Path(request.path))
        self._call = self._host.load(artifact, self._arrays).bound(self._arrays)
        times = self._times(1)
        dropped = request.best is not None and times[0] > _BEHIND * request.best
        if not dropped:
            times = self._times(request.samples)
        best = request.best is None or statistics.median(times) < request.best
        found = self._problem() if best and not dropped else ""
        outside = self._arrays.written_outside() or ""
        return GpuTrial(
            times=times,
            dropped=dropped,
            checked=best and not dropped,
            problem="; ".join(filter(None, (found, outside))),
        )

    def _times(self, samples: int) -> tuple[float, ...]:
        """Seconds of one call each, the second-level cache swept before.

        The sweep is not waited for: while it runs the host puts the call behind it, so that the
        time between the events is the device's alone.
        """
        if self._call is None:
            raise InternalError("a runner was asked to run without a program")
        device, call = self._host.device, self._call
        api, stream = device.api, device.api.current_stream(device.device_id)
        times: list[float] = []
        for _ in range(samples):
            api.fill(self._sweep, 0, stream)
            first = api.record_event(device.device_id, stream)
            call.launch(stream)
            then = api.record_event(device.device_id, stream)
            times.append(max(api.elapsed(first, then), _TICK_S))
        return tuple(times)

    def _problem(self) -> str:
        """What is wrong with the answer of the program; empty: nothing."""
        if self._call is None or self._case is None:
            raise InternalError("a runner was asked to check without a program")
        self._arrays.fill(self._given)  # whatever ran before may have changed its inputs
        self._call.run()
        (answer,) = self._arrays.results()
        if self._case.name == PEAK:
            wrong = int(np.count_nonzero(answer != EXPECTED))
            return f"{wrong} of {answer.size} threads did not do all products" if wrong else ""
        return problem(self._case, self._given, answer)


def _sweep_memory(device: runtime.Device) -> runtime.Memory:
    """What is written before each call, so that nothing is left in the second-level cache."""
    cached = SWEEP * (device.l2_cache_size_bytes or 1 << 22)
    least = SWEEP_BYTES if device.name == "cuda" else 0
    return device.api.allocate(device.device_id, max(cached, least))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda name, device: GpuRunRole(device)))
