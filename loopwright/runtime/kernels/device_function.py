"""`DeviceFunction`: one function whose kernels run on a device, with all its checks before.

Its arrays lie on the device (`loopwright.runtime.DeviceArray`). A call puts its launches into the
device's current stream and returns; copying a result to the host waits for them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from loopwright.errors import ArgumentError, RunError
from loopwright.runtime.arrays.device import DeviceArray, extent
from loopwright.runtime.arrays.host import NDArray
from loopwright.runtime.artifacts.device_code import DeviceCode
from loopwright.runtime.artifacts.manifest import FunctionSpec, evaluate
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import (
    DeviceAPI,
    Extents,
    KernelArgument,
    Memory,
    Program,
    Stream,
)
from loopwright.runtime.devices.launches import recorded
from loopwright.runtime.kernels.argument import Arg, check_count, is_idle, output_pairs
from loopwright.runtime.kernels.image import DeviceImage
from loopwright.runtime.kernels.kernel import Kernel, KernelCall
from loopwright.runtime.memory import device_allocator, note_use, workspace_pool

#: Bytes of the vectors that kernels read, which must not cross a multiple of this.
_ALIGNMENT = 16
#: Launches that are recorded as a graph, where a device has graphs.
_GRAPH_LAUNCHES = 64
#: A sweep of this many times the second-level cache leaves nothing in it.
_SWEEP = 2


class DeviceFunction(Kernel):
    """A function of kernels; call it with one array per argument, outputs included, in order.

    ``values`` are sizes that the code takes after the arrays, ``buffer_bytes`` bytes of each
    temporary buffer on the device, ``workspace_bytes`` of all. ``spec`` has numbers for all sizes.
    """

    _image: DeviceImage

    def __init__(self, image: DeviceImage, spec: FunctionSpec, values: Sequence[int] = ()) -> None:
        self.name = spec.name
        self.values = list(values)
        self.args = tuple(map(Arg.of, spec.args))
        self._image = image
        sizes = spec.sizes.variables if spec.sizes is not None else ()
        named = {name: n for (name, _, _), n in zip(sizes, values, strict=False)}
        plan = image.code.plan(spec.name)
        self.buffer_bytes = [evaluate(n, named) for n in plan.buffers]
        self.workspace_bytes = sum(self.buffer_bytes)
        self._idle = is_idle(self.args)
        self._pairs = output_pairs(self.args)
        # Where no output has elements nothing is launched, and a grid may be empty.
        launches = () if self._idle else plan.launches
        self._launches = [
            (
                launch.arguments,
                launch.kernel,
                _extents(launch.kernel, launch.grid, named),
                _extents(launch.kernel, launch.block, named),
                evaluate(launch.shared_bytes, named),
            )
            for launch in launches
        ]

    @property
    def code(self) -> DeviceCode:
        """Its kernels, their launches, and the device's resources that they need."""
        return self._image.code

    def __call__(self, *args: object) -> None:
        """Check the arguments, then launch; later work in the stream sees the results."""
        arrays = self._check(args)
        if not self._idle:
            DeviceCall(self, arrays).launch()

    def bind(self, *args: object, buffers: Sequence[Memory] | None = None) -> DeviceCall:
        """Check the arguments now and return a `DeviceCall` that runs without checking again.

        ``buffers`` is memory for its temporary buffers, of `buffer_bytes`; None: lent to each call.
        ArgumentError as when called, or where no output has elements.
        """
        arrays = self._check(args)
        if self._idle:
            raise ArgumentError(f"{self.name}: no output has elements; there is nothing to run")
        return DeviceCall(self, arrays, buffers)

    def steps(self, arrays: Sequence[DeviceArray], buffers: Sequence[Memory]) -> list[BoundLaunch]:
        """The launches of a call with their arguments."""
        pools: dict[str, Sequence[KernelArgument]] = {
            "parameter": [a.memory for a in arrays],
            "buffer": buffers,
            "size": self.values,
        }
        return [
            BoundLaunch(kernel, grid, block, [pools[kind][n] for kind, n in sources], shared_bytes)
            for sources, kernel, grid, block, shared_bytes in self._launches
        ]

    def _check(self, args: Sequence[object]) -> list[DeviceArray]:
        check_count(self.name, self.args, args)
        arrays: list[DeviceArray] = []
        for k, (spec, arg) in enumerate(zip(self.args, args, strict=True)):
            problem = self._fault(spec, arg, arrays)
            if problem or not isinstance(arg, DeviceArray):
                raise ArgumentError(f"{self.name}: argument {k} ({spec.name!r}): {problem}")
            arrays.append(arg)
        extents = [*map(extent, arrays)]
        for i, j in self._pairs:
            if extents[i].meets(extents[j]):
                raise ArgumentError(
                    f"{self.name}: argument {i} ({self.args[i].name!r}): output overlaps the "
                    f"memory of argument {j} ({self.args[j].name!r}); pass arrays that share no "
                    "bytes"
                )
        return arrays

    def _fault(self, spec: Arg, arg: object, before: Sequence[DeviceArray]) -> str:
        """Reason to refuse an argument; empty for a good one."""
        kind = self._image.kind.device
        if not isinstance(arg, DeviceArray):
            where = str(arg.device) if isinstance(arg, NDArray) else "the host"
            return (
                f"expected {spec} on a device of type {kind}, got {type(arg).__name__} on "
                f"{where}; copy it there with lw.nd.array(a, device={kind!r})"
            )
        home = before[0].device if before else Device(kind, arg.device.device_id)
        if arg.device != home:
            return f"it lies on {arg.device}, expected {home}; copy it there with a.copyto"
        if arg.dtype != spec.dtype.name:
            return (
                f"expected dtype {spec.dtype.name}, got {arg.dtype}; convert a.numpy() with astype"
            )
        if arg.shape != spec.shape:
            return f"expected shape {spec.shape}, got {arg.shape}"
        if arg.memory.offset % _ALIGNMENT or (
            arg.api.has_addresses and arg.memory.address % _ALIGNMENT
        ):
            return f"its memory does not begin at a multiple of {_ALIGNMENT} bytes; copy it"
        return ""

    def __repr__(self) -> str:
        args = ", ".join(str(arg) for arg in self.args)
        return f"<DeviceFunction {self.name}({args}) on {self._image.kind.device}>"


