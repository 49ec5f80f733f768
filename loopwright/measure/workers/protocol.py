"""The protocol between the parent and its worker processes: typed messages in frames over pipes.

A message is a frozen dataclass. Its frame is a magic word, two lengths, a JSON header that names
the class and holds the fields, and raw bytes, the ``payload``. Every field is checked when a frame
is read. Nothing is unpickled, and nothing that was received is executed, except the machine code
that a runner is asked to run.

Candidates run in the process that holds the pipe of the replies, and may write to any descriptor.
So the frames of replies are sealed: each carries two tags, of its lengths and of all of it, made
with a key that the parent sends when the process starts. Bytes of any other writer have no such
tags, and the parent detects them before it waits for, or stores, as much as the lengths promise.

Most of the time passes between a request and its reply, so each request has a deadline of its own.
In messages times are seconds; a ``slot`` names one of the kernels that a runner holds.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import msgspec

from loopwright.errors import InternalError
from loopwright.records import ErrorKind, Json

_MAGIC = b"LWF3"
_HEAD = struct.Struct("<4sIQ")
_MAX_HEADER = 1 << 28
#: Bytes of the key of a process: random ones that only the two sides have.
KEY_SIZE = 32
_TAG_SIZE = 16

_CLASSES: dict[str, type[Message]] = {}


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message, whose fields are of JSON types, enums, and tuples or unions of these."""

    payload: bytes = b""

    def __init_subclass__(cls) -> None:
        _CLASSES[cls.__name__] = cls


@dataclass(frozen=True, kw_only=True)
class Reply(Message):
    rss: int = 0  # resident memory of the worker in bytes, after the answer


class FrameError(InternalError):
    """The bytes are no frame of the other side: something else wrote to the pipe."""


class Seal:
    """Makes the tags of one process's replies: keyed BLAKE2 (RFC 7693) over a counter and bytes.

    The counter is that of the frames, so that a frame which was seen cannot be sent again.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def of_head(self, head: bytes) -> bytes:
        """The tag of the lengths of the next frame."""
        return self._tag(b"head", head)

    def of_frame(self, head: bytes, text: bytes, payload: bytes | memoryview) -> bytes:
        """The tag of the whole next frame; the one after that is then the next."""
        tag = self._tag(b"all!", head, text, payload)
        self._count += 1
        return tag

    def _tag(self, what: bytes, *parts: bytes | memoryview) -> bytes:
        digest = hashlib.blake2b(what, key=self._key, digest_size=_TAG_SIZE)
        digest.update(self._count.to_bytes(8, "little"))
        for part in parts:
            digest.update(part)
        return digest.digest()


def encode(message: Message, seal: Seal | None = None) -> bytes | bytearray:
    """The frame of a message; only replies are sealed, since only the parent can write requests."""
    values = {name: getattr(message, name) for name in _names(type(message))}
    header = {"message": type(message).__name__, **values}
    text = json.dumps(header, separators=(",", ":")).encode()
    head = _HEAD.pack(_MAGIC, len(text), len(message.payload))
    if seal is None:
        return b"".join((head, text, message.payload))
    # All memory is taken before the seal counts: where there is none, another reply can be sent.
    frame = bytearray(len(head) + len(text) + len(message.payload) + 2 * _TAG_SIZE)
    at = 0
    tags = seal.of_head(head), seal.of_frame(head, text, message.payload)
    for part in (head, tags[0], text, message.payload, tags[1]):
        frame[at : at + len(part)] = part
        at += len(part)
    return frame


def _decode(text: bytes, payload: bytes) -> Message:
    """The message of a frame; an InternalError where class or fields are other ones."""
    header = json.loads(text)
    cls = _CLASSES.get(header.pop("message", ""))
    if cls is None:
        raise InternalError(f"a message of an unknown kind came: {text[:60]!r}")
    if header.keys() != set(_names(cls)):
        raise InternalError(f"a {cls.__name__} came with the fields {', '.join(header)}")
    try:
        return replace(msgspec.convert(header, cls), payload=payload)
    except (msgspec.ValidationError, ValueError) as error:
        raise InternalError(f"a malformed {cls.__name__} came: {error}") from error


def _names(cls: type[Message]) -> list[str]:
    return [item.name for item in fields(cls) if item.name != "payload"]


class Decoder:
    """Assembles sealed messages from bytes that arrive in pieces (parent side)."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._data = bytearray()
        self._begun = False  # the lengths of the frame in front were found to be genuine

    @property
    def empty(self) -> bool:
        return not self._data

    def feed(self, data: bytes) -> None:
        self._data += data

    def pop(self) -> Message | None:
        """The next complete message, or None; a FrameError for bytes that are no reply."""
        start = _HEAD.size + _TAG_SIZE
        if len(self._data) < start:
            return None
        begin = bytes(self._data[: _HEAD.size])
        if not self._begun:
            self._same(bytes(self._data[_HEAD.size : start]), self._seal.of_head(begin))
            self._begun = True
        head, body = _lengths(begin, "a worker")
        end = start + head + body
        if len(self._data) < end + _TAG_SIZE:
            return None
        with memoryview(self._data) as view:
            text = bytes(view[start : start + head])
            payload = bytes(view[start + head : end])
        self._same(
            bytes(self._data[end : end + _TAG_SIZE]), self._seal.of_frame(begin, text, payload)
        )
        del self._data[: end + _TAG_SIZE]
        self._begun = False
        return _decode(text, payload)

    def _same(self, came: bytes, expected: bytes) -> None:
        if came != expected:
            raise FrameError(f"a worker sent {bytes(self._data[:32])!r}, which is no reply of its")


