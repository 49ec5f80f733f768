"""Messages between parent and worker processes: one class per request and per reply.

Most of the time passes between a request and its reply, so each request has a deadline of its own.
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
    """The first message of a worker, once it has imported its modules."""


@dataclass(frozen=True, kw_only=True)
class Done(Reply):
    """The request was carried out, with no result."""


@dataclass(frozen=True, kw_only=True)
class Failed(Reply):
    """The request failed, and the worker lives on."""

    kind: ErrorKind  # as in a record
    text: str
    tainted: bool = False  # the memory of the worker can no longer be trusted: replace it


# -- builders ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class UnknownTarget(Reply):
    """A builder does not know the target of a `LowerRequest`; no candidate is at fault."""

    kind: str  # of the target
    known: tuple[str, ...]  # kinds that it can build for


@dataclass(frozen=True, kw_only=True)
class LowerRequest(Message):
    """Lower a trace, and keep the program for a `CompileRequest`; answered by `LoweredReply`.

    Payload: JSON of the DAG, empty where this process was sent it before.
    """

    dag: str  # hash of the DAG
    target: Mapping[str, Json]  # canonical form of the target
    trace: Json  # steps as in a record
    arg_ids: Json  # the arguments in calling order, as ids of the DAG
    name: str  # of the function
    passes: Mapping[str, Json]  # settings of the `PassContext` to lower in
    #: Digests of the tensor intrinsics in the trace that the parent has declared; a builder proves
    #: others before it uses them.
    intrinsics: Json = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class LoweredReply(Reply):
    """A program that is lowered and not compiled yet."""

    program: str  # its key, see `loopwright.driver.program_key`


@dataclass(frozen=True, kw_only=True)
class CompileRequest(Message):
    """Compile the program that was lowered last; answered by `BuildReply`."""


@dataclass(frozen=True, kw_only=True)
class BuildReply(Reply):
    """A compiled program. Payload: its object file."""

    manifest: Mapping[str, Json]  # of the artifact


# -- runners -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DataRequest(Message):
    """Make the arrays that kernels with these arguments run on; answered by `Done`.

    Payload: the inputs one after the other, row-major; empty for random ones. Data are made by a
    `loopwright.measure.data.plan.DataPlan` of ``spans``, ``largest`` and ``lines``.
    """

    manifest: Mapping[str, Json]  # of a kernel with these arguments
    seed: int  # of random inputs
    spans: tuple[tuple[int, int] | None, ...] = ()
    largest: int = 0
    lines: tuple[int | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RaceRequest(Message):
    """Link a kernel into a slot, run it once to warm up and once on the clock.

    Payload: the object file.
    """

    slot: int  # 0 starts a new candidate and empties all slots
    manifest: Mapping[str, Json]
    drop: float | None  # a first run that takes longer than this is the only one
    flush: bool  # empty the caches before the run
    other_constants: int = 0  # see `loopwright.measure.LocalRunner`; 0: one copy of the constants


@dataclass(frozen=True, kw_only=True)
class RaceReply(Reply):
    """Times of the first two runs."""

    warm: float  # time of the warm-up
    first: float  # time of the run, or of the warm-up where that was long enough to decide alone
    dropped: bool  # the run took longer than the limit of the race
    prepare: float = 0.0  # time of the part that constants determine, which is in no other; 0: none


@dataclass(frozen=True, kw_only=True)
class WindowsRequest(Message):
    """Take samples, each the mean of as many calls as fill a window of time."""

    slot: int
    first: float  # rough time of one call
    budget: float  # for all samples
    flush: bool  # empty the caches before each call; a sample is then one call
    windows: int  # number of samples
    window_s: float  # length of each
    enough: float  # after so many seconds no further sample is begun
    clear: float | None  # two samples suffice where both are slower than this


@dataclass(frozen=True, kw_only=True)
class CountsRequest(Message):
    """Take samples of a given number of calls, as AutoTVM does."""

    slot: int
    first: float  # rough time of one call
    budget: float  # for all samples
    flush: bool  # empty the caches before each call; a sample is then one call
    number: int  # calls per sample
    repeat: int  # number of samples
    min_repeat_ms: float  # shortest sample in milliseconds, for which ``number`` grows


@dataclass(frozen=True, kw_only=True)
class SamplesReply(Reply):
    """Seconds per call of each sample; none where the budget leaves no time for one."""

    times: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Message):
    """Run a kernel on all sets of inputs and compare its outputs with the reference.

    Payload: the answers to set 0 and then to set 1, the outputs one after the other, then the known
    elements of the answers to the others (`loopwright.measure.workers.array_bytes.known_bytes`);
    empty where they were sent before.
    """

    slot: int
    key: str  # names the reference
    length: int  # for the tolerance, see `loopwright.measure.checking.check.reduction_length`
    computed: str  # see `loopwright.measure.checking.check.computed_in`
    exact: bool  # the answer to set 1 must be equal
    rounding: tuple[float, ...]  # see `loopwright.measure.checking.check.Closeness`
    #: Time of a call when it was timed, or None. Where the check finds calls that do their work far
    #: slower, it times again, with inputs that change between calls.
    seconds: float | None
    flush: bool  # it was timed with empty caches
    windows: int  # number of samples for timing again
    window_s: float  # length of each


@dataclass(frozen=True, kw_only=True)
class CheckReply(Reply):
    """Result of a comparison."""

    max_error: float  # largest absolute difference; may be infinite
    problem: str | None = None  # error of the answer, or None
    tainted: bool = False  # the kernel wrote outside of its arrays: replace the worker
    #: Seconds per call with inputs that change between calls, where the former times must be
    #: replaced.
    times: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OutputsRequest(Message):
    """Run a kernel once on fresh data. Payload: the object file."""

    manifest: Mapping[str, Json]
    number: int = 0  # of the set of inputs


@dataclass(frozen=True, kw_only=True)
class YardstickRequest(Message):
    """Measure a limit of the device; answered by `YardstickReply`.

    Payload: the code of the kernel that measures it; empty where it was sent before.
    """

    name: str  # of the limit, by which the process keeps the kernel
    manifest: Mapping[str, Json]
    through_memory: bool  # its arrays must not fit into a cache


@dataclass(frozen=True, kw_only=True)
class YardstickReply(Reply):
    """Units of the kernel's work that the device does per second."""

    rate: float


@dataclass(frozen=True, kw_only=True)
class OutputsReply(Reply):
    """Payload: the outputs one after the other, row-major."""
