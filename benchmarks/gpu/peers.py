"""Our best kernels beside cuBLAS, cuDNN, Triton, our copy and our peak, in turns of one run.

Each side is a process of its own with its own inputs; in a round every side takes some times. A
side that fails is left out, and why is written down.
"""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing

from benchmarks.gpu import libraries
from benchmarks.gpu.cases import BY_NAME, COPY, Case
from benchmarks.gpu.folder import Folder, measuring
from benchmarks.gpu.journal import Line
from benchmarks.gpu.measuring import Runner, text_of
from benchmarks.gpu.messages import (
    GpuDataRequest,
    GpuReady,
    GpuTrial,
    GpuTrialRequest,
    GpuTurn,
    GpuTurnRequest,
)
from loopwright import runtime
from loopwright.errors import RunError
from loopwright.measure.workers.process import Outcome, Worker, WorkerProgram, take, wait_any
from loopwright.measure.workers.protocol import Message

_MODULE = "benchmarks.gpu.library_role"
#: Rounds in which all sides take turns, and times of a turn.
ROUNDS, SAMPLES = 7, 3
#: Seconds that a turn may take, that a library may take to prepare and choose its kernels, and
#: that a case may go on when the time is over.
_TURN_S, _PREPARE_S, _GRACE_S = 20.0, 240.0, 60.0


class Side(ABC):
    """One side of a case.

    Attributes:
        problem: why it is not timed; empty while it is.
        note: what else is to be said of it.
        samples: seconds, a median a turn.
    """

    def __init__(self) -> None:
        self.problem = self.note = ""
        self.samples: list[float] = []

    @abstractmethod
    def prepare(self, seconds: float) -> None:
        """Make inputs and load what is timed; a problem where that fails or takes longer."""

    @abstractmethod
    def ask(self, request: Message) -> Outcome:
        """What its process answers."""

    @abstractmethod
    def close(self) -> None:
        """End its process."""

    def turn(self) -> None:
        """Take some times, unless it has failed before."""
        if self.problem:
            return
        outcome = self.ask(GpuTurnRequest(samples=SAMPLES))
        if isinstance(outcome, GpuTurn):
            self.samples.append(statistics.median(outcome.times))
        else:
            self.problem = text_of(outcome)


class OurSide(Side):
    """A program of the folder."""

    def __init__(self, folder: Folder, device: str, case: Case, index: int) -> None:
        super().__init__()
        self._folder, self._case, self._index = folder, case, index
        self._runner = Runner(folder, device)

    def prepare(self, seconds: float) -> None:
        path = str(self._folder.artifact(self._case, self._index))
        try:
            request = GpuTrialRequest(path=path, best=None, samples=1)
            outcome = self._runner.ask(self._case, self._index, request, seconds)
        except RunError as error:
            self.problem = str(error)
            return
        self.problem = outcome.problem if isinstance(outcome, GpuTrial) else text_of(outcome)

    def ask(self, request: Message) -> Outcome:
        return self._runner.ask(self._case, self._index, request, _TURN_S)

    def close(self) -> None:
        self._runner.close()


class LibrarySide(Side):
    """PyTorch, CuPy or Triton."""

    def __init__(self, folder: Folder, case: Case, which: str) -> None:
        super().__init__()
        self.note = which
        self._folder, self._case = folder, case
        environment = libraries.environment(which, case)
        program = WorkerProgram(_MODULE, environment, (which,))
        self._worker = Worker(which, 0, max_rss=1 << 50, program=program)

    def prepare(self, seconds: float) -> None:
        purpose = self._folder.purpose
        request = GpuDataRequest(
            case=self._case.name, small=purpose.small, seed=purpose.seed, path=""
        )
        outcome = self._asked(request, min(seconds, _PREPARE_S))
        if not isinstance(outcome, GpuReady):
            self.problem = text_of(outcome)
            return
        self.problem = outcome.problem
        self.note = ", ".join(filter(None, (self.note, outcome.note)))

    def ask(self, request: Message) -> Outcome:
        return self._asked(request, _TURN_S)

    def _asked(self, request: Message, seconds: float) -> Outcome:
        self._worker.submit(request, seconds=seconds)
        wait_any([self._worker])
        return take(self._worker)

    def close(self) -> None:
        self._worker.close()


