"""The runner's side: machine code comes in, times and verdicts go out.

The parent decides who is dropped, who is checked, and how long anything may take; here is only the
work that needs the process with the code and the data.

A checked kernel must compute the right outputs and touch nothing else. It runs first on poisoned
outputs, the arrays against the end of their pages; then, against the start, on the outputs just
filled and on other inputs; once more when a few elements have changed; and on inputs at the edges
of their types, on outputs that hold something else. So a kernel is detected that works only once,
that adds to old outputs, that touches other memory, that is right on ordinary numbers alone, or
that looks at its outputs to see whether there is anything left to do. The last kind shows in the
times too: called again and again on equal inputs, as when it was timed, it is far faster than here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from loopwright import runtime
from loopwright.errors import DeviceLostError, InternalError, LoopwrightError, RunError
from loopwright.measure.comparison import (
    OTHER_PATTERN,
    Array,
    Closeness,
    KnownElements,
    known_from,
    split,
)
from loopwright.measure.inputs import EDGES, SETS, DataPlan, arguments
from loopwright.measure.workers import protocol
from loopwright.measure.workers.kernel_host import (
    ArgumentMemory,
    CpuHost,
    KernelArrays,
    LoadedKernel,
    prepared,
    same_bytes,
)
from loopwright.records import ErrorKind
from loopwright.runtime import Side, artifact_kind, grown

if TYPE_CHECKING:
    from loopwright.measure.workers.device_kernels import DeviceHost, Yardstick


#: A call that does its work may take this many times what one took when it was timed, and this many
#: seconds more: caches are cold, and threads asleep. Beyond it is timed again.
IMPLAUSIBLE = 3.0
SLACK_S = 10e-6
#: Calls on poisoned outputs before a kernel is suspected: of the first ones some are slow.
_ATTEMPTS = 5
#: The last element of an array.
_LAST = 1.0
_AT_EDGES = {
    "mixed": "with zeros and limits among them",
    "special": "with infinities and NaN among them",
    "one sign": "that are large and of one sign",
}


#: Right answers by the number of the set of inputs: whole outputs for each of `SETS`, then known
#: elements of each output for each of `EDGES`, or none of these.
_Answers = Sequence[Sequence[Array | KnownElements]]


class _Wrong(Exception):
    """The kernel is wrong, for the reason in the text."""


class Checkup:
    """One check of a kernel; only the answer to set 1 may have to be equal."""

    def __init__(
        self,
        kernel: LoadedKernel,
        data: KernelArrays,
        memory: ArgumentMemory,
        answers: _Answers,
        close: Closeness,
    ) -> None:
        self._kernel, self._data, self._memory = kernel, data, memory
        self._answers, self._close = answers, close
        self._max_error = 0.0
        self._tainted = False

    def reply(self, request: protocol.CheckRequest) -> protocol.CheckReply:
        problem: str | None = None
        times: tuple[float, ...] = ()
        try:
            with self._kernel.pinned():
                self._run("end", 0)
                self._run("start", 1)
                took = self._change_a_little(self._memory, 0, _LAST)
                for number in range(len(SETS), len(self._answers)):
                    self._run_at_edges(number)
                if request.seconds is not None:
                    times = self._retimed(request, request.seconds, took)
        except _Wrong as wrong:
            problem = str(wrong)
        return protocol.CheckReply(
            max_error=self._max_error, problem=problem, tainted=self._tainted, times=times
        )

    def _run(self, side: Side, number: int) -> None:
        """Run on a set of inputs: set 0 on poisoned outputs, set 1 on the former answer."""
        memory, data = self._memory, self._data
        former = memory.results() if number else []
        memory.place(side)
        memory.fill(data.inputs(number))
        for output, old in zip(memory.outputs, former, strict=bool(number)):
            memory.write(output, old)
        self._kernel.bound(memory).run()
        again = "called again on the outputs it had filled, with other inputs: " if number else ""
        self._judge(memory, number, again)

    def _run_at_edges(self, number: int) -> None:
        memory = self._memory
        memory.fill_inputs(self._data.inputs(number))
        memory.poison_outputs(OTHER_PATTERN)
        self._kernel.bound(memory).run()
        self._judge(memory, number, f"on inputs {_AT_EDGES[EDGES[number]]}: ")

    def _judge(self, memory: ArgumentMemory, number: int, when: str, guarded: bool = True) -> None:
        """Compare the contents of arrays with the answer to a set of inputs; raises _Wrong."""
        close = self._close if number == 1 else self._close._replace(exact=False)
        result = memory.judge(self._data.inputs(number), self._answers[number], close)
        outside = memory.written_outside() if guarded else None
        self._max_error = max(self._max_error, result.max_error)
        self._tainted = self._tainted or outside is not None
        problems = [text for text in (outside, result.problem) if text is not None]
        if problems:
            raise _Wrong(when + "; ".join(problems))

    # -- does it skip its work? ------------------------------------------------------------------

    def _retimed(
        self, request: protocol.CheckRequest, timed: float, took: float
    ) -> tuple[float, ...]:
        """Samples that replace the former ones, where these are implausibly short."""
        limit = IMPLAUSIBLE * timed + SLACK_S
        if took <= limit:
            return ()
        memory = self._memory
        call = self._kernel.bound(memory)
        memory.fill_inputs(self._data.inputs(1))
        prepared(call)
        quickest = math.inf
        for _ in range(_ATTEMPTS):
            memory.poison_outputs()
            quickest = min(quickest, runtime.time_call(call, 1))
        self._judge(memory, 1, "called several times: ")
        if quickest <= limit:
            return ()
        times = self._alternated(request)
        return times if statistics.median(times) > limit else ()

    def _alternated(self, request: protocol.CheckRequest) -> tuple[float, ...]:
        """Time calls on inputs that change, as a user's do; then compare again."""
        data = self._data
        data.restore()
        other = data.memory.beside()
        other.fill_inputs(data.inputs(1))
        memories = (data.memory, other)
        calls = [self._kernel.bound(memory) for memory in memories]
        for call in calls:
            prepared(call)
        times = []
        for _ in range(request.windows):
            seconds, number = 0.0, 0
            while seconds < request.window_s or number % 2:
                if request.flush:
                    memories[number % 2].flush()
                seconds += runtime.time_call(calls[number % 2], 1)
                number += 1
            times.append(seconds / number)
        for number, memory in enumerate(memories):
            memory.poison_outputs()
            calls[number].run()
            self._judge(memory, number, "after it had been timed: ", guarded=False)
        for part in (0.0, 0.5, _LAST):
            data.restore()
            self._kernel.run()
            self._change_a_little(data.memory, 1, part)
        return tuple(times)

    def _change_a_little(self, memory: ArgumentMemory, other: int, part: float) -> float:
        """Seconds of a call on poisoned outputs, which must do as much as one on filled outputs.

        One element of each input is changed to that of the set ``other``, at the relative place
        ``part``: 0 for the first, 1 for the last. The outputs of ``memory`` must hold the answer to
        its inputs; the kernel is wrong if its answer depends on them.
        """
        call = self._kernel.bound(memory)
        for number, new in zip(memory.inputs, self._data.inputs(other), strict=True):
            if new.size:
                memory.set_element(number, int(part * (new.size - 1)), new)
        call.run()
        stale = memory.results()
        memory.poison_outputs()
        seconds = runtime.time_call(call, 1)
        if not all(map(same_bytes, stale, memory.results())):
            raise _Wrong(
                "it skips its work: called again after one element of each input had changed, it "
                "gave another answer than on fresh outputs"
            )
        return seconds


