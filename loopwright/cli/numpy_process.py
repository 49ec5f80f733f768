"""NumPy's time for a workload, measured in a worker process of its own, which takes one sample per
request.

OpenBLAS reads its settings when NumPy is loaded, so only a fresh process can have the kernel's
number of threads, and no ``OPENBLAS_CORETYPE`` and ``OPENBLAS_L2_SIZE``, which can halve its speed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from loopwright import dtypes, measure
from loopwright.cli.workload import WorkloadSubject, find_workload
from loopwright.errors import InternalError, RunError
from loopwright.runtime import Arg

#: Length of one sample in seconds; it holds at least one call.
WINDOW_S = 0.02
#: Seconds of calls before a sample: the process was stopped.
WARM_UP_S = 0.02
#: Seconds to wait for an answer before NumPy is given up.
PATIENCE_S = 60.0
_HARMFUL = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

#: Makes the call that is timed, from a workload and its inputs.
Prepare = Callable[[WorkloadSubject, list[npt.NDArray[Any]], int], Callable[[], object]]


@dataclass(frozen=True, kw_only=True)
class PrepareRequest(measure.Message):
    """Make the inputs of a workload and call the library once; answered by `Done`."""

    words: tuple[str, ...]  # the workload and its parameters as on a command line
    target: str  # the value of ``--target``
    threads: int  # of the library
    shapes: tuple[tuple[int, ...], ...]  # of the inputs
    dtypes: tuple[str, ...]  # of the inputs


@dataclass(frozen=True, kw_only=True)
class SampleRequest(measure.Message):
    """Time the library over one window."""


@dataclass(frozen=True, kw_only=True)
class SampleReply(measure.Reply):
    seconds: float  # of one call


def input_specs(workload: WorkloadSubject) -> list[tuple[tuple[int, ...], str]]:
    """Shape and dtype of each input, in calling order."""
    from loopwright.inspection import default_schedule
    from loopwright.te import read_arg_id

    chosen = default_schedule(workload.task)
    ids = chosen.schedule.arg_ids(chosen.args)
    operations = chosen.schedule.dag.ops
    return [
        (tensor.static_shape, tensor.dtype)
        for number, tensor in zip(ids, chosen.args, strict=True)
        if operations[read_arg_id(number)[0]].is_placeholder
    ]


def environment(threads: int) -> dict[str, str | None]:
    """Changes of the process's environment; None unsets a variable."""
    return {**dict.fromkeys(_HARMFUL), **dict.fromkeys(_THREADS, str(threads))}


class NumpyProcess:
    """NumPy on one workload with a reference; ``problem`` is the reason for having no more samples.
    A subclass that names another ``module``, whose main calls `serve`, compares with another
    library.
    """

    module: ClassVar[str] = "loopwright.cli.numpy_process"
    library: ClassVar[str] = "NumPy"

    def __init__(
        self, workload: WorkloadSubject, inputs: Sequence[tuple[Sequence[int], str]], threads: int
    ) -> None:
        program = measure.WorkerProgram(self.module, environment(threads))
        self._worker = measure.Worker(self.library, measure.machine_memory(), program=program)
        self._threads = threads
        self.prepare(workload, inputs)

    def prepare(
        self, workload: WorkloadSubject, inputs: Sequence[tuple[Sequence[int], str]]
    ) -> None:
        """Time another workload, with inputs ``(shape, dtype)``, in the same process."""
        self.problem = ""
        request = PrepareRequest(
            words=workload.words,
            target=workload.target,
            threads=self._threads,
            shapes=tuple(tuple(map(int, shape)) for shape, _ in inputs),
            dtypes=tuple(dtype for _, dtype in inputs),
        )
        self._signal("SIGCONT")
        self._ask(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._worker.pid

    def sample(self) -> float | None:
        """Seconds per call over one window; None once NumPy has failed. Between samples the process
        is stopped: idle threads of OpenBLAS spin, and would take a core from the next
        measurement.
        """
        if self.problem:
            return None
        self._signal("SIGCONT")
        reply = self._ask(SampleRequest())
        self._signal("SIGSTOP")
        return reply.seconds if isinstance(reply, SampleReply) else None

    def close(self) -> None:
        self._worker.close()

    def _signal(self, name: str) -> None:
        if self.pid is not None:
            os.kill(self.pid, getattr(signal, name))

    def _ask(self, request: measure.Message) -> measure.Reply | None:
        """The reply to a request; None, and a problem, when there is none."""
        try:
            self._worker.submit(request, seconds=PATIENCE_S, restart=not self._worker.launched)
            measure.wait_any([self._worker])
        except RunError as error:
            self.problem = str(error)
            return None
        outcome = measure.take(self._worker)
        if isinstance(outcome, measure.Reply) and not isinstance(outcome, measure.Failed):
            return outcome
        self.problem = f"{self.library}: {outcome.text}"
        cause = None if isinstance(outcome, measure.Failed) else outcome.cause
        if cause is measure.FailureCause.TIMEOUT:
            self.problem = f"{self.library} did not answer within {PATIENCE_S:g} s"
        self.close()
        return None


class TimingRole:
    """The side of the library: prepares a call, then times it once per request."""

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare
        self._call: Callable[[], object] | None = None
        self._number = 1

    def answer(self, request: measure.Message) -> measure.Reply:
        match request:
            case PrepareRequest():
                if hasattr(os, "sched_setaffinity"):
                    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: request.threads])
                name, *params = request.words
                workload = find_workload(name, params, request.target, request.threads)
                types = [np.dtype(dtypes.check(dtype)) for dtype in request.dtypes]
                specs = enumerate(zip(request.shapes, types, strict=True))
                args = [Arg(f"input {i}", *spec, False) for i, spec in specs]
                inputs = measure.task_inputs(workload.task, args)
                self._call = self._prepare(workload, inputs, request.threads)
                self._call()
                self._number = max(1, round(WINDOW_S / _seconds_of(self._call, 1)))
                return measure.Done()
            case SampleRequest() if self._call is not None:
                # The process was stopped: caches are cold and the library's threads asleep.
                warm_until = time.perf_counter() + WARM_UP_S
                while time.perf_counter() < warm_until:
                    self._call()
                seconds = _seconds_of(self._call, self._number) / self._number
                return SampleReply(seconds=seconds)
        raise InternalError(f"a library was sent a {type(request).__name__}")


def _seconds_of(call: Callable[[], object], number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        call()
    return time.perf_counter() - start


def serve(prepare: Prepare) -> int:
    """The main function of a process that times a library; returns its exit code."""
    return measure.main(sys.argv[1:], lambda name: TimingRole(prepare))


def _prepare(
    workload: WorkloadSubject, inputs: list[npt.NDArray[Any]], threads: int
) -> Callable[[], object]:
    reference = workload.task.reference
    if reference is None:
        raise LookupError(f"{workload.words[0]} has no NumPy reference")
    return lambda: reference(*inputs)


if __name__ == "__main__":
    sys.exit(serve(_prepare))
