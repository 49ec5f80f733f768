"""Measure what was built, on the device; stops by the clock and goes on where it was broken off."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from benchmarks.gpu.cases import Case
from benchmarks.gpu.folder import Folder, is_good, measuring
from benchmarks.gpu.journal import Journal, Line
from benchmarks.gpu.messages import GpuDataRequest, GpuReady, GpuTrial, GpuTrialRequest
from loopwright import runtime
from loopwright.errors import RunError
from loopwright.measure.workers.process import (
    FROM_OUTSIDE,
    FailureCause,
    Outcome,
    Worker,
    WorkerFailure,
    WorkerProgram,
    take,
    wait_any,
)
from loopwright.measure.workers.protocol import Failed, Message

_MODULE = "benchmarks.gpu.run_role"
#: Times of a candidate.
SAMPLES = 7
#: Candidates of a case before the next case has its turn, so that every case has some early.
_CHUNK = 50
#: Seconds that inputs may take, which are made anew in a fresh process.
DATA_S = 60.0
#: Candidates in a row that take their process down, after which the device counts as lost.
_LOST = 5


class Runner:
    """A process with the inputs of a case; a fresh one takes the place of one that has died.

    Args:
        folder: where programs are.
        device: such as ``"cuda:0"``.

    Attributes:
        device_name: what the device calls itself; empty before the first inputs.
    """

    def __init__(self, folder: Folder, device: str) -> None:
        self._folder = folder
        program = WorkerProgram(_MODULE, {}, (device,))
        self._worker = Worker("runner", 0, max_rss=1 << 50, program=program)
        #: Which process holds the inputs of which case.
        self._holds = (0, "")
        self.device_name = ""

    @property
    def pid(self) -> int | None:
        """Id of the process; None where there is none."""
        return self._worker.pid

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def ask(self, case: Case, index: int, request: Message, seconds: float) -> Outcome:
        """What a process answers that holds the inputs of a case.

        Args:
            case: whose inputs.
            index: of a candidate whose program tells what arrays there are.
            request: what is asked.
            seconds: that the answer may take.

        Raises:
            RunError: the process cannot be started, or cannot make the inputs: the device cannot be
                used any more.
        """
        outcome = self._ask_once(case, index, request, seconds)
        if isinstance(outcome, WorkerFailure) and outcome.cause in FROM_OUTSIDE:
            outcome = self._ask_once(case, index, request, seconds)
        if isinstance(outcome, Failed) and outcome.tainted:
            self._worker.kill()
        return outcome

    def _ask_once(self, case: Case, index: int, request: Message, seconds: float) -> Outcome:
        # A process that has died was replaced by another one, which has another number.
        if self._worker.pid is None or self._holds != (self._worker.launched, case.name):
            self._make_data(case, index)
        return self._asked(request, seconds, restart=False)

    def _make_data(self, case: Case, index: int) -> None:
        purpose = self._folder.purpose
        request = GpuDataRequest(
            case=case.name,
            small=purpose.small,
            seed=purpose.seed,
            path=str(self._folder.artifact(case, index)),
        )
        outcome = self._asked(request, DATA_S)
        if not isinstance(outcome, GpuReady):  # what ran before may have lost the device
            self._worker.kill()
            outcome = self._asked(request, DATA_S)
        if not isinstance(outcome, GpuReady):
            self._worker.kill()
            raise RunError(f"the inputs of {case.name} cannot be made: {text_of(outcome)}")
        self.device_name = outcome.device
        self._holds = (self._worker.launched, case.name)

    def _asked(self, request: Message, seconds: float, restart: bool = True) -> Outcome:
        self._worker.submit(request, seconds=seconds, restart=restart)
        wait_any([self._worker])
        return take(self._worker)


def text_of(outcome: Outcome) -> str:
    """Why there is no answer."""
    if isinstance(outcome, Failed | WorkerFailure):
        return outcome.text
    return f"its process answered with a {type(outcome).__name__}"


def measure(
    folder: Folder, cases: Sequence[Case], device: str, *, minutes: float, seconds: float
) -> bool:
    """Measure candidates until all are measured or the time is over.

    Args:
        folder: what was built.
        cases: which.
        device: such as ``"cuda:0"``.
        minutes: after this long nothing more is begun.
        seconds: that one candidate may take; its process is then killed.

    Returns:
        Whether all is measured.

    Raises:
        UsageError: the device cannot be used; the message says what is missing.
        RunError: it cannot be used any more.
    """
    runtime.device(device).require()
    end = time.monotonic() + 60 * minutes
    with measuring(folder) as results, closing(Runner(folder, device)) as runner:
        lost = 0
        for case, index in _order(folder, cases):
            if time.monotonic() >= end:
                return False
            line = _trial(folder, runner, case, index, seconds)
            _note_session(results, runner)
            results.append(line)
            _say(case, line)
            lost = lost + 1 if line["outcome"] in ("crashed", "timeout") else 0
            if lost == _LOST:
                raise RunError(
                    f"{_LOST} candidates in a row took their process down, the last one: "
                    f"{line['text']}; look at the device, and run this again: it goes on from here"
                )
    return True


def _order(folder: Folder, cases: Sequence[Case]) -> list[tuple[Case, int]]:
    """What is not measured yet: some candidates of each case, then more of each."""
    found: list[tuple[int, int, Case, int]] = []
    for number, case in enumerate(cases):
        known = folder.trials(case)
        for place, index in enumerate(folder.built(case)):
            if index not in known:
                found.append((place // _CHUNK, number, case, index))
    found.sort(key=lambda x: x[:2])
    return [(case, index) for _, _, case, index in found]


def _trial(folder: Folder, runner: Runner, case: Case, index: int, seconds: float) -> Line:
    """The line of one candidate."""
    good = [x for x in folder.trials(case).values() if is_good(x)]
    best = min((statistics.median(x["times"]) for x in good), default=None)
    request = GpuTrialRequest(path=str(folder.artifact(case, index)), best=best, samples=SAMPLES)
    line: Line = {"what": "trial", "case": case.name, "index": index}
    outcome = runner.ask(case, index, request, seconds)
    return {**line, **_fields(outcome), "at": round(time.time(), 3)}


def _fields(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case GpuTrial():
            kind = "wrong" if outcome.problem else "dropped" if outcome.dropped else "ok"
            return {
                "outcome": kind,
                "times": list(outcome.times),
                "checked": outcome.checked,
                "text": outcome.problem,
            }
        case WorkerFailure():
            kind = "timeout" if outcome.cause is FailureCause.TIMEOUT else "crashed"
        case _:
            kind = "failed"
    return {"outcome": kind, "times": [], "checked": False, "text": text_of(outcome)}


def _note_session(results: Journal, runner: Runner) -> None:
    """Enter the device, where it is not that of the last session."""
    known = [x["device"] for x in results.lines if x["what"] == "session"]
    if known[-1:] != [runner.device_name]:
        results.append({"what": "session", "device": runner.device_name, "at": time.time()})


def _say(case: Case, line: Line) -> None:
    times = line["times"]
    what = f"{statistics.median(times) * 1e3:.4g} ms" if times else line["text"]
    print(f"{case.name} {line['index']}: {line['outcome']}, {what}", flush=True)
