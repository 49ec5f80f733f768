"""A device whose kernels take the time that a test says, and a function of two kernels on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from loopwright.runtime import Device
from loopwright.runtime.devices.interface import (
    DeviceAPI,
    Event,
    Extents,
    KernelArgument,
    Memory,
    Program,
    Stream,
    register_device_api,
    unregister_device_api,
)
from loopwright.runtime.profiling import recorded

#: ``ext_dev``, which nobody else drives here.
TYPE = 12


class Clocked(DeviceAPI):
    """Runs nothing; its clock goes on by what a launch takes."""

    device_type = TYPE
    name = "ext_dev"

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self.waits = 0

    def record_event(self, device_id: int, stream: Stream | None = None) -> Event:
        self.events += 1
        return Event(TYPE, device_id, self.now)

    def elapsed(self, first: Event, then: Event) -> float:
        self.waits += 1
        return then.owner - first.owner  # type: ignore[operator]

    def _unexpected(self, *args: object) -> None:
        raise AssertionError("nobody should ask for this")

    count = why_absent = attribute = allocate = free = copy = _unexpected  # type: ignore[assignment]
    create_stream = free_stream = set_stream = current_stream = _unexpected  # type: ignore[assignment]
    synchronize = sync_stream_from_to = wait_event = load = _unexpected  # type: ignore[assignment]


class Kernels(Program):
    """Kernels that take so many seconds each; one without an entry is refused."""

    def __init__(self, api: Clocked, seconds: dict[str, float]) -> None:
        self.api, self.seconds = api, seconds
        self.launched: list[tuple[object, ...]] = []

    def launch(
        self,
        kernel: str,
        grid: Extents,
        block: Extents,
        arguments: Sequence[KernelArgument],
        shared_bytes: int = 0,
        stream: Stream | None = None,
    ) -> None:
        self.api.now += self.seconds[kernel]
        self.launched.append((kernel, grid, block, tuple(arguments), shared_bytes, stream))


class TwoKernels:
    """A function of the kernels ``first`` and ``second``, as the runtime has them for devices."""

    name = "two_kernels"
    args = ()

    def __init__(self, program: Kernels) -> None:
        self.program = program
        self.device = Device("ext_dev", 0)
        self.memory = Memory(TYPE, 0, 4096, 100)

    def __call__(self) -> None:
        program = recorded(self.program, self.program.api, 0)
        program.launch("first", (4, 1, 1), (32, 1, 1), [self.memory, 7])
        program.launch("second", (1, 1, 1), (1, 1, 1), [self.memory, self.memory], 16)


class Opaque:
    """A function on the device that does not report its launches."""

    name = "opaque"
    args = ()

    def __init__(self, api: Clocked, seconds: float) -> None:
        self.api, self.seconds = api, seconds
        self.device = Device("ext_dev", 0)

    def __call__(self) -> None:
        self.api.now += self.seconds


@contextmanager
def clocked() -> Iterator[Clocked]:
    """The device, registered."""
    api = Clocked()
    register_device_api(TYPE, lambda: api)
    try:
        yield api
    finally:
        unregister_device_api(TYPE)
