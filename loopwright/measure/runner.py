"""The parent's side of running: requests to a runner, their order and their deadlines.

One candidate is one `load_and_race` (link, warm-up, one run), then `sample` for contenders, then
`check` when it would become the best. Each is a request with a deadline of its own.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from loopwright.errors import InternalError, TimeLimitError
from loopwright.measure.comparison import Array, Closeness, KnownElements, known_bytes
from loopwright.measure.inputs import DataPlan, arguments, input_set
from loopwright.measure.options import (
    CLEAR_RATIO,
    DROP_RATIO,
    SAMPLES_S,
    SHORTEST_LIMIT_S,
    SLOW_RATIO,
    WINDOW_S,
    WINDOWS,
    LocalRunner,
)
from loopwright.measure.result import ErrorKind, MeasureError, MeasureResult
from loopwright.measure.workers import protocol
from loopwright.measure.workers.process import (
    FROM_OUTSIDE,
    FailureCause,
    Worker,
    WorkerFailure,
    WorkerProgram,
    take,
)
from loopwright.runtime import Arg, Artifact

#: Seconds to make the input data, and to run the naive schedule once.
PREPARE_S = 120.0
REFERENCE_S = 120.0
#: Seconds to compile and run the kernel that measures a limit of a device, and to fill its arrays.
_LIMIT_S = 60.0
_SLACK_S = 0.25  # linking and the messages: not the kernel's fault
#: Seconds beyond the limit of a kernel in which a device loads it and runs it once, unmeasured:
#: drivers compile then, some for seconds.
_LOAD_S = 10.0
#: Shape, dtype and direction of an argument: which data it gets.
ArgKey = tuple[tuple[int, ...], str, bool]

_Answer = TypeVar("_Answer", bound=protocol.Reply)
_Result = TypeVar("_Result")


class Answers(NamedTuple):
    key: str  # their name in the runner
    sets: tuple[bytes, bytes]  # for each set of inputs the outputs one after the other, row-major
    exact: bool = False  # on set 1 the outputs must be equal
    rounding: tuple[float, ...] = ()  # see `loopwright.measure.comparison.Closeness`
    #: Known elements of each output, for each set of inputs at the edges of their types; empty:
    #: these sets are not run.
    edges: Sequence[Sequence[KnownElements]] = ()


def seeded_inputs(args: Sequence[Arg]) -> list[Array] | None:
    """No input data of its own: the runner makes random ones from the seed."""
    return None


def _fault(
    error: MeasureError, failure: WorkerFailure | None, seconds: float, *, on_cpu: bool
) -> MeasureError:
    if failure is None:
        wrong = error.kind == ErrorKind.RUN_ERROR
        text = f"in its check it failed: {error.text}"
    elif failure.cause is FailureCause.TIMEOUT:
        wrong = True
        text = f"its check did not end within {seconds:.3g} s, though it had run when it was timed"
    else:
        wrong = failure.cause is FailureCause.CRASH
        where = "where memory around its arrays cannot be touched, " if on_cpu else ""
        text = f"in its check, {where}{failure.text}"
    return MeasureError(ErrorKind.WRONG_ANSWER, text) if wrong else error


class Runner:
    """A runner process and the data and kernels that it was given.

    ``pump`` waits for the runner while it lets the builders work, and is called until it has an
    answer. ``inputs`` gives the input data of some arguments, or None for seeded random data;
    ``owner`` names this data where equal arguments of another runner may get other data. ``worker``
    is the process of another runner to be shared; an empty ``device`` is the CPU.
    """

    def __init__(
        self,
        option: LocalRunner,
        pump: Callable[[Sequence[Worker]], None],
        inputs: Callable[[Sequence[Arg]], list[Array] | None] = seeded_inputs,
        worker: Worker | None = None,
        owner: str = "",
        device: str = "",
    ) -> None:
        self.option = option
        self._owner = owner
        self._inputs = inputs
        self.worker = worker or runner_process(option, device)
        self._on_cpu = not device
        self._load_s = _LOAD_S if device else 0.0
        self._pump = pump
        # Number of times that the process was killed or stopped from outside; see `undisturbed`.
        self.kills = 0
        self._plans: dict[tuple[ArgKey, ...], DataPlan] = {}
        # The end of the process, where the last request got no reply.
        self.last_failure: WorkerFailure | None = None
        self._making = threading.Lock()  # a function of a user may not bear two calls at once

    def another(
        self, pump: Callable[[Sequence[Worker]], None], worker: Worker | None = None
    ) -> Runner:
        """A runner with the same data and plans, for another process or thread."""
        other = copy.copy(self)
        other._pump, other.kills = pump, 0
        other.worker = worker or self.worker
        return other

    def undisturbed(self, measure: Callable[[], _Result]) -> _Result:
        """The result of `measure`, which begins by loading a candidate.

        Where the process was killed or stopped from outside meanwhile (by an operator, or the
        system for want of memory), it is repeated once, so that no candidate is blamed. One that
        takes all memory is killed a second time, and is at fault.
        """
        before = self.kills
        result = measure()
        return result if self.kills == before else measure()

    def reset(self) -> None:
        if self.worker.busy:
            self.worker.kill()
        self.worker.outcome = None

    def load_and_race(
        self, artifact: Artifact, incumbent: float | None, *, slot: int = 0, race: bool = True
    ) -> protocol.RaceReply | MeasureError:
        """Link a candidate into ``slot``, run it once to warm up and once on the clock.

        Slot 0 starts a new candidate. ``incumbent`` is the best time so far in seconds; in a
        ``race`` a candidate that is more than twice as slow is dropped.
        """
        if slot == 0:
            self.worker.refresh()
        self.worker.start()
        problem = self._prepare(artifact)
        if problem is not None:
            return problem
        request = protocol.RaceRequest(
            slot=slot,
            manifest=artifact.manifest,
            drop=DROP_RATIO * incumbent if race and incumbent is not None else None,
            flush=self.option.enable_cpu_cache_flush,
            other_constants=self.option.other_constants or 0,
            payload=artifact.objects,
        )
        limit = self.option.limit(incumbent) + self._load_s
        too_late = self._too_late(incumbent, self._load_s)
        return self._ask(request, protocol.RaceReply, too_late, limit + _SLACK_S, restart=False)

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
        """Time the kernel in ``slot``; returns seconds per call of each sample.

        ``first`` is the time of its first run, the only sample where the limit leaves no time for
        others, ``spent`` the part of the timeout that is used up, ``window_s`` the length of
        windows. Two are enough to see that it is more than 10 % behind the incumbent.
        """
        left = self.option.timeout - spent
        flush, budget = self.option.enable_cpu_cache_flush, 0.8 * left
        request: protocol.Message
        if self.option.windows:
            request = protocol.WindowsRequest(
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
            request = protocol.CountsRequest(
                slot=slot,
                first=first,
                budget=budget,
                flush=flush,
                number=number,
                repeat=repeat,
                min_repeat_ms=float(min_repeat_ms),
            )
        deadline = max(left, 1.0) + _SLACK_S
        reply = self._ask(request, protocol.SamplesReply, self._too_late(), deadline, restart=False)
        return reply if isinstance(reply, MeasureError) else reply.times or (first,)

    def time(
        self,
        artifact: Artifact,
        incumbent: float | None,
        *,
        race: bool,
        windows: int = WINDOWS,
    ) -> MeasureResult:
        """Race a kernel in slot 0 and take its samples; the result is one without a check."""
        raced = self.load_and_race(artifact, incumbent, race=race)
        if isinstance(raced, MeasureError):
            return MeasureResult(error=raced)
        if raced.dropped:
            return MeasureResult((raced.first,), True, prepare_s=raced.prepare)
        rival, spent = incumbent if race else None, raced.warm + raced.first
        times = self.sample(raced.first, windows=windows, incumbent=rival, spent=spent)
        if isinstance(times, MeasureError):
            return MeasureResult(error=times)
        return MeasureResult(times, prepare_s=raced.prepare)

    def check(
        self,
        answers: Answers,
        close: Closeness,
        limit: float,
        *,
        slot: int = 0,
        seconds: float | None = None,
    ) -> protocol.CheckReply | MeasureError:
        """Run the kernel in ``slot`` on all sets of inputs and compare its outputs to the answers.

        A kernel that ran when it was timed and crashes, hangs or fails now is no less wrong than
        one that gives other numbers: arrays lie elsewhere, and outputs hold something else. The
        bytes of the answers are sent once per process; ``limit`` is in seconds for one run,
        ``seconds`` the time of a call when it was timed, or None.
        """
        sent = answers.key in self.worker.sent
        payload = b"" if sent else b"".join((*answers.sets, known_bytes(answers.edges)))
        request = protocol.CheckRequest(
            slot=slot,
            key=answers.key,
            length=close.length,
            computed=close.computed,
            exact=answers.exact,
            rounding=answers.rounding,
            seconds=seconds,
            flush=self.option.enable_cpu_cache_flush,
            windows=WINDOWS,
            window_s=WINDOW_S,
            payload=payload,
        )
        # A run a set, and some more of a kernel that is suspected. Making, moving and comparing the
        # data takes time too: a few seconds for 200 MB.
        runs = len(answers.sets) + len(answers.edges)
        total = runs * (limit + 1.0 + len(answers.sets[0]) / 5e7)
        too_late = f"its check took longer than {total:.3g} s and was ended"
        reply = self._ask(request, protocol.CheckReply, too_late, total, restart=False)
        if isinstance(reply, MeasureError):
            return _fault(reply, self.last_failure, total, on_cpu=self._on_cpu)
        if reply.tainted:
            self._replace_worker()
        else:
            self.worker.sent.add(answers.key)
        return reply

    def outputs_of(self, artifact: Artifact, number: int = 0) -> bytes | MeasureError:
        self.worker.start()
        problem = self._prepare(artifact)
        if problem is not None:
            return problem
        request = protocol.OutputsRequest(
            manifest=artifact.manifest, number=number, payload=artifact.objects
        )
        too_late = f"a run for its right answer took longer than {REFERENCE_S:.3g} s and was ended"
        reply = self._ask(request, protocol.OutputsReply, too_late, REFERENCE_S, restart=False)
        return reply if isinstance(reply, MeasureError) else reply.payload

    def yardstick(
        self, name: str, artifact: Artifact, through_memory: bool
    ) -> float | MeasureError:
        """Measure a limit of the device in units of work per second; see `YardstickRequest`."""
        self.worker.start()
        key = f"limit {name}"
        request = protocol.YardstickRequest(
            name=name,
            manifest=artifact.manifest,
            through_memory=through_memory,
            payload=b"" if key in self.worker.sent else artifact.objects,
        )
        too_late = f"measuring its {name} took longer than {_LIMIT_S:.3g} s and was ended"
        reply = self._ask(request, protocol.YardstickReply, too_late, _LIMIT_S, restart=False)
        if isinstance(reply, MeasureError):
            return reply
        self.worker.sent.add(key)
        return reply.rate

    def input_arrays(self, args: Sequence[Arg], number: int = 0) -> list[Array]:
        arrays = self._inputs(args)
        return input_set(self.plan(args), args, self.option.seed, arrays, number)

    def learn(self, args: Sequence[ArgKey], plan: DataPlan) -> None:
        former = self._plans.get(tuple(args))
        self._plans[tuple(args)] = plan if former is None else former.merge(plan)

    def plan(self, args: Sequence[Arg]) -> DataPlan:
        return self._plans.get(_key(args), DataPlan())

    def _prepare(self, artifact: Artifact) -> MeasureError | None:
        args = arguments(artifact)
        plan = self.plan(args)
        # Without names: the answer of one task may be that of another, which names them otherwise.
        key = f"data {self._owner} {_key(args)} {plan}"
        if key in self.worker.sent:
            return None
        self.worker.sent.clear()  # the references go with the former data
        try:
            with self._making:
                arrays = self._inputs(args)
        except TimeLimitError as e:
            return MeasureError(ErrorKind.RUN_ERROR, str(e))
        request = protocol.DataRequest(
            manifest=artifact.manifest,
            seed=self.option.seed,
            spans=plan.spans,
            largest=plan.largest,
            lines=plan.lines,
            payload=b"".join(a.tobytes() for a in arrays) if arrays is not None else b"",
        )
        too_late = f"making the input data took longer than {PREPARE_S:.3g} s and was ended"
        reply = self._ask(request, protocol.Done, too_late, PREPARE_S)
        if isinstance(reply, MeasureError):
            return reply
        self.worker.sent.add(key)
        return None

    def _ask(
        self,
        request: protocol.Message,
        expected: type[_Answer],
        too_late: str,
        deadline: float,
        *,
        restart: bool = True,
    ) -> _Answer | MeasureError:
        """Send a request; after ``deadline`` seconds the runner is killed, for which ``too_late``
        is the text.
        """
        self.worker.submit(request, seconds=deadline, restart=restart)
        while self.worker.outcome is None:
            self._pump([self.worker])
        outcome = take(self.worker)
        self.last_failure = outcome if isinstance(outcome, WorkerFailure) else None
        if isinstance(outcome, WorkerFailure):
            self.kills += outcome.cause in FROM_OUTSIDE
            text = too_late if outcome.cause is FailureCause.TIMEOUT else outcome.text
            return MeasureError(outcome.cause.kind("RUN"), text)
        if isinstance(outcome, protocol.Failed):
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

    def _too_late(self, incumbent: float | None = None, load_s: float = 0.0) -> str:
        """The message about a kernel that ran too long, which names only the limit that acted."""
        limit, timeout = self.option.limit(incumbent), self.option.timeout
        which = f"the runner's timeout of {timeout:.3g} s"
        if limit < timeout:
            which = f"{SLOW_RATIO:.3g} x the best so far, at least {SHORTEST_LIMIT_S:.3g} s"
        loading = f", with {load_s:.3g} s for loading it onto the device," if load_s else ""
        return f"it ran longer than {limit:.3g} s{loading} and was killed; its limit was {which}"


def _key(args: Sequence[Arg]) -> tuple[ArgKey, ...]:
    return tuple((arg.shape, arg.dtype.name, arg.output) for arg in args)


def runner_process(option: LocalRunner, device: str) -> Worker:
    """A process that runs kernels.

    Drivers of devices reserve more address space than memory: there its resident size is looked at
    between candidates instead, and files left in its working folder are removed with it.
    """
    if not device:
        return Worker("runner", option.memory_limit)
    program = WorkerProgram(arguments=(device,), own_folder=True)
    return Worker("runner", 0, max_rss=option.memory_limit, program=program)