#: A warm-up that is this many times beyond the limit of the race decides it alone, if it is long.
_HOPELESS = 2.0
_HOPELESS_S = 0.02
#: Being cold makes no difference to a warm-up as long as this: it counts as the run.
_LONG_S = 0.2
#: Guarded memory for arguments that are larger than this together is given back after each check.
_KEPT_BYTES = 1 << 28

_Answer = TypeVar("_Answer", bound=protocol.Reply)


class RunRole:
    """Holds the arrays of a task and a few kernels; times and checks them."""

    def __init__(self, device: str = "") -> None:
        self._host: CpuHost | DeviceHost
        if device:
            from loopwright.measure.workers.device_kernels import DeviceHost

            self._host = DeviceHost(runtime.device(device))
        else:
            self._host = CpuHost()
        self._data_held: KernelArrays | None = None
        self._kernels: dict[int, LoadedKernel] = {}
        self._references: dict[str, _Answers] = {}
        self._memory: ArgumentMemory | None = None
        self._limits: dict[str, Yardstick] = {}

    def answer(self, request: protocol.Message) -> protocol.Reply:
        """Carry out a request; after an error the processor is probed."""
        try:
            return self._answer(request)
        except RunError as error:
            problem = "the runner is started again"
            if not isinstance(error, DeviceLostError):
                try:
                    self._host.probe()
                except LoopwrightError as broken:
                    problem = f"after it {broken}; {problem}"
                else:
                    raise
            return protocol.Failed(
                kind=ErrorKind.RUN_ERROR, text=f"{error}; {problem}", tainted=True
            )

    def _answer(self, request: protocol.Message) -> protocol.Reply:
        match request:
            case protocol.DataRequest():
                return self._make_data(request)
            case protocol.RaceRequest():
                return self._race(request)
            case protocol.WindowsRequest() | protocol.CountsRequest():
                return self._samples(request)
            case protocol.CheckRequest():
                return self._check(request)
            case protocol.OutputsRequest():
                return self._outputs(request)
            case protocol.YardstickRequest():
                return self._sample_limit(request)
        raise InternalError(f"a runner was sent a {type(request).__name__}")

    def _make_data(self, request: protocol.DataRequest) -> protocol.Done:
        self._kernels.clear()
        self._references.clear()
        self._data_held = None
        self._memory = None
        args = arguments(runtime.Artifact(request.manifest, b""))
        plan = DataPlan(request.spans, request.largest, request.lines)
        memory = self._host.memory(args)
        self._data_held = KernelArrays(memory, request.seed, request.payload, plan)
        return protocol.Done()

    @property
    def _data(self) -> KernelArrays:
        if self._data_held is None:
            raise InternalError("a runner was asked to run without data")
        return self._data_held

    def _kernel(self, slot: int) -> LoadedKernel:
        if slot not in self._kernels:
            raise InternalError(f"a runner has no kernel in slot {slot}")
        return self._kernels[slot]

    def _race(self, request: protocol.RaceRequest) -> protocol.RaceReply | protocol.Failed:
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
            protocol.RaceReply(
                warm=warm, first=first, dropped=first > limit, prepare=kernel.prepare_seconds
            )
        )

    def _samples(
        self, request: protocol.WindowsRequest | protocol.CountsRequest
    ) -> protocol.SamplesReply | protocol.Failed:
        kernel = self._kernel(request.slot)
        with kernel.pinned():
            if isinstance(request, protocol.WindowsRequest):
                times = _windows(kernel, request)
            else:
                times = _counts(kernel, request)
        return self._unless_written_outside(protocol.SamplesReply(times=times))

    def _check(self, request: protocol.CheckRequest) -> protocol.CheckReply:
        kernel, data = self._kernel(request.slot), self._data
        if request.payload:
            outputs = [arg for arg in data.args if arg.output]
            whole = split(request.payload, outputs * len(SETS))
            sets = [whole[: len(outputs)], whole[len(outputs) :]]
            edges = known_from(request.payload[sum(a.nbytes for a in whole) :], len(outputs))
            self._references[request.key] = (*sets, *edges)
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

    def _outputs(self, request: protocol.OutputsRequest) -> protocol.OutputsReply | protocol.Failed:
        artifact = runtime.Artifact(request.manifest, request.payload)
        data, host = self._data, self._host
        if artifact_kind(artifact.kind).device != host.device_type:
            host = CpuHost()  # which computes right answers for a device
        memory = data.memory if host is self._host else host.memory(data.args)
        memory.fill(data.inputs(request.number))
        host.load(artifact, memory).run()
        payload = b"".join(array.tobytes() for array in memory.results())
        data.restore()
        return self._unless_written_outside(protocol.OutputsReply(payload=payload), memory)

    def _sample_limit(self, request: protocol.YardstickRequest) -> protocol.YardstickReply:
        if request.payload:
            if isinstance(self._host, CpuHost):
                raise InternalError("a runner of cpu was asked for a limit of a device")
            artifact = runtime.Artifact(request.manifest, request.payload)
            self._limits[request.name] = self._host.limit(artifact, request.through_memory)
        if request.name not in self._limits:
            raise InternalError("a runner was asked for a limit whose kernel it was never sent")
        return protocol.YardstickReply(rate=self._limits[request.name].rate())

    def _unless_written_outside(
        self, reply: _Answer, memory: ArgumentMemory | None = None
    ) -> _Answer | protocol.Failed:
        problem = (memory or self._data.memory).written_outside()
        if problem is None:
            return reply
        return protocol.Failed(kind=ErrorKind.WRONG_ANSWER, text=problem, tainted=True)


def _windows(kernel: LoadedKernel, request: protocol.WindowsRequest) -> tuple[float, ...]:
    """Samples of ``window_s`` within the budget; two suffice where both are beyond ``clear``."""
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


def _counts(kernel: LoadedKernel, request: protocol.CountsRequest) -> tuple[float, ...]:
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