def peers(folder: Folder, cases: Sequence[Case], device: str, *, minutes: float) -> bool:
    """Let the sides of each case take turns, unless they have since our best was found.

    Args:
        folder: what was built and measured.
        cases: which.
        device: such as ``"cuda:0"``.
        minutes: after this long no other case is begun; one that is under way has a minute more.

    Returns:
        Whether all have had their turns.

    Raises:
        UsageError: the device cannot be used; the message says what is missing.
    """
    runtime.device(device).require()
    end = time.monotonic() + 60 * minutes
    with measuring(folder) as results:
        for case in cases:
            if not (case.libraries or case.bars) or _is_done(folder, case):
                continue
            if time.monotonic() >= end:
                return False
            line = _turns(folder, case, device, end + _GRACE_S)
            if line is None:
                return False
            results.append(line)
            print(f"{case.name}: {_said(line)}", flush=True)
    return True


def _is_done(folder: Folder, case: Case) -> bool:
    """Whether the present best kernels have had their turns."""
    line = folder.turns(case)
    return line is not None and line["indices"] == _indices(folder, case)


def _indices(folder: Folder, case: Case) -> dict[str, int]:
    """Our kernels that take part, by side."""
    found: dict[str, int] = {}
    sides = {"ours": case, **{x: BY_NAME[x] for x in _limits(case)}}
    for side, of in sides.items():
        best = folder.best(of)
        if best is not None:
            found[side] = best
    if "ours" in found:
        default = folder.rounds(case)[0]["indices"][0]
        found |= {"default": default} if default in folder.built(case) else {}
    return found


def _limits(case: Case) -> list[str]:
    """Kernels of ours that a case is held against."""
    limits = [x for x in case.bars if x in BY_NAME]
    return limits if case.bound == "compute" else sorted({*limits, COPY})


def _sides(folder: Folder, case: Case, device: str) -> Mapping[str, Side]:
    sides: dict[str, Side] = {
        side: OurSide(folder, device, BY_NAME.get(side, case), index)
        for side, index in _indices(folder, case).items()
    }
    if folder.purpose.device != "cuda":
        return sides
    name = libraries.library()
    if name and "library" in case.libraries:
        sides["library"] = LibrarySide(folder, case, name)
    if "triton" in case.libraries and libraries.has_triton():
        sides["triton"] = LibrarySide(folder, case, "triton")
    return sides


def _turns(folder: Folder, case: Case, device: str, until: float) -> Line | None:
    """The line of one case; None where it was not done in time, and is to be begun again."""
    indices = _indices(folder, case)
    with ExitStack() as stack:
        sides = _sides(folder, case, device)
        for side in sides.values():
            stack.enter_context(closing(side))
        for side in sides.values():
            side.prepare(max(1.0, until - time.monotonic()))
        for _ in range(ROUNDS):
            for side in sides.values():
                if time.monotonic() < until:
                    side.turn()
    if time.monotonic() >= until:
        return None
    return {
        "what": "turns",
        "case": case.name,
        "indices": indices,
        "sides": {name: s.samples for name, s in sides.items() if not s.problem},
        "problems": {name: s.problem for name, s in sides.items() if s.problem},
        "notes": {name: s.note for name, s in sides.items() if s.note},
        "at": round(time.time(), 3),
    }


def _said(line: Line) -> str:
    times = [f"{x} {statistics.median(t) * 1e3:.4g} ms" for x, t in line["sides"].items()]
    return "; ".join([*times, *(f"{x}: {text}" for x, text in line["problems"].items())])
