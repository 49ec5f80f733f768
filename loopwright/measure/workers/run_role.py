"""The runner's side: machine code comes in, times and verdicts go out.

Policy (who is dropped, who is checked, how long anything may take) is the parent's; here is only
what must happen in the process that holds the code and the data.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TypeVar

import numpy as np

from loopwright import runtime
from loopwright.errors import InternalError
from loopwright.measure.arguments import arguments
from loopwright.measure.check import Array
from loopwright.measure.workers.arrays import KernelArrays
from loopwright.measure.workers.messages import (
    CheckReply,
    CheckRequest,
    CountsRequest,
    DataRequest,
    Done,
    Failed,
    OutputsReply,
    OutputsRequest,
    RaceReply,
    RaceRequest,
    SamplesReply,
    WindowsRequest,
)
from loopwright.measure.workers.protocol import Message, Reply
from loopwright.records import ErrorKind
from loopwright.runtime import timing
from loopwright.runtime.artifacts.kinds import artifact_kind

#: A warm-up that is this many times beyond the limit of the race decides it alone, if it is long.
_HOPELESS = 2.0
_HOPELESS_S = 0.02
#: Being cold makes no difference to a warm-up as long as this: it counts as the run.
_LONG_S = 0.2

_Answer = TypeVar("_Answer", bound=Reply)


class LoadedKernel:
    """One linked candidate, bound to the runner's arrays."""

    def __init__(self, artifact: runtime.Artifact, buffers: KernelArrays) -> None:
        needs = artifact_kind(artifact.kind).needs
        if needs:
            import_module(needs)  # it registers how such a program is linked

        self.function = runtime.Module(artifact).get_function(artifact.entry)
        contents = artifact.contents
        uses_pool = contents.function(artifact.entry).uses_pool
        self._threads = contents.num_threads or None if uses_pool else 1
        self._call = self.function.bind(*buffers.arrays)
        self._arrays = buffers.arrays

    def pinned(self) -> AbstractContextManager[None]:
        """Its threads stay on their CPUs inside the block."""
        return runtime.pinned(self._threads)

    def run(self, number: int = 1, *, flush: bool = False) -> float:
        """Seconds of ``number`` calls together; with ``flush`` of one call with cold caches."""
        if flush:
            timing.flush(*self._arrays)
        return runtime.time_call(self._call, 1 if flush else number)


class RunRole:
    """Holds the arrays of a task and a few kernels; times and checks them."""

    def __init__(self) -> None:
        self._buffers: KernelArrays | None = None
        self._kernels: dict[int, LoadedKernel] = {}
        self._references: dict[str, list[Array]] = {}
        # The pool and the timing loop are compiled now, so that no candidate pays for it.
        with runtime.pinned():
            timing.flush(np.zeros(1))

    def answer(self, request: Message) -> Reply:
        """Do what the request says."""
        match request:
            case DataRequest():
                return self._make_data(request)
            case RaceRequest():
                return self._race(request)
            case WindowsRequest():
                return self._sample_windows(request)
            case CountsRequest():
                return self._sample_counts(request)
            case CheckRequest():
                return self._check(request)
            case OutputsRequest():
                return self._outputs(request)
        raise InternalError(f"a runner was sent a {type(request).__name__}")

    def _make_data(self, request: DataRequest) -> Done:
        self._kernels.clear()
        self._references.clear()
        self._buffers = None
        self._buffers = KernelArrays(
            arguments(runtime.Artifact(request.manifest, b"")), request.seed, request.payload
        )
        return Done()

    @property
    def _data(self) -> KernelArrays:
        if self._buffers is None:
            raise InternalError("a runner was asked to run without data")
        return self._buffers

    def _kernel(self, slot: int) -> LoadedKernel:
        if slot not in self._kernels:
            raise InternalError(f"a runner has no kernel in slot {slot}")
        return self._kernels[slot]

    def _race(self, request: RaceRequest) -> RaceReply | Failed:
        if request.slot == 0:
            self._kernels.clear()
        self._kernels.pop(request.slot, None)
        kernel = LoadedKernel(runtime.Artifact(request.manifest, request.payload), self._data)
        self._kernels[request.slot] = kernel
        limit = math.inf if request.drop is None else request.drop
        with kernel.pinned():
            warm = first = kernel.run()
            if warm < _LONG_S and warm <= max(_HOPELESS * limit, _HOPELESS_S):
                first = kernel.run(flush=request.flush)
        return self._unless_written_outside(
            RaceReply(warm=warm, first=first, dropped=first > limit)
        )

    def _sample_windows(self, request: WindowsRequest) -> SamplesReply | Failed:
        kernel = self._kernel(request.slot)
        with kernel.pinned():
            times = _windows(kernel, request)
        return self._unless_written_outside(SamplesReply(times=times))

    def _sample_counts(self, request: CountsRequest) -> SamplesReply | Failed:
        kernel = self._kernel(request.slot)
        with kernel.pinned():
            times = _counts(kernel, request)
        return self._unless_written_outside(SamplesReply(times=times))

    def _check(self, request: CheckRequest) -> CheckReply:
        kernel, data = self._kernel(request.slot), self._data
        if request.payload:
            self._references[request.key] = data.split(request.payload)
        if request.key not in self._references:
            raise InternalError("a runner was asked to check against what it was never sent")
        data.restore()
        kernel.run()
        result = data.judge(self._references[request.key], request.length)
        outside = data.written_outside()
        data.restore()
        problems = [text for text in (outside, result.problem) if text is not None]
        return CheckReply(
            max_error=result.max_error,
            problem="; ".join(problems) or None,
            tainted=outside is not None,
        )

    def _outputs(self, request: OutputsRequest) -> OutputsReply | Failed:
        data = self._data
        data.restore()
        LoadedKernel(runtime.Artifact(request.manifest, request.payload), data).run()
        reply = self._unless_written_outside(OutputsReply(payload=data.output_bytes()))
        data.restore()
        return reply

    def _unless_written_outside(self, reply: _Answer) -> _Answer | Failed:
        """The reply, or that a kernel wrote outside of its arrays."""
        problem = self._data.written_outside()
        if problem is None:
            return reply
        return Failed(kind=ErrorKind.WRONG_ANSWER, text=problem, tainted=True)


def _windows(kernel: LoadedKernel, request: WindowsRequest) -> tuple[float, ...]:
    """Samples of about ``window_s`` each, as many as fit into the budget; of one call if cold.

    Two are enough where both are beyond ``clear``.
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
            number = timing.grown(number, max(seconds, 1e-9), min_repeat_ms)
            continue
        times.append(seconds / number)
        estimate = max(estimate, seconds / number)
    return tuple(times)
