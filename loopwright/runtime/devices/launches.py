"""Launches of kernels, each with its own time, for functions of several kernels.

A function that launches kernels on a device asks for `recorded(program, api, device_id)` at each
call and launches through that. While nobody records, this is the program itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from loopwright.runtime.devices.interface import (
    DeviceAPI,
    Extents,
    KernelArgument,
    Memory,
    Program,
    Stream,
)
from loopwright.runtime.devices.timers import EventTimer, Timer


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


class LaunchRecorder:
    """The launches of one thread so far, in order."""

    def __init__(self) -> None:
        self.spans: list[Span] = []


class _RecordedProgram(Program):
    """A program whose launches are put between two events, and noted."""

    def __init__(
        self, program: Program, api: DeviceAPI, device_id: int, recorder: LaunchRecorder
    ) -> None:
        self._program, self._api, self._device_id = program, api, device_id
        self._recorder = recorder

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
        where = f"{self._api.name}({self._device_id})"
        self._recorder.spans.append(Span(kernel, where, timer, nbytes))


_recorder: ContextVar[LaunchRecorder | None] = ContextVar("launch recorder", default=None)


@contextmanager
def recording() -> Iterator[LaunchRecorder]:
    """Note every launch that this thread makes through `recorded` inside the block."""
    recorder = LaunchRecorder()
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


def recorded(program: Program, api: DeviceAPI, device_id: int) -> Program:
    """The program to launch through now: itself, unless this thread is inside `recording`.

    Args:
        program: the kernels.
        api: the kind of the device that they were loaded onto.
        device_id: its number.
    """
    recorder = _recorder.get()
    return program if recorder is None else _RecordedProgram(program, api, device_id, recorder)
