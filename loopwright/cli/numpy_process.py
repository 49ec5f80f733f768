"""NumPy's time for a workload, measured in a process of its own.

OpenBLAS reads its settings when NumPy is loaded, so they can be chosen only for a fresh process:
the number of threads is that of the kernel, and ``OPENBLAS_CORETYPE`` and ``OPENBLAS_L2_SIZE``,
which some environments export and which can halve its speed, are unset. The process stays and
takes one sample per request, so that samples can be interleaved with those of a kernel.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from loopwright.cli.workload import Workload, find_workload

#: Length of one sample in seconds; it holds at least one call.
WINDOW_S = 0.02
#: Seconds to wait for an answer before NumPy is given up.
WARM_UP_S = 0.02
PATIENCE_S = 60.0
_PR_SET_PDEATHSIG = 1
_HARMFUL = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def reference_of(workload: Workload) -> Callable[..., Any] | None:
    """The NumPy function of a workload, or None."""
    task = workload.task
    found = getattr(task, "reference", None) or task.template.reference
    return found if callable(found) else None


class NumpySide:
    """NumPy on one workload; a context manager.

    A subclass that names another ``module``, whose main calls `serve`, compares with another
    library.

    Args:
        workload: what is computed; it must have a reference.
        inputs: ``(shape, dtype)`` of each input.
        threads: of OpenBLAS.

    Attributes:
        problem: why there are no samples any more; empty while there are.
    """

    module = "loopwright.cli.numpy_process"
    library = "NumPy"

    def __init__(
        self, workload: Workload, inputs: Sequence[tuple[Sequence[int], str]], threads: int
    ) -> None:
        self.problem = ""
        environment = {k: v for k, v in os.environ.items() if k not in _HARMFUL}
        environment |= dict.fromkeys(_THREADS, str(threads))
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            # Ctrl-C is for us; the process ends when we close its input.
            start_new_session=True,
        )
        question = {
            "words": workload.words,
            "target": workload.target,
            "threads": threads,
            "inputs": [[list(map(int, shape)), dtype] for shape, dtype in inputs],
        }
        self._ask(question)

    def __enter__(self) -> NumpySide:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def sample(self) -> float | None:
        """Seconds per call over one window; None once NumPy has failed.

        Between samples the process is stopped: idle threads of OpenBLAS spin, and would take a core
        from what is timed next.
        """
        if self.problem:
            return None
        self._process.send_signal(signal.SIGCONT)
        seconds = self._ask({"sample": True})
        self._process.send_signal(signal.SIGSTOP)
        return seconds

    def close(self) -> None:
        """End the process."""
        process = self._process
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()

    def _ask(self, question: dict[str, Any]) -> float | None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(question) + "\n")
            stdin.flush()
            ready, _, _ = select.select([stdout], [], [], PATIENCE_S)
            line = stdout.readline() if ready else ""
        except BrokenPipeError:
            line = ""
        if not line:
            self.problem = f"{self.library} did not answer within {PATIENCE_S:g} s"
            return None
        answer = json.loads(line)
        self.problem = answer.get("problem", "")
        seconds = answer.get("seconds")
        return None if seconds is None else float(seconds)


def serve(prepare: Callable[[dict[str, Any]], Callable[[], Any]], library: str) -> None:
    """Answer requests on standard input, a JSON line each, until it is closed.

    Args:
        prepare: from the first request to the call that is timed.
        library: its name, for what went wrong.
    """
    _die_with_parent()
    question = json.loads(sys.stdin.readline())
    try:
        call = prepare(question)
        call()
        start = time.perf_counter()
        call()
        number = max(1, round(WINDOW_S / (time.perf_counter() - start)))
    except Exception as error:
        _answer({"problem": f"{library}: {type(error).__name__}: {error}"})
        return
    _answer({})
    for _ in sys.stdin:
        # The process was stopped: caches are cold and OpenBLAS's threads asleep.
        warm_until = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < warm_until:
            call()
        start = time.perf_counter()
        for _ in range(number):
            call()
        _answer({"seconds": (time.perf_counter() - start) / number})


def _die_with_parent() -> None:
    """A stopped process cannot notice that its input was closed; the kernel ends it instead."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prepare(question: dict[str, Any]) -> Callable[[], Any]:
    workload, inputs = prepare_inputs(question)
    reference = reference_of(workload)
    if reference is None:
        raise LookupError(f"{workload.words[0]} has no NumPy reference")
    return lambda: reference(*inputs)


def prepare_inputs(question: dict[str, Any]) -> tuple[Workload, list[Any]]:
    """Pin this process to as many cores as the question has threads; the workload, its inputs."""
    from loopwright.measure.check import make_input

    threads = question["threads"]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    name, *params = question["words"]
    workload = find_workload(name, params, question["target"], threads)
    inputs = [make_input(shape, dtype, 0, i) for i, (shape, dtype) in enumerate(question["inputs"])]
    return workload, inputs


def _answer(data: dict[str, Any]) -> None:
    print(json.dumps(data), flush=True)


if __name__ == "__main__":
    serve(_prepare, "NumPy")
