"""The parent's side of running: what a runner is asked, in which order, with which deadlines.

One candidate is one `load_and_race` (link, warm-up, one run), then `sample` for contenders, then
`check` when it would become the best. Each is a request of its own with a deadline of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from loopwright.errors import InternalError, TimeLimitError
from loopwright.measure.arguments import arguments
from loopwright.measure.check import Array, make_input
from loopwright.measure.options import (
    CLEAR_RATIO,
    DROP_RATIO,
    SAMPLES_S,
    WINDOW_S,
    WINDOWS,
    LocalRunner,
)
from loopwright.measure.result import ErrorKind, MeasureError
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
from loopwright.measure.workers.process import FailureCause, Worker, WorkerFailure, take
from loopwright.measure.workers.protocol import Message, Reply
from loopwright.runtime import Arg, Artifact

#: Seconds to make the input data, and to run the naive schedule once.
PREPARE_S = 120.0
REFERENCE_S = 120.0
_SLACK_S = 0.25  # linking and the messages: not the kernel's fault
_KINDS = {
    FailureCause.TIMEOUT: ErrorKind.RUN_TIMEOUT,
    FailureCause.CRASH: ErrorKind.RUN_CRASH,
    FailureCause.KILLED: ErrorKind.RUN_CRASH,
    FailureCause.MEMORY: ErrorKind.MEMORY,
}

_Answer = TypeVar("_Answer", bound=Reply)
_Result = TypeVar("_Result")


def seeded_inputs(args: Sequence[Arg]) -> list[Array] | None:
    """No input data of its own: the runner makes random ones from the seed."""
    return None


def wrong_answer(checked: CheckReply | MeasureError | None) -> MeasureError | None:
    """Why a checked kernel is out; None where nothing is wrong, or nothing was checked."""
    if checked is None or isinstance(checked, MeasureError):
        return checked
    if checked.problem is None:
        return None
    return MeasureError(ErrorKind.WRONG_ANSWER, checked.problem)


class RunSession:
    """A runner process and what it has been given.

    Args:
        option: limits and plan.
        pump: waits for the runner while it lets the builders work; called until it has an answer.
        inputs: gives the input data of these arguments; None where seeded random data will do.
        worker: the process of another session to be used; None: a process of its own.
        owner: whose input data it is, where equal arguments of another session may get other data.

    Attributes:
        kills: how often the process was killed from outside; see `undisturbed`.
    """

    def __init__(
        self,
        option: LocalRunner,
        pump: Callable[[Sequence[Worker]], None],
        inputs: Callable[[Sequence[Arg]], list[Array] | None] = seeded_inputs,
        worker: Worker | None = None,
        owner: str = "",
    ) -> None:
        self.option = option
        self._owner = owner
        self._inputs = inputs
        self.worker = worker or Worker("runner", option.memory_limit)
        self._pump = pump
        self.kills = 0

    def undisturbed(self, measure: Callable[[], _Result]) -> _Result:
        """What `measure` returns, which begins by loading a candidate.

        Where somebody killed the process meanwhile (an operator, the kernel for want of memory), it
        is done once more, so that no candidate is blamed. One that takes all memory is killed a
        second time, and is at fault.
        """
        before = self.kills
        found = measure()
        return found if self.kills == before else measure()

    def start(self) -> None:
        """Start the process, without waiting for it."""
        self.worker.start()

    def reset(self) -> None:
        """Kill the process if it is in the middle of something."""
        if self.worker.busy:
            self.worker.kill()
        self.worker.outcome = None

    def close(self) -> None:
        """End the process."""
        self.worker.close()

    def load_and_race(
        self, artifact: Artifact, incumbent: float | None, *, slot: int = 0, race: bool = True
    ) -> RaceReply | MeasureError:
        """Link a candidate into ``slot``, run it once to warm up and once on the clock.

        Args:
            artifact: what the builder made of it.
            incumbent: best time so far in seconds.
            slot: where later requests find it; slot 0 starts a new candidate.
            race: drop it when it is more than twice as slow as the incumbent.
        """
        if slot == 0:
            self.worker.refresh()
        self.worker.start()
        problem = self._prepare(artifact)
        if problem is not None:
            return problem
        request = RaceRequest(
            slot=slot,
            manifest=artifact.manifest,
            drop=DROP_RATIO * incumbent if race and incumbent is not None else None,
            flush=self.option.enable_cpu_cache_flush,
            payload=artifact.objects,
        )
        limit = self.option.limit(incumbent)
        return self._ask(request, RaceReply, limit, limit + _SLACK_S, restart=False)

    def sample(
        self,
        first: float,
        *,
        slot: int = 0,
        windows: int = WINDOWS,
        window_s: float = WINDOW_S,
        incumbent: float | None = None,
        spent: float = 0.0,
    ) -> tuple[float, ...] | MeasureError:
        """Time what is in ``slot``.

        Args:
            first: seconds that its first run took.
            slot: see `load_and_race`.
            windows: samples, when the plan is windows of time.
            window_s: seconds of such a window.
            incumbent: best time so far in seconds; two windows are enough to see that the candidate
                is more than 10 % behind it.
            spent: seconds of the timeout that it has used up already.

        Returns:
            Seconds per call of each sample, at least one: where the limit leaves no time for any,
            ``first``.
        """
        left = self.option.timeout - spent
        flush, budget = self.option.enable_cpu_cache_flush, 0.8 * left
        request: Message
        if self.option.windows:
            request = WindowsRequest(
                slot=slot,
                first=first,
                budget=budget,
                flush=flush,
                windows=windows,
                window_s=window_s,
                enough=SAMPLES_S,
                clear=None if incumbent is None else CLEAR_RATIO * incumbent,
            )
        else:
            number, repeat, min_repeat_ms = self.option.counts
            request = CountsRequest(
                slot=slot,
                first=first,
                budget=budget,
                flush=flush,
                number=number,
                repeat=repeat,
                min_repeat_ms=float(min_repeat_ms),
            )
        deadline = max(left, 1.0) + _SLACK_S
        reply = self._ask(request, SamplesReply, self.option.timeout, deadline, restart=False)
        return reply if isinstance(reply, MeasureError) else reply.times or (first,)

    def check(
        self, key: str, reference: bytes, length: int, limit: float, *, slot: int = 0
    ) -> CheckReply | MeasureError:
        """Run what is in ``slot`` on fresh data and compare its outputs with the reference.

        Args:
            key: names the reference; its bytes are sent once per process.
            reference: the outputs one after the other, row-major.
            length: see `loopwright.measure.check.reduction_length`.
            limit: seconds for the run.
            slot: see `load_and_race`.
        """
        payload = b"" if key in self.worker.sent else reference
        request = CheckRequest(slot=slot, key=key, length=length, payload=payload)
        # Moving and comparing the data takes time too: about a second for 200 MB.
        deadline = limit + 1.0 + len(reference) / 2e8
        reply = self._ask(request, CheckReply, limit, deadline, restart=False)
        if isinstance(reply, MeasureError):
            return reply
        if reply.tainted:
            self._replace_worker()
        else:
            self.worker.sent.add(key)
        return reply

    def outputs_of(self, artifact: Artifact) -> bytes | MeasureError:
        """Run an artifact once on the input data; returns its outputs one after the other."""
        self.worker.start()
        problem = self._prepare(artifact)
        if problem is not None:
            return problem
        request = OutputsRequest(manifest=artifact.manifest, payload=artifact.objects)
        reply = self._ask(request, OutputsReply, REFERENCE_S, REFERENCE_S, restart=False)
        return reply if isinstance(reply, MeasureError) else reply.payload

    def input_arrays(self, args: Sequence[Arg]) -> list[Array]:
        """The input data that the runner has for these arguments."""
        given = self._inputs(args)
        if given is not None:
            return given
        seed = self.option.seed
        return [
            make_input(arg.shape, arg.dtype.name, seed, i)
            for i, arg in enumerate(args)
            if not arg.output
        ]

    def _prepare(self, artifact: Artifact) -> MeasureError | None:
        """Have the runner make the data of these arguments unless it has them."""
        args = arguments(artifact)
        key = f"data {self._owner} {[(str(arg), arg.output) for arg in args]}"
        if key in self.worker.sent:
            return None
        self.worker.sent.clear()  # the references go with the former data
        try:
            given = self._inputs(args)
        except TimeLimitError as e:
            return MeasureError(ErrorKind.RUN_ERROR, str(e))
        payload = b"".join(a.tobytes() for a in given) if given is not None else b""
        request = DataRequest(manifest=artifact.manifest, seed=self.option.seed, payload=payload)
        reply = self._ask(request, Done, PREPARE_S, PREPARE_S)
        if isinstance(reply, MeasureError):
            return reply
        self.worker.sent.add(key)
        return None

    def _ask(
        self,
        request: Message,
        expected: type[_Answer],
        limit: float,
        deadline: float,
        *,
        restart: bool = True,
    ) -> _Answer | MeasureError:
        """Send a request and wait for its reply.

        Args:
            request: what the runner shall do.
            expected: class of the reply.
            limit: seconds that the kernel may take, for the text of a timeout.
            deadline: seconds after which the runner is killed.
            restart: see `Worker.submit`.
        """
        self.worker.submit(request, seconds=deadline, restart=restart)
        while self.worker.outcome is None:
            self._pump([self.worker])
        outcome = take(self.worker)
        if isinstance(outcome, WorkerFailure):
            return self._failed(outcome, limit)
        if isinstance(outcome, Failed):
            if outcome.tainted:
                self._replace_worker()
            return MeasureError(outcome.kind, outcome.text)
        if not isinstance(outcome, expected):
            raise InternalError(f"a runner answered with a {type(outcome).__name__}")
        return outcome

    def _replace_worker(self) -> None:
        """Start a new process: the memory of this one can no longer be trusted."""
        self.worker.kill()
        self.worker.start()

    def _failed(self, failure: WorkerFailure, limit: float) -> MeasureError:
        self.kills += failure.cause is FailureCause.KILLED
        if failure.cause is FailureCause.TIMEOUT:
            text = (
                f"it ran longer than {limit:.3g} s and was killed (limit: max(1 s, 20 x the best "
                f"time so far), at most the runner's timeout of {self.option.timeout:.3g} s)"
            )
            return MeasureError(ErrorKind.RUN_TIMEOUT, text)
        return MeasureError(_KINDS[failure.cause], failure.text)