def _lengths(start: bytes, sender: str) -> tuple[int, int]:
    magic, head, body = _HEAD.unpack(start)
    if magic != _MAGIC or head > _MAX_HEADER:
        raise FrameError(f"{sender} sent {start!r}, which is no frame")
    return head, body


def read_exactly(fd: int, n: int) -> bytes | None:
    """So many bytes from a blocking descriptor; None when it ends before."""
    out = bytearray()
    while len(out) < n:
        piece = os.read(fd, min(n - len(out), 1 << 20))
        if not piece:
            return None
        out += piece
    return bytes(out)


def read_message(fd: int) -> Message | None:
    """Wait for one message on a blocking descriptor (worker side); None at the end of stream."""
    start = read_exactly(fd, _HEAD.size)
    if start is None:
        return None
    head, body = _lengths(start, "the parent")
    text = read_exactly(fd, head)
    payload = read_exactly(fd, body)
    return None if text is None or payload is None else _decode(text, payload)


def write_message(fd: int, message: Message, seal: Seal | None = None) -> None:
    """Write one message on a blocking descriptor (worker side); a reply with its seal."""
    view = memoryview(encode(message, seal))
    while view:
        view = view[os.write(fd, view) :]


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
    """Lower a trace for a `CompileRequest`. Payload: the DAG's JSON, if not sent before."""

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
    `loopwright.measure.inputs.DataPlan` of ``spans``, ``largest`` and ``lines``.
    """

    manifest: Mapping[str, Json]  # of a kernel with these arguments
    seed: int  # of random inputs
    spans: tuple[tuple[int, int] | None, ...] = ()
    largest: int = 0
    lines: tuple[int | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RaceRequest(Message):
    """Link a kernel, run it to warm up and on the clock. Payload: the object file."""

    slot: int  # 0 starts a new candidate and empties all slots
    manifest: Mapping[str, Json]
    drop: float | None  # a first run that takes longer than this is the only one
    flush: bool  # empty the caches before the run
    other_constants: int = 0  # see `loopwright.measure.LocalRunner`; 0: one copy of the constants


@dataclass(frozen=True, kw_only=True)
class RaceReply(Reply):
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
    times: tuple[float, ...]  # of a call, one a sample; none where the budget has no time for one


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Message):
    """Run a kernel on all sets of inputs and compare its outputs with the reference.

    Payload: the answers to set 0 and then to set 1, the outputs one after the other, then the known
    elements of the answers to the others (`loopwright.measure.comparison.known_bytes`);
    empty where they were sent before.
    """

    slot: int
    key: str  # names the reference
    length: int  # for the tolerance, see `loopwright.measure.comparison.reduction_length`
    computed: str  # see `loopwright.measure.comparison.computed_in`
    exact: bool  # the answer to set 1 must be equal
    rounding: tuple[float, ...]  # see `loopwright.measure.comparison.Closeness`
    #: Time of a call when it was timed, or None. Where the check finds calls that do their work far
    #: slower, it times again, with inputs that change between calls.
    seconds: float | None
    flush: bool  # it was timed with empty caches
    windows: int  # number of samples for timing again
    window_s: float  # length of each


@dataclass(frozen=True, kw_only=True)
class CheckReply(Reply):
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
    """Measure a limit of the device. Payload: the kernel's code, if not sent before."""

    name: str  # of the limit, by which the process keeps the kernel
    manifest: Mapping[str, Json]
    through_memory: bool  # its arrays must not fit into a cache


@dataclass(frozen=True, kw_only=True)
class YardstickReply(Reply):
    rate: float  # units of the kernel's work that the device does per second


@dataclass(frozen=True, kw_only=True)
class OutputsReply(Reply):
    """Payload: the outputs one after the other, row-major."""
