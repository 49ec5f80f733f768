"""Kernels on a device: arrays in its memory between guard zones, times by its own clock.

The device is opened only in the runner's process, which can be killed while a kernel hangs. A
`Yardstick` takes memory for each sample and gives it back after it, so that a device which is full
of the arrays of others is not filled any further in between.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from loopwright.errors import InternalError, OutOfMemoryError, RunError
from loopwright.measure.comparison import Array, poison
from loopwright.measure.workers.kernel_host import (
    ArgumentMemory,
    LoadedKernel,
    guard_pattern,
    prepared,
)
from loopwright.runtime import (
    HOST,
    Arg,
    Artifact,
    Device,
    DeviceArray,
    DeviceFunction,
    Kernel,
    KernelCall,
    Memory,
    Module,
    Parts,
    SymbolicArg,
    SymbolicFunction,
    sweep,
)

#: A launch takes at least so many seconds, where there is memory for it: what a launch costs by
#: itself is little beside that.
_WINDOW_S = 1e-3
#: Launches of a sample, of which the best counts: other work of the device is no part of its limit.
_LAUNCHES = 5
#: Largest growth of the number of units from one attempt to the next.
_GROWTH = 16
#: Arrays that are to go through memory have so many times the bytes of the last cache, between
#: these bounds; the cache of a device that reports none is assumed to have the last of these sizes.
_CACHES = 4
_SMALLEST, _LARGEST = 32 << 20, 512 << 20
_CACHE = 4 << 20
#: Share of the free memory that is taken at most, and bytes where it is not known.
_SHARE = 0.5
_UNKNOWN = 64 << 20
#: The shortest reported time: clocks of devices tick, and a time must be above 0.
TICK_S = 1e-9


class Yardstick:
    """A kernel of `loopwright.measure.device_limit`, perhaps on arrays that fit no cache."""

    def __init__(self, artifact: Artifact, device: Device, through_memory: bool) -> None:
        function = Module(artifact).get_function(artifact.entry)
        if not isinstance(function, SymbolicFunction):
            raise InternalError(f"{function.name} is no yardstick: its sizes are fixed")
        self._function, self._device = function, device
        self._through_memory = through_memory
        self._units = 0

    def rate(self) -> float:
        """Units of work a second; OutOfMemoryError for too little room, RunError if refused."""
        if not self._units:
            self._units = self._enough()
        with self._call(self._units) as call:
            return self._units / min(_seconds(call) for _ in range(_LAUNCHES))

    def _enough(self) -> int:
        most = self._most()
        units = min(self._first(most), most)
        while units < most:
            with self._call(units) as call:
                seconds = _seconds(call)
            if seconds >= _WINDOW_S:
                break
            units = min(most, units * min(_GROWTH, math.ceil(_WINDOW_S / seconds)))
        return units

    def _most(self) -> int:
        free = self._device.available_global_memory or self._device.total_memory
        room = int(free * _SHARE) or _UNKNOWN
        buffer = self._device.attribute("max_mem_alloc_size")
        largest = min(room, buffer) if isinstance(buffer, int) and buffer > 0 else room
        sizes = [_unit_bytes(arg) for arg in self._function.args]
        return max(1, min(room // sum(sizes), largest // max(sizes)))

    def _first(self, most: int) -> int:
        if not self._through_memory:
            return self._device.multi_processor_count
        cache = max(self._device.cache_sizes.values(), default=0)
        size = max(map(_unit_bytes, self._function.args))
        if cache and most * size <= cache:
            raise OutOfMemoryError(
                f"{self._device} has room for arrays of {most * size} bytes, which its cache of "
                f"{cache} bytes holds: they would not tell how fast memory is; free some memory"
            )
        wanted = min(max(_CACHES * (cache or _CACHE), _SMALLEST), _LARGEST)
        return max(1, wanted // size)

    @contextmanager
    def _call(self, units: int) -> Iterator[KernelCall]:
        """The kernel bound to new arrays; it has run once, so that all their pages are there."""
        api, device = self._device.api, self._device
        with ExitStack() as stack:
            arrays = []
            for arg in self._function.args:
                shape = tuple(n if isinstance(n, int) else units for n in arg.shape)
                nbytes = math.prod(shape) * arg.dtype.itemsize
                block = api.allocate(device.device_id, nbytes)
                stack.callback(api.free, block)
                arrays.append(DeviceArray(block, shape, arg.dtype.name, device, None))
                if arg.output:
                    continue
                # A large input is filled with nonzero bytes, since many pages of zeros may be one
                # physical page.
                if len(shape) == 1:
                    arrays[-1].copyfrom(np.arange(1, shape[0] + 1).astype(arg.dtype))
                else:
                    api.fill(block, 1)
            call = self._function.bind(*arrays)
            call.run()
            yield call


def _unit_bytes(arg: SymbolicArg) -> int:
    """Bytes of an array for each unit; 0 where all units share it."""
    if all(isinstance(n, int) for n in arg.shape):
        return 0
    return math.prod(n for n in arg.shape if isinstance(n, int)) * arg.dtype.itemsize


def _seconds(call: KernelCall) -> float:
    """Time of one launch. Another one goes before it, so that it is queued while that runs and the
    time between the events is the device's alone.
    """
    call()
    return max(call.time(1), TICK_S)


#: Bytes before and after every array that no kernel may write; arrays stay aligned behind them.
_GUARD = 4096
#: Unwritten bytes of temporary buffers: a NaN of every float, -1 of integers.
_POISON = 0xFF
#: Bytes that a probe moves.
_PROBE = 256


class DeviceMemory(ArgumentMemory):
    """Arrays of a device, each a part of an allocation with a guard zone on both sides.

    Those of ``shared`` outputs, by number, are taken over. An OutOfMemoryError for want of room.
    """

    def __init__(
        self, args: Sequence[Arg], device: Device, shared: dict[int, DeviceArray] | None = None
    ) -> None:
        super().__init__(args)
        self.device, self._api = device, device.api
        self._blocks: dict[int, Memory] = {}
        self._temporaries: list[Memory] = []  # of a kernel that is checked
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

    def bind(self, function: Kernel, parts: Parts | None) -> KernelCall:
        if parts is not None:
            return parts.bind(self.arrays, buffers=self._buffers(function))
        return function.bind(*self.arrays, buffers=self._buffers(function))

    def _buffers(self, function: Kernel) -> list[Memory] | None:
        """Memory for the temporary buffers of a function; None: its own."""
        return None

    def flush(self) -> None:
        sweep(self.device)

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

    def guards(self) -> Iterator[tuple[str, Array, int]]:
        named = [(self.args[n].name, n, block) for n, block in self._blocks.items()]
        for k, block in enumerate(self._temporaries):
            named.append((f"temporary buffer {k}", len(self.args) + k, block))
        for name, number, block in named:
            for zone in _zones(block):
                yield name, _bytes_of(self.device, zone), guard_pattern(number)

    def beside(self) -> DeviceMemory:
        outputs = {n: self.arrays[n] for n in self.outputs}
        return DeviceMemory(self.args, self.device, outputs)


class CheckedMemory(DeviceMemory):
    """Arrays for checks: temporary buffers of kernels are guarded, too, and poisoned."""

    def _buffers(self, function: Kernel) -> list[Memory]:
        assert isinstance(function, DeviceFunction)
        args, sizes = self.args, function.buffer_bytes
        if [_body(block).nbytes for block in self._temporaries] != list(sizes):
            self._temporaries = [
                self._guarded(n, guard_pattern(len(args) + k)) for k, n in enumerate(sizes)
            ]
        bodies = [_body(block) for block in self._temporaries]
        for body in bodies:
            self._api.fill(body, _POISON)
        return bodies


def _body(block: Memory) -> Memory:
    return block.part(_GUARD, block.nbytes - 2 * _GUARD)


def _zones(block: Memory) -> tuple[Memory, Memory]:
    return block.part(0, _GUARD), block.part(block.nbytes - _GUARD, _GUARD)


def _bytes_of(device: Device, memory: Memory) -> Array:
    contents = np.empty(memory.nbytes, dtype=np.uint8)
    host = Memory(HOST, 0, int(contents.ctypes.data), contents.nbytes, owner=contents)
    device.api.copy(memory, 0, host, 0, memory.nbytes)
    device.sync()
    return contents


class DeviceKernel(LoadedKernel):
    """A program launched once already, since drivers compile at the first launch of a shape."""

    def __init__(self, artifact: Artifact, memory: ArgumentMemory) -> None:
        super().__init__(artifact, memory)
        self.call.run()
        self.prepare_seconds = prepared(self.call)

    def run(self, number: int = 1, *, flush: bool = False) -> float:
        return max(super().run(number, flush=flush), TICK_S)


class DeviceHost:
    """A device, opened and probed; a UsageError where unusable, a RunError where wrong."""

    def __init__(self, device: Device) -> None:
        device.require()
        self.device = device
        self.device_type = device.name
        self.probe()

    def memory(self, args: Sequence[Arg]) -> DeviceMemory:
        return DeviceMemory(args, self.device)

    def check_memory(self, args: Sequence[Arg], workspace_bytes: int) -> CheckedMemory:
        """Arrays between guard zones, since a device has no pages that fault on access."""
        return CheckedMemory(args, self.device)

    def load(self, artifact: Artifact, memory: ArgumentMemory) -> DeviceKernel:
        return DeviceKernel(artifact, memory)

    def limit(self, artifact: Artifact, through_memory: bool) -> Yardstick:
        return Yardstick(artifact, self.device, through_memory)

    def probe(self) -> None:
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
