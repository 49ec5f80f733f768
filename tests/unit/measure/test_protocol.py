"""Messages survive any cutting of the stream; what is no message, or a wrong one, is refused."""

from __future__ import annotations

import json
import os
import struct
import threading
from typing import Any

import pytest

from loopwright.errors import InternalError
from loopwright.measure.workers.protocol import (
    KEY_SIZE,
    BuildReply,
    CheckReply,
    CheckRequest,
    Decoder,
    Done,
    Failed,
    FrameError,
    LowerRequest,
    Message,
    RaceRequest,
    SamplesReply,
    Seal,
    WindowsRequest,
    encode,
    read_message,
    write_message,
)
from loopwright.records import ErrorKind

MESSAGES = [
    LowerRequest(
        dag="d",
        target={"kind": "llvm"},
        trace=[["split", 1, "i", 8]],
        arg_ids=[0, [1, 1]],
        name="main",
        passes={},
        payload=b"xyz",
    ),
    BuildReply(manifest={"format": 1}, payload=bytes(range(256)), rss=3),
    RaceRequest(slot=0, manifest={}, drop=None, flush=False),
    WindowsRequest(
        slot=1,
        first=0.1,
        budget=1.0,
        flush=True,
        windows=5,
        window_s=0.01,
        enough=0.3,
        clear=0.5,
    ),
    SamplesReply(times=(0.25, 1e-9)),
    CheckReply(max_error=float("inf"), problem="ü", tainted=True),
    Failed(kind=ErrorKind.MEMORY, text=""),
    Done(),
]


KEY = bytes(range(KEY_SIZE))


def sealed(messages: list[Message], key: bytes = KEY) -> bytes:
    seal = Seal(key)
    return b"".join(encode(message, seal) for message in messages)


@pytest.mark.parametrize("step", [1, 3, 16, 1000])
def test_messages_survive_any_cutting(step: int) -> None:
    data = sealed(MESSAGES)
    decoder = Decoder(Seal(KEY))
    found = []
    for at in range(0, len(data), step):
        decoder.feed(data[at : at + step])
        while (message := decoder.pop()) is not None:
            found.append(message)
    assert found == MESSAGES


def decoded(header: dict[str, Any]) -> Message | None:
    """What a request with this header is read as."""
    text = json.dumps(header).encode()
    reader, writer = os.pipe()
    os.write(writer, encode(Done())[:4] + struct.pack("<IQ", len(text), 0) + text)
    os.close(writer)
    try:
        return read_message(reader)
    finally:
        os.close(reader)


OTHERS = {
    "length": 3,
    "computed": "float32",
    "exact": True,
    "rounding": [],
    "seconds": None,
    "flush": False,
    "windows": 5,
    "window_s": 0.01,
}
RIGHT = {"message": "CheckRequest", "slot": 1, "key": "k", **OTHERS}


def test_whole_numbers_are_floats_where_floats_are_declared() -> None:
    assert decoded(RIGHT) == CheckRequest(slot=1, key="k", **OTHERS | {"rounding": ()})  # type: ignore[arg-type]
    reply = decoded({"message": "SamplesReply", "times": [1], "rss": 0})
    assert isinstance(reply, SamplesReply)
    assert type(reply.times[0]) is float


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"message": "Nothing"}, "unknown kind"),
        ({"slot": "1"}, r"malformed CheckRequest came: Expected `int`, got `str` - at `\$.slot`"),
        ({"slot": True}, "Expected `int`, got `bool`"),
        ({"key": None}, "Expected `str`, got `null`"),
        ({"more": 1}, "with the fields slot, key, length, computed, exact"),
    ],
)
def test_wrong_messages_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InternalError, match=words):
        decoded(RIGHT | change)


@pytest.mark.parametrize(
    "header",
    [
        {"message": "Failed", "kind": "NO_SUCH_KIND", "text": "", "tainted": False, "rss": 0},
        {"message": "SamplesReply", "times": ["x"], "rss": 0},
        {"message": "SamplesReply", "times": 1.0, "rss": 0},
        {"message": "BuildReply", "manifest": [], "rss": 0},
    ],
)
def test_wrong_values_are_refused(header: dict[str, Any]) -> None:
    with pytest.raises(InternalError, match="malformed"):
        decoded(header)


def fed(*parts: bytes) -> Decoder:
    decoder = Decoder(Seal(KEY))
    for part in parts:
        decoder.feed(part)
    return decoder


def test_text_in_the_stream_is_refused() -> None:
    decoder = fed(b"hello from the kernel\n", sealed([Done()]))
    with pytest.raises(FrameError, match="no reply of its"):
        decoder.pop()


def test_replies_that_the_process_did_not_send_are_refused() -> None:
    """Well formed ones, with another key, without one, or seen before."""
    for forged in (sealed([Done()], bytes(KEY_SIZE)), encode(Done()) + bytes(32)):
        with pytest.raises(FrameError):
            fed(forged).pop()
    again = fed(sealed([Done()]), sealed([Done()]))
    assert again.pop() == Done()
    with pytest.raises(FrameError):
        again.pop()


def test_any_byte_that_was_changed_is_noticed() -> None:
    frame = sealed([SamplesReply(times=(0.25,), payload=b"xyz")])
    for at in range(len(frame)):
        changed = bytearray(frame)
        changed[at] ^= 1
        with pytest.raises(FrameError):
            fed(bytes(changed)).pop()


def test_lengths_are_believed_only_with_their_tag() -> None:
    """The parent neither waits for nor keeps the petabyte that a forged head promises."""
    head = encode(Done())[:4] + struct.pack("<IQ", 10, 1 << 50)
    with pytest.raises(FrameError):
        fed(head, bytes(16)).pop()


def test_blocking_ends_of_a_pipe() -> None:
    reader, writer = os.pipe()
    message = BuildReply(manifest={}, payload=os.urandom(1 << 20))  # more than a pipe holds
    thread = threading.Thread(target=write_message, args=(writer, message))
    thread.start()
    assert read_message(reader) == message
    thread.join()
    os.write(writer, encode(Done())[:-3])
    os.close(writer)
    assert read_message(reader) is None
    assert read_message(reader) is None
    os.close(reader)
