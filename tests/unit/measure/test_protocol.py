"""Frames survive any cutting of the stream, and what is no frame is refused."""

from __future__ import annotations

import os
import threading

import pytest

from loopwright.errors import InternalError
from loopwright.measure.protocol import Decoder, encode, read_frame, write_frame


@pytest.mark.parametrize("step", [1, 3, 16, 1000])
def test_decoder_takes_any_pieces(step: int) -> None:
    data = encode({"a": 1}, b"xyz") + encode({}, b"") + encode({"t": "ü"}, bytes(range(256)))
    decoder = Decoder()
    found = []
    for at in range(0, len(data), step):
        decoder.feed(data[at : at + step])
        while (frame := decoder.pop()) is not None:
            found.append(frame)
    assert found == [({"a": 1}, b"xyz"), ({}, b""), ({"t": "ü"}, bytes(range(256)))]


def test_infinite_errors_survive() -> None:
    decoder = Decoder()
    decoder.feed(encode({"max_error": float("inf")}))
    frame = decoder.pop()
    assert frame is not None
    assert frame.header["max_error"] == float("inf")


def test_text_in_the_stream_is_refused() -> None:
    decoder = Decoder()
    decoder.feed(b"hello from the kernel\n")
    with pytest.raises(InternalError, match="which is no frame"):
        decoder.pop()


def test_blocking_ends_of_a_pipe() -> None:
    reader, writer = os.pipe()
    payload = os.urandom(1 << 20)  # more than a pipe holds
    thread = threading.Thread(target=write_frame, args=(writer, {"n": 2}, payload))
    thread.start()
    assert read_frame(reader) == ({"n": 2}, payload)
    thread.join()
    os.write(writer, encode({"cut": True})[:-3])
    os.close(writer)
    assert read_frame(reader) is None
    assert read_frame(reader) is None
    os.close(reader)
