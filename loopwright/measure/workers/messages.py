"""What parent and worker processes say to each other: one class per request and per reply.

Most of the time goes by between a request and its reply, so each request has a deadline of its own.
Times are seconds; a ``slot`` names one of the kernels that a runner holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from loopwright.measure.workers.protocol import Message, Reply
from loopwright.records import ErrorKind, Json

# -- any worker --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ready(Reply):
    """The first message of a worker: it has imported what it needs."""


@dataclass(frozen=True, kw_only=True)
class Done(Reply):
    """The request was carried out, and there is nothing to tell."""


@dataclass(frozen=True, kw_only=True)
class Failed(Reply):
    """The request failed, and the worker lives on.

    Attributes:
        kind: why, as a record keeps it.
        text: for people.
        tainted: the memory of the worker can no longer be trusted: replace it.
    """

    kind: ErrorKind
    text: str
    tainted: bool = False


# -- builders ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class UnknownTarget(Reply):
    """A builder does not know the target of a `LowerRequest`; no candidate is at fault.

    Attributes:
        kind: of the target.
        known: the kinds that it can build for.
    """

    kind: str
    known: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LowerRequest(Message):
    """Lower a trace, and keep the program for a `CompileRequest`; answered by `LoweredReply`.

    Payload: JSON of the DAG, empty where this process was sent it before.

    Attributes:
        dag: hash of the DAG.
        target: canonical form of the target.
        trace: steps as in a record.
        arg_ids: the arguments in calling order, as ids of the DAG.
        name: of the function.
        passes: settings of the `PassContext` to lower in.
        intrinsics: digests of the tensor intrinsics in the trace which the parent has declared; a
            builder proves others before it uses them.
    """

    dag: str
    target: Mapping[str, Json]
    trace: Json
    arg_ids: Json
    name: str
    passes: Mapping[str, Json]
    intrinsics: Json = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class LoweredReply(Reply):
    """A program that is lowered and not compiled yet.

    Attributes:
        program: its key, see `loopwright.driver.program_key`.
    """

    program: str


@dataclass(frozen=True, kw_only=True)
class CompileRequest(Message):
    """Compile the program that was lowered last; answered by `BuildReply`."""


@dataclass(frozen=True, kw_only=True)
class BuildReply(Reply):
    """A compiled program. Payload: its object file.

    Attributes:
        manifest: of the artifact.
    """

    manifest: Mapping[str, Json]


# -- runners -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DataRequest(Message):
    """Make the arrays that kernels with these arguments run on; answered by `Done`.

    Payload: the inputs one after the other, row-major; empty for random ones.

    Attributes:
        manifest: of a kernel with these arguments.
        seed: of random inputs.
        spans: see `loopwright.measure.data.plan.DataPlan`.
        largest: see there.
        lines: see there.
    """

    manifest: Mapping[str, Json]
    seed: int
    spans: tuple[tuple[int, int] | None, ...] = ()
    largest: int = 0
    lines: tuple[int | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RaceRequest(Message):
    """Link a kernel into a slot, run it once to warm up and once on the clock.

    Payload: the object file.

    Attributes:
        slot: 0 starts a new candidate and empties all slots.
        manifest: of the artifact.
        drop: a first run that takes longer than this decides that no more are made.
        flush: empty the caches before the run.
        other_constants: see `loopwright.measure.LocalRunner`; 0: one copy of the constants.
    """

    slot: int
    manifest: Mapping[str, Json]
    drop: float | None
    flush: bool
    other_constants: int = 0


@dataclass(frozen=True, kw_only=True)
class RaceReply(Reply):
    """How long the first two runs took.

    Attributes:
        warm: seconds of the warm-up.
        first: seconds of the run; those of the warm-up where it was long enough to decide alone.
        dropped: the run took longer than the limit of the race.
        prepare: seconds of the part that constants determine, which is in no time; 0 where there is
            none.
    """

    warm: float
    first: float
    dropped: bool
    prepare: float = 0.0


@dataclass(frozen=True, kw_only=True)
class WindowsRequest(Message):
    """Take samples, each the mean of as many calls as fill a window of time.

    Attributes:
        slot: which kernel.
        first: what one call takes, roughly.
        budget: seconds for all samples.
        flush: empty the caches before each call; a sample is then one call.
        windows: how many samples.
        window_s: length of each.
        enough: after this many seconds no further sample is begun.
        clear: two samples suffice where both are slower than this.
    """

    slot: int
    first: float
    budget: float
    flush: bool
    windows: int
    window_s: float
    enough: float
    clear: float | None


@dataclass(frozen=True, kw_only=True)
class CountsRequest(Message):
    """Take samples of a given number of calls, as AutoTVM does.

    Attributes:
        slot: which kernel.
        first: what one call takes, roughly.
        budget: seconds for all samples.
        flush: empty the caches before each call; a sample is then one call.
        number: calls per sample.
        repeat: how many samples.
        min_repeat_ms: milliseconds that a sample takes at least; ``number`` grows until it does.
    """

    slot: int
    first: float
    budget: float
    flush: bool
    number: int
    repeat: int
    min_repeat_ms: float


@dataclass(frozen=True, kw_only=True)
class SamplesReply(Reply):
    """Seconds per call of each sample; none where the budget leaves no time for one."""

    times: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Message):
    """Run a kernel on all sets of inputs and compare its outputs with the reference.

    Payload: the answers to set 0 and then to set 1, the outputs one after the other, then what is
    known of the answers to the others (`loopwright.measure.workers.array_bytes.known_bytes`); empty
    where they were sent before.

    Attributes:
        slot: which kernel.
        key: names the reference.
        length: scales the tolerance, see `loopwright.measure.checking.check.reduction_length`.
        computed: see `loopwright.measure.checking.check.computed_in`.
        exact: the answer to set 1 must be equal.
        rounding: see `loopwright.measure.checking.check.Closeness`.
        seconds: what a call took when it was timed; None: it was not. Where the check finds calls
            that do their work far slower, it times again, with inputs that change between calls.
        flush: it was timed with empty caches.
        windows: how many samples to take then.
        window_s: length of each.
    """

    slot: int
    key: str
    length: int
    computed: str
    exact: bool
    rounding: tuple[float, ...]
    seconds: float | None
    flush: bool
    windows: int
    window_s: float


@dataclass(frozen=True, kw_only=True)
class CheckReply(Reply):
    """What the comparison gave.

    Attributes:
        max_error: largest absolute difference; may be infinite.
        problem: what is wrong with the answer, or None.
        tainted: the kernel wrote outside of its arrays: replace the worker.
        times: seconds per call with inputs that change between calls, where they were needed in
            place of those that were taken before.
    """

    max_error: float
    problem: str | None = None
    tainted: bool = False
    times: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OutputsRequest(Message):
    """Run a kernel once on fresh data. Payload: the object file.

    Attributes:
        manifest: of the artifact.
        number: of the set of inputs.
    """

    manifest: Mapping[str, Json]
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class YardstickRequest(Message):
    """Measure a limit of the device; answered by `YardstickReply`.

    Payload: the code of the kernel that tells it; empty where it was sent before.

    Attributes:
        name: of the limit, by which the process keeps the kernel.
        manifest: of the kernel.
        through_memory: its arrays must not fit into a cache.
    """

    name: str
    manifest: Mapping[str, Json]
    through_memory: bool


@dataclass(frozen=True, kw_only=True)
class YardstickReply(Reply):
    """How many units of the kernel's work the device does in a second."""

    rate: float


@dataclass(frozen=True, kw_only=True)
class OutputsReply(Reply):
    """Payload: the outputs one after the other, row-major."""