class BoundLaunch(NamedTuple):
    """One launch with its arguments."""

    kernel: str
    grid: Extents
    block: Extents
    arguments: Sequence[KernelArgument]
    shared_bytes: int

    def launch(self, program: Program, stream: Stream) -> None:
        program.launch(*self, stream)


def _extents(kernel: str, formulas: Sequence[object], sizes: Mapping[str, int]) -> Extents:
    x, y, z = (evaluate(n, sizes) for n in formulas)  # type: ignore[arg-type]
    if min(x, y, z) < 1:
        raise RunError(f"{kernel} would be launched on {(x, y, z)}; every extent must be positive")
    return x, y, z


class DeviceCall(KernelCall):
    """A function of kernels with checked arrays, ready to run any number of times."""

    function: DeviceFunction

    def __init__(
        self,
        function: DeviceFunction,
        arrays: Sequence[DeviceArray],
        buffers: Sequence[Memory] | None = None,
    ) -> None:
        self.function, self.arrays = function, tuple(arrays)
        self._buffers = None if buffers is None else list(buffers)
        self._device = arrays[0].device
        self._program = function._image.program(self.device)
        self._graph: Callable[[Stream | None], None] | None = None

    @property
    def device(self) -> Device:
        return self._device

    def __call__(self) -> None:
        """Launch on the bound arrays, as a call of the function does."""
        self.launch()

    @property
    def api(self) -> DeviceAPI:
        return self.device.api

    def launch(self, stream: Stream | None = None) -> None:
        """Put the launches into a stream, default the current one; returns before they have run."""
        stream = stream or self.api.current_stream(self.device.device_id)
        program = recorded(self._program, self.api, self.device.device_id)
        for a in self.arrays:
            note_use(a.memory, stream)
        # A stream works in order, so its next call may use the same buffers.
        lent: AbstractContextManager[Sequence[Memory]] = (
            workspace_pool(self.device).lend(*self.function.buffer_bytes, stream=stream)
            if self._buffers is None
            else nullcontext(self._buffers)
        )
        with lent as buffers:
            for step in self.function.steps(self.arrays, buffers):
                step.launch(program, stream)

    def run(self) -> None:
        """Run the function once, and wait for it."""
        stream = self.api.current_stream(self.device.device_id)
        self.launch(stream)
        self.api.synchronize(self.device.device_id, stream)

    def time(self, number: int) -> float:
        """Seconds on the device of `number` calls back to back, by its own clock.

        Where a device has graphs, many launches are submitted at once, so that Python's time to
        prepare them does not count.
        """
        api, device_id = self.api, self.device.device_id
        stream = api.current_stream(device_id)
        graphs = number // _GRAPH_LAUNCHES
        if graphs and self._graph is None:
            self._graph = api.record_graph(device_id, self._many)
        if self._graph is None:
            graphs = 0
        first = api.record_event(device_id, stream)
        for _ in range(graphs):
            assert self._graph is not None
            self._graph(stream)
        for _ in range(number - graphs * _GRAPH_LAUNCHES):
            self.launch(stream)
        return api.elapsed(first, api.record_event(device_id, stream))

    def __repr__(self) -> str:
        arrays = zip(self.args, self.arrays, strict=True)
        bound = ", ".join(f"{arg} at {a.data:#x}" for arg, a in arrays)
        return f"<DeviceCall {self.name}({bound}) on {self.device}>"

    def _many(self, stream: Stream) -> None:
        """Launches for a graph, whose buffers are its own as long as it lives."""
        pool = device_allocator(self.device)
        self._own = [pool.alloc(n) for n in self.function.buffer_bytes]
        for memory in self._own:
            weakref.finalize(self, pool.free, memory).atexit = False
        steps = self.function.steps(self.arrays, self._own)
        for _ in range(_GRAPH_LAUNCHES):
            for step in steps:
                step.launch(self._program, stream)

    def flush(self) -> None:
        """Queue a sweep of the second-level cache of the device; see `sweep`."""
        sweep(self.device)


def sweep(device: Device, nbytes: int = 0) -> None:
    """Write `nbytes` through the caches of a device; 0: twice its second-level cache.

    The write is queued in the current stream. Timed work is launched while it runs, so that the
    time between two events holds nothing of the host.
    """
    api, device_id = device.api, device.device_id
    total = nbytes or _SWEEP * (device.l2_cache_size_bytes or 1 << 22)
    stream = api.current_stream(device_id)
    with workspace_pool(device).lend(total, stream=stream) as (memory,):
        api.fill(memory, 0, stream)
