"""Build candidates in a pool of builder processes, each program once.

Many knobs make no difference to the program: the order of two loops of which one runs once, an
unrolling that reaches no loop. Builders lower each candidate and name its program by a hash
(`loopwright.driver.program_key`); only the first of each program is compiled and run.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict

from loopwright.errors import InternalError, UsageError
from loopwright.measure.candidate import Candidate
from loopwright.measure.options import LocalBuilder
from loopwright.measure.result import MeasureError, MeasureResult
from loopwright.measure.workers import protocol
from loopwright.measure.workers.process import (
    FROM_OUTSIDE,
    Outcome,
    Worker,
    WorkerFailure,
    take,
    wait_any,
)
from loopwright.records import Json
from loopwright.runtime import Artifact, DeviceCode, artifact_kind
from loopwright.te import declared_in


class Build:
    """A future of a candidate's code, or of its error.

    ``programs`` has the result of each program, or its first build; this build enters its own once
    it is lowered, or ends with what is there already: each program is compiled once.
    """

    def __init__(
        self,
        candidate: Candidate,
        limit: float,
        programs: dict[str, MeasureResult | Build] | None = None,
        label: str = "",
    ) -> None:
        self.candidate, self.limit, self.label = candidate, limit, label
        # Whether its builder was killed or stopped from outside, after which it is built once more.
        self.killed = False
        # Key of its program; empty until it is lowered.
        self.program = ""
        self.outcome: Artifact | MeasureError | Build | MeasureResult | None = None
        self.seconds = 0.0
        self._programs = programs

    def begins_again(self, outcome: Outcome) -> bool:
        """Whether to repeat the build: its builder was killed or stopped from outside once."""
        by_somebody = isinstance(outcome, WorkerFailure) and outcome.cause in FROM_OUTSIDE
        again, self.killed = by_somebody and not self.killed, self.killed or by_somebody
        if again:
            self.program, self.seconds = "", 0.0
        return again

    @property
    def compiled(self) -> Artifact | MeasureError:
        if not isinstance(self.outcome, Artifact | MeasureError):
            raise InternalError(f"the build of {self.candidate.name} has no code")
        return self.outcome

    @property
    def artifact(self) -> Artifact:
        assert isinstance(self.outcome, Artifact)
        return self.outcome

    def finish(self, outcome: Outcome, seconds: float) -> None:
        """Take the worker's reply or failure; a lowered program goes on to compilation."""
        self.seconds += seconds
        match outcome:
            case protocol.LoweredReply():
                self.program = outcome.program
                if self._programs is not None:
                    earlier = self._programs.setdefault(self.program, self)
                    self.outcome = None if earlier is self else earlier
            case protocol.BuildReply():
                self.outcome = Artifact(outcome.manifest, outcome.payload)
            case protocol.Failed():
                self.outcome = MeasureError(outcome.kind, outcome.text)
            case WorkerFailure():
                self.outcome = MeasureError(outcome.cause.kind("BUILD"), outcome.text)
            case protocol.UnknownTarget():
                raise UsageError(
                    f"candidates for the target {outcome.kind!r} cannot be measured: it was "
                    "registered in this process, and they are built and run in others, which know "
                    f"{', '.join(outcome.known)}; tune for one of these, or build with lw.build "
                    "and time the function here"
                )
            case _:
                raise InternalError(f"a builder answered with a {type(outcome).__name__}")


class BuildPool:
    """Builder processes, its own or another pool's, with a queue; only `pump` waits."""

    def __init__(
        self,
        option: LocalBuilder,
        target: dict[str, Json],
        workers: list[Worker] | None = None,
    ) -> None:
        self.option, self.target = option, target
        self.workers = workers or [
            Worker("builder", option.memory_limit, max_requests=2000)
            for _ in range(option.processes)
        ]
        self.built = 0
        self._waiting: deque[Build] = deque()
        self._running: dict[Worker, Build] = {}

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def add(
        self,
        candidate: Candidate,
        *,
        first: bool = False,
        seconds: float | None = None,
        programs: dict[str, MeasureResult | Build] | None = None,
        label: str = "",
    ) -> Build:
        """Queue a build, before all others if ``first``, with a limit of ``seconds``."""
        build = Build(candidate, seconds or self.option.timeout, programs, label)
        self._waiting.insert(0 if first else len(self._waiting), build)
        self._dispatch()
        return build

    def pump(self, others: Sequence[Worker] = ()) -> None:
        wait_any([*others, *self._running])
        for worker in [w for w in self._running if w.outcome is not None]:
            self._advance(worker, self._running[worker])
        self._dispatch()

    def _advance(self, worker: Worker, build: Build) -> None:
        outcome = take(worker)
        if build.begins_again(outcome):
            del self._running[worker]
            self._waiting.appendleft(build)
            return
        build.finish(outcome, worker.seconds)
        if build.outcome is None:
            left = max(build.limit - build.seconds, 0.001)
            worker.submit(protocol.CompileRequest(), seconds=left, restart=False)
            return
        del self._running[worker]
        self.built += isinstance(build.outcome, Artifact | MeasureError)

    def feed(self) -> None:
        """Serve builders while the queue is long: none idles between lowering and compiling."""
        while len(self._waiting) > len(self.workers) > 0:
            self.pump()

    def wait(self, builds: Sequence[Build]) -> None:
        while any(build.outcome is None for build in builds):
            self.pump()

    def reset(self) -> None:
        """Forget all work, and kill builders in the middle of it."""
        self._waiting.clear()
        for worker in self._running:
            worker.kill()
            worker.outcome = None
        self._running.clear()

    def close(self) -> None:
        self.reset()
        for worker in self.workers:
            worker.close()

    def _dispatch(self) -> None:
        for worker in self.workers:
            if not self._waiting:
                return
            if worker not in self._running:
                self._send(worker, self._waiting.popleft())

    def _send(self, worker: Worker, build: Build) -> None:
        worker.refresh()
        worker.start()  # a dead worker knows nothing: see that before asking what it knows
        c = build.candidate
        fresh = c.dag.hash not in worker.sent
        request = protocol.LowerRequest(
            dag=c.dag.hash,
            target=self.target if c.target is None else c.target,
            trace=c.trace,
            arg_ids=c.arg_ids,
            name=c.name,
            passes=dict(c.passes),
            intrinsics=declared_in(c.trace),
            payload=json.dumps(c.dag.to_json()).encode() if fresh else b"",
        )
        try:
            worker.submit(request, seconds=build.limit, label=f"building {build.label}".strip())
            worker.sent.add(c.dag.hash)
            self._running[worker] = build
        except BaseException:  # Ctrl-C: it may be busy with what nobody waits for
            worker.kill()
            raise


#: Hexadecimal digits of the hash of object code.
_CODE_DIGITS = 16


def code_of(artifact: Artifact) -> str:
    """The hash of object code, by which records identify it."""
    return hashlib.sha256(artifact.objects).hexdigest()[:_CODE_DIGITS]


def resources_of(artifact: Artifact) -> dict[str, Json] | None:
    """Largest resources of its kernels, as a device's compiler reports them; None for none."""
    if artifact_kind(artifact.kind).device == "cpu":
        return None
    kernels = DeviceCode.of(artifact.contents, artifact.objects).resources.values()
    reports = [{k: n for k, n in asdict(r).items() if n is not None} for r in kernels]
    names = dict.fromkeys(name for figures in reports for name in figures)
    return {name: max(figures.get(name, 0) for figures in reports) for name in names} or None
