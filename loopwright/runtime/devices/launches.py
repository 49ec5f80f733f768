"""Timers, and launches of kernels, each with its own time, for functions of several kernels.

The host's clock times work of the host, events work of a device. A function that launches kernels
on a device asks for `recorded(program, api, device_id)` at each call and launches through that.
While nobody records, this is the program itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import (
    HOST,
    DeviceAPI,
    Extents,
    KernelArgument,
    Memory,
    Program,
    Stream,
    device_api,
)


class HostTimer:
    """A span of time by ``time.perf_counter_ns``, from its creation until `stop`."""

    def __init__(self) -> None:
        self.begin = self.end = time.perf_counter_ns()

    def stop(self) -> None:
        self.end = time.perf_counter_ns()

    def seconds(self) -> float:
        return (self.end - self.begin) * 1e-9


class EventTimer:
    """A span of time between two events in a stream of a device.

    `stop` does not wait for the device; `seconds`, at least 0, waits for the second event.
    """

    def __init__(self, api: DeviceAPI, device_id: int, stream: Stream | None = None) -> None:
        self._api, self._device_id, self._stream = api, device_id, stream
        self._first = self._then = api.record_event(device_id, stream)

    def stop(self) -> None:
        """Put the second event behind the present work of the stream."""
        self._then = self._api.record_event(self._device_id, self._stream)

    def seconds(self) -> float:
        """Time between the events; a clock that runs backwards by its grain counts as 0."""
        return max(0.0, self._api.elapsed(self._first, self._then))


Timer = HostTimer | EventTimer


def start_timer(device: Device) -> Timer:
    """A timer that begins now, or behind the present work of the device's current stream."""
    if device.device_type == HOST:
        return HostTimer()
    return EventTimer(device_api(device.device_type), device.device_id)


@dataclass(frozen=True, slots=True)
class Span:
    """A launch or a call, which the device may not have finished."""

    #: Of the kernel or function.
    name: str
    #: Such as ``cuda(0)``.
    device: str
    timer: Timer
    #: Bytes of its memory arguments.
    nbytes: int
    #: Counts of collectors.
    metrics: Mapping[str, int | float] = field(default_factory=dict)


class _RecordedProgram(Program):
    """A program whose launches are put between two events, and noted."""

    def __init__(self, program: Program, api: DeviceAPI, device_id: int, spans: list[Span]) -> None:
        self._program, self._api, self._device_id, self._spans = program, api, device_id, spans

    def launch(
        self,
        kernel: str,
        grid: Extents,
        block: Extents,
        arguments: Sequence[KernelArgument],
        shared_bytes: int = 0,
        stream: Stream | None = None,
    ) -> None:
        """As the program does; a launch that it refuses is not noted."""
        timer = EventTimer(self._api, self._device_id, stream)
        self._program.launch(kernel, grid, block, arguments, shared_bytes, stream)
        timer.stop()
        nbytes = sum(piece.nbytes for piece in arguments if isinstance(piece, Memory))
        self._spans.append(Span(kernel, f"{self._api.name}({self._device_id})", timer, nbytes))


_recorded: ContextVar[list[Span] | None] = ContextVar("recorded launches", default=None)


@contextmanager
def recording() -> Iterator[list[Span]]:
    """List every launch that this thread makes through `recorded` inside the block, in order."""
    spans: list[Span] = []
    token = _recorded.set(spans)
    try:
        yield spans
    finally:
        _recorded.reset(token)


def recorded(program: Program, api: DeviceAPI, device_id: int) -> Program:
    """The program to launch through now: itself, unless this thread is inside `recording`.

    ``api`` and ``device_id`` are of the device that it was loaded onto.
    """
    spans = _recorded.get()
    return program if spans is None else _RecordedProgram(program, api, device_id, spans)
