"""Kernels on a device: arrays in its memory between guard zones, times by its own clock.

The device is opened only in the runner's process, which can be killed while a kernel hangs.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from loopwright import runtime
from loopwright.errors import InternalError, RunError
from loopwright.measure.comparison import Array, poison
from loopwright.measure.workers.kernel_host import (
    ArgumentMemory,
    KernelHost,
    LoadedKernel,
    guard_pattern,
    outside_text,
    prepared,
)
from loopwright.measure.workers.yardstick import TICK_S, Yardstick
from loopwright.runtime import (
    HOST,
    Arg,
    Device,
    DeviceArray,
    DeviceFunction,
    KernelCall,
    Memory,
    sweep,
)

#: Bytes before and after every array that no kernel may write; arrays stay aligned behind them.
_GUARD = 4096
#: Unwritten bytes of temporary buffers: a NaN of every float, -1 of integers.
_POISON = 0xFF
#: Bytes that a probe moves.
_PROBE = 256


class DeviceMemory(ArgumentMemory):
    """Arrays of a device, each a part of an allocation with a guard zone on both sides.

    ``shared`` has arrays of outputs, by the argument's number, that replace new ones. Raises an
    OutOfMemoryError where the device has no room.
    """

    def __init__(
        self, args: Sequence[Arg], device: Device, shared: dict[int, DeviceArray] | None = None
    ) -> None:
        super().__init__(args)
        self.device, self._api = device, device.api
        self._blocks: dict[int, Memory] = {}
        self._temporaries: list[Memory] = []
        shared = shared or {}
        self.arrays = [
            shared[n] if n in shared else self._new(n, arg) for n, arg in enumerate(self.args)
        ]

    def _new(self, number: int, arg: Arg) -> DeviceArray:
        block = self._blocks[number] = self._guarded(arg.nbytes, guard_pattern(number))
        # The array does not keep this alive, so that memory nobody uses is given back at once.
        return DeviceArray(_body(block), tuple(arg.shape), arg.dtype.name, self.device, None)

    def _guarded(self, nbytes: int, pattern: int) -> Memory:
        block = self._api.allocate(self.device.device_id, nbytes + 2 * _GUARD)
        weakref.finalize(self, self._api.free, block).atexit = False
        for zone in _zones(block):
            self._api.fill(zone, pattern)
        return block

    def temporaries(self, sizes: Sequence[int]) -> list[Memory]:
        """Temporary buffers of a kernel with these sizes in bytes, guarded as its arrays are, and
        poisoned: an unwritten element is NaN, or -1.
        """
        if [_body(block).nbytes for block in self._temporaries] != list(sizes):
            self._temporaries = [
                self._guarded(n, self._pattern_of_temporary(k)) for k, n in enumerate(sizes)
            ]
        bodies = [_body(block) for block in self._temporaries]
        for body in bodies:
            self._api.fill(body, _POISON)
        return bodies

    def _pattern_of_temporary(self, number: int) -> int:
        return guard_pattern(len(self.args) + number)

    def read(self, number: int) -> Array:
        return self.arrays[number].numpy()

    def write(self, number: int, data: Array) -> None:
        self.arrays[number].copyfrom(data)

    def poison(self, number: int, pattern: int) -> None:
        arg = self.args[number]
        fresh = np.empty(arg.shape, arg.dtype)
        poison(fresh, pattern)
        self.write(number, fresh)

    def set_element(self, number: int, at: int, data: Array) -> None:
        element = np.ascontiguousarray(data.reshape(-1)[at : at + 1])
        target = self.arrays[number].memory
        host = Memory(HOST, 0, int(element.ctypes.data), element.nbytes, owner=element)
        self._api.copy(host, 0, target, at * element.itemsize, element.nbytes)
        self.device.sync()

    def written_outside(self) -> str | None:
        guarded = [(self.args[n].name, b, guard_pattern(n)) for n, b in self._blocks.items()]
        guarded += [
            (f"temporary buffer {k}", b, self._pattern_of_temporary(k))
            for k, b in enumerate(self._temporaries)
        ]
        names = [
            name
            for name, block, pattern in guarded
            if any((_bytes_of(self.device, zone) != pattern).any() for zone in _zones(block))
        ]
        return outside_text(names)

    def beside(self) -> DeviceMemory:
        outputs = {n: self.arrays[n] for n in self.outputs}
        return DeviceMemory(self.args, self.device, outputs)


def _body(block: Memory) -> Memory:
    return block.part(_GUARD, block.nbytes - 2 * _GUARD)


def _zones(block: Memory) -> tuple[Memory, Memory]:
    return block.part(0, _GUARD), block.part(block.nbytes - _GUARD, _GUARD)


def _bytes_of(device: Device, memory: Memory) -> Array:
    """Contents of a piece of memory after all queued work."""
    contents = np.empty(memory.nbytes, dtype=np.uint8)
    host = Memory(HOST, 0, int(contents.ctypes.data), contents.nbytes, owner=contents)
    device.api.copy(memory, 0, host, 0, memory.nbytes)
    device.sync()
    return contents


class DeviceKernel(LoadedKernel):
    """A program of kernels, launched once already: a driver compiles at the first launch of a
    shape, which is no part of a time.
    """

    workspace_bytes = 0  # a function of kernels has its temporary buffers on the device

    def __init__(self, artifact: runtime.Artifact, memory: DeviceMemory) -> None:
        module = runtime.Module(artifact)
        function = module.get_function(artifact.entry)
        assert isinstance(function, DeviceFunction)  # tuning needs sizes that are known
        self._function, self._parts = function, module.parts()
        self._memory, self._call = memory, self.bound(memory)
        self._call.run()
        self.prepare_seconds = prepared(self._call)

    def pinned(self) -> AbstractContextManager[None]:
        return nullcontext()

    def take_turns(self, nbytes: int) -> None:
        """Do nothing: devices time on one copy."""

    def run(self, number: int = 1, *, flush: bool = False) -> float:
        if flush:
            self.flush(self._memory)
        return max(runtime.time_call(self._call, 1 if flush else number), TICK_S)

    def bound(self, memory: ArgumentMemory, buffers: Sequence[Memory] | None = None) -> KernelCall:
        arrays = on_device(memory).arrays
        if self._parts is not None:
            return self._parts.bind(arrays, buffers=buffers)
        return self._function.bind(*arrays, buffers=buffers)

    def checked(self, memory: ArgumentMemory) -> KernelCall:
        buffers = on_device(memory).temporaries(self._function.buffer_bytes)
        return self.bound(memory, buffers)

    def flush(self, memory: ArgumentMemory) -> None:
        sweep(on_device(memory).device)


class DeviceHost(KernelHost):
    """A device, opened and probed on creation.

    Raises a UsageError that names what is missing where it cannot be used, and a RunError where it
    gives wrong results.
    """

    def __init__(self, device: Device) -> None:
        device.require()
        self.device = device
        self.device_type = device.name
        self.probe()

    def memory(self, args: Sequence[Arg]) -> DeviceMemory:
        return DeviceMemory(args, self.device)

    def check_memory(self, args: Sequence[Arg], workspace_bytes: int) -> DeviceMemory:
        """Arrays between guard zones, since a device has no pages that fault on access."""
        return DeviceMemory(args, self.device)

    def load(self, artifact: runtime.Artifact, memory: ArgumentMemory) -> DeviceKernel:
        return DeviceKernel(artifact, on_device(memory))

    def limit(self, artifact: runtime.Artifact, through_memory: bool) -> Yardstick:
        return Yardstick(artifact, self.device, through_memory)

    def probe(self) -> None:
        """Fill a little of its memory and read it back."""
        api, device_id = self.device.api, self.device.device_id
        memory = api.allocate(device_id, _PROBE)
        try:
            api.fill(memory, 0x3C)
            contents = _bytes_of(self.device, memory)
        finally:
            api.free(memory)
        if not (contents == 0x3C).all():
            raise RunError(
                f"{self.device} does not give back what was written to it; reset the device, or "
                "look for its fault in the log of its driver"
            )


def on_device(memory: ArgumentMemory) -> DeviceMemory:
    if not isinstance(memory, DeviceMemory):
        raise InternalError("a kernel of a device was to run on arrays of the CPU")
    return memory
