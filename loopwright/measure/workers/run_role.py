"""The runner's side: machine code comes in, times and verdicts go out.

The parent decides who is dropped, who is checked, and how long anything may take; here is only the
work that needs the process with the code and the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from loopwright import runtime
from loopwright.errors import DeviceLostError, InternalError, LoopwrightError, RunError
from loopwright.measure.comparison import Closeness, known_from
from loopwright.measure.inputs import DataPlan, arguments
from loopwright.measure.workers.checkup import Checkup, KnownAnswers
from loopwright.measure.workers.cpu_kernels import CpuHost
from loopwright.measure.workers.kernel_host import (
    ArgumentMemory,
    KernelArrays,
    KernelHost,
    LoadedKernel,
)
from loopwright.measure.workers.protocol import (
    CheckReply,
    CheckRequest,
    CountsRequest,
    DataRequest,
    Done,
    Failed,
    Message,
    OutputsReply,
    OutputsRequest,
    RaceReply,
    RaceRequest,
    Reply,
    SamplesReply,
    WindowsRequest,
    YardstickReply,
    YardstickRequest,
)
from loopwright.records import ErrorKind
from loopwright.runtime import artifact_kind, grown

if TYPE_CHECKING:
    from loopwright.measure.workers.yardstick import Yardstick

#: A warm-up that is this many times beyond the limit of the race decides it alone, if it is long.
_HOPELESS = 2.0
_HOPELESS_S = 0.02
#: Being cold makes no difference to a warm-up as long as this: it counts as the run.
_LONG_S = 0.2
#: Guarded memory for arguments that are larger than this together is given back after each check.
_KEPT_BYTES = 1 << 28

_Answer = TypeVar("_Answer", bound=Reply)


class RunRole:
    """Holds the arrays of a task and a few kernels; times and checks them.

    Raises a UsageError that names what is missing where the device cannot be used, and a RunError
    where it gives wrong results.
    """

    def __init__(self, device: str = "") -> None:
        self._host: KernelHost
        if device:
            from loopwright.measure.workers.device_kernels import DeviceHost

            self._host = DeviceHost(runtime.device(device))
        else:
            self._host = CpuHost()
        self._data_held: KernelArrays | None = None
        self._kernels: dict[int, LoadedKernel] = {}
        self._references: dict[str, KnownAnswers] = {}
        self._memory: ArgumentMemory | None = None
        self._limits: dict[str, Yardstick] = {}

    def answer(self, request: Message) -> Reply:
        """Carry out a request; after an error the processor is probed."""
        try:
            return self._answer(request)
        except RunError as error:
            problem = self._problem(error)
            if problem is None:
                raise
            return Failed(kind=ErrorKind.RUN_ERROR, text=f"{error}; {problem}", tainted=True)

    def _problem(self, error: RunError) -> str | None:
        if isinstance(error, DeviceLostError):
            return "the runner is started again"
        try:
            self._host.probe()
        except LoopwrightError as broken:
            return f"after it {broken}; the runner is started again"
        return None

    def _answer(self, request: Message) -> Reply:
        match request:
            case DataRequest():
                return self._make_data(request)
            case RaceRequest():
                return self._race(request)
            case WindowsRequest():
                return self._sampled(request.slot, lambda kernel: _windows(kernel, request))
            case CountsRequest():
                return self._sampled(request.slot, lambda kernel: _counts(kernel, request))
            case CheckRequest():
                return self._check(request)
            case OutputsRequest():
                return self._outputs(request)
            case YardstickRequest():
                return self._sample_limit(request)
        raise InternalError(f"a runner was sent a {type(request).__name__}")

    def _make_data(self, request: DataRequest) -> Done:
        self._kernels.clear()
        self._references.clear()
        self._data_held = None
        self._memory = None
        args = arguments(runtime.Artifact(request.manifest, b""))
        plan = DataPlan(request.spans, request.largest, request.lines)
        memory = self._host.memory(args)
        self._data_held = KernelArrays(memory, request.seed, request.payload, plan)
        return Done()

    @property
    def _data(self) -> KernelArrays:
        if self._data_held is None:
            raise InternalError("a runner was asked to run without data")
        return self._data_held

    def _kernel(self, slot: int) -> LoadedKernel:
        if slot not in self._kernels:
            raise InternalError(f"a runner has no kernel in slot {slot}")
        return self._kernels[slot]

    def _race(self, request: RaceRequest) -> RaceReply | Failed:
        if request.slot == 0:
            self._kernels.clear()
        self._kernels.pop(request.slot, None)
        artifact = runtime.Artifact(request.manifest, request.payload)
        kernel = self._host.load(artifact, self._data.memory)
        kernel.take_turns(request.other_constants)
        self._kernels[request.slot] = kernel
        limit = math.inf if request.drop is None else request.drop
        with kernel.pinned():
            warm = first = kernel.run()
            if warm < _LONG_S and warm <= max(_HOPELESS * limit, _HOPELESS_S):
                first = kernel.run(flush=request.flush)
        return self._unless_written_outside(
            RaceReply(warm=warm, first=first, dropped=first > limit, prepare=kernel.prepare_seconds)
        )

    def _sampled(
        self, slot: int, sample: Callable[[LoadedKernel], tuple[float, ...]]
    ) -> SamplesReply | Failed:
        kernel = self._kernel(slot)
        with kernel.pinned():
            times = sample(kernel)
        return self._unless_written_outside(SamplesReply(times=times))

    def _check(self, request: CheckRequest) -> CheckReply:
        kernel, data = self._kernel(request.slot), self._data
        if request.payload:
            outputs = [arg.nbytes for arg in data.args if arg.output]
            first, both = sum(outputs), 2 * sum(outputs)
            sets = data.split(request.payload[:first]), data.split(request.payload[first:both])
            edges = known_from(request.payload[both:], len(outputs))
            self._references[request.key] = KnownAnswers(sets, edges)
        if request.key not in self._references:
            raise InternalError("a runner was asked to check against what it was never sent")
        answers = self._references[request.key]
        close = Closeness(request.length, request.computed, request.exact, request.rounding)
        try:
            return Checkup(kernel, data, self._memory_for(kernel), answers, close).reply(request)
        finally:
            data.restore()
            if sum(arg.nbytes for arg in data.args) > _KEPT_BYTES:
                self._memory = None

    def _memory_for(self, kernel: LoadedKernel) -> ArgumentMemory:
        """Memory for the check of a kernel: that of the last check, where it fits."""
        args, workspace_bytes = self._data.args, kernel.workspace_bytes
        if self._memory is None or not self._memory.fits(args, workspace_bytes):
            self._memory = None  # before the next one is made: both need not fit
            self._memory = self._host.check_memory(args, workspace_bytes)
        return self._memory

    def _outputs(self, request: OutputsRequest) -> OutputsReply | Failed:
        artifact = runtime.Artifact(request.manifest, request.payload)
        data, host = self._data, self._host
        if artifact_kind(artifact.kind).device != host.device_type:
            host = CpuHost()  # which computes right answers for a device
        memory = data.memory if host is self._host else host.memory(data.args)
        memory.fill(data.inputs(request.number))
        host.load(artifact, memory).run()
        payload = b"".join(array.tobytes() for array in memory.results())
        problem = memory.written_outside()
        data.restore()
        if problem is not None:
            return _wrote_outside(problem)
        return OutputsReply(payload=payload)

    def _sample_limit(self, request: YardstickRequest) -> YardstickReply:
        if request.payload:
            artifact = runtime.Artifact(request.manifest, request.payload)
            self._limits[request.name] = self._host.limit(artifact, request.through_memory)
        if request.name not in self._limits:
            raise InternalError("a runner was asked for a limit whose kernel it was never sent")
        return YardstickReply(rate=self._limits[request.name].rate())

    def _unless_written_outside(self, reply: _Answer) -> _Answer | Failed:
        problem = self._data.memory.written_outside()
        return reply if problem is None else _wrote_outside(problem)


def _wrote_outside(problem: str) -> Failed:
    return Failed(kind=ErrorKind.WRONG_ANSWER, text=problem, tainted=True)


def _windows(kernel: LoadedKernel, request: WindowsRequest) -> tuple[float, ...]:
    """Samples of about ``window_s`` each, as many as fit into the budget; of one call if cold. Two
    are enough where both are beyond ``clear``.
    """
    window, flush, left = request.window_s, request.flush, request.budget
    clear = math.inf if request.clear is None else request.clear
    enough = left - request.enough
    estimate = max(request.first, 1e-9)
    number = 1 if flush else max(1, round(window / estimate))
    times: list[float] = []
    while len(times) < request.windows and number * estimate <= left:
        if times and (left <= enough or (len(times) > 1 and min(times) > clear)):
            break
        seconds = kernel.run(number, flush=flush)
        left -= seconds
        if not flush and seconds < window / 2 and number * estimate >= window / 2:
            # One call alone took far longer than one of many: a tiny kernel, cold.
            estimate = max(seconds / number, 1e-9)
            number = max(1, round(window / estimate))
            continue
        times.append(seconds / number)
    return tuple(times)


def _counts(kernel: LoadedKernel, request: CountsRequest) -> tuple[float, ...]:
    """AutoTVM's samples: ``repeat`` of ``number`` calls, more calls to fill ``min_repeat_ms``."""
    number, min_repeat_ms = request.number, request.min_repeat_ms
    left, flush = request.budget, request.flush
    if flush:  # as AutoTVM: a cold cache is only seen by one call
        number, min_repeat_ms = 1, 0.0
    estimate = request.first
    times: list[float] = []
    while len(times) < request.repeat and number * estimate <= left:
        seconds = kernel.run(number, flush=flush)
        left -= seconds
        if seconds * 1e3 < min_repeat_ms:
            number = grown(number, max(seconds, 1e-9), min_repeat_ms)
            continue
        times.append(seconds / number)
        estimate = max(estimate, seconds / number)
    return tuple(times)
