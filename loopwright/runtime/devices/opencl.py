"""OpenCL devices through pyopencl; where there is no GPU, PoCL makes one of the CPU.

Streams are in-order command queues with profiling, so that events tell the device's own times. A
program is compiled when it is loaded; PoCL does much of that work at the first launch of a shape,
so that whoever times a kernel launches it once before.
"""

from __future__ import annotations

import ctypes
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from loopwright.errors import (
    ArgumentError,
    OutOfMemoryError,
    RunError,
    TargetError,
)
from loopwright.runtime.caches.programs import content_key, program_cache
from loopwright.runtime.devices.interface import (
    DEVICE_ALIGNMENT,
    HOST,
    AttributeValue,
    DeviceAPI,
    Event,
    Extents,
    KernelArgument,
    Memory,
    Program,
    Stream,
    check_copy,
    check_request,
)

OPENCL = 4
#: What pyopencl gives; it has no types.
_Cl = Any
INSTALL_PACKAGE = 'pip install "loopwright[opencl]"'
INSTALL_POCL = "apt-get install pocl-opencl-icd ocl-icd-libopencl1"


class OpenCLAPI(DeviceAPI):
    """Devices of all OpenCL platforms, GPUs first; each has a context of its own."""

    device_type = OPENCL
    name = "opencl"
    has_addresses = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._contexts: dict[int, _Context] = {}
        self._current = threading.local()

    # ------------------------------------------------------------ devices

    def count(self) -> int:
        return len(_found()[0])

    def why_absent(self) -> str:
        return _found()[1]

    def attribute(self, device_id: int, name: str) -> AttributeValue:
        device = _found()[0][device_id]
        ask = _ATTRIBUTES.get(name)
        if ask is not None:
            return ask(device)
        value = getattr(device, name, None)
        return value if isinstance(value, int | str) else None

    def uuid(self, device_id: int) -> str:
        device = _found()[0][device_id]
        return f"opencl {device.platform.name} {device.name} {device_id}"

    def alignment(self, device_id: int) -> int:
        bits = int(_found()[0][device_id].mem_base_addr_align)
        return max(DEVICE_ALIGNMENT, bits // 8)

    def _context(self, device_id: int) -> _Context:
        with self._lock:
            if device_id not in self._contexts:
                self._contexts[device_id] = _Context(_found()[0][device_id], device_id)
            return self._contexts[device_id]

    # ------------------------------------------------------------ memory

    def allocate(
        self,
        device_id: int,
        nbytes: int,
        alignment: int = DEVICE_ALIGNMENT,
        scope: str = "global",
    ) -> Memory:
        where = f"opencl({device_id})"
        check_request(where, nbytes, alignment)
        if scope != "global":
            raise ArgumentError(f"{where} has no memory of scope {scope!r}; it has: global")
        context = self._context(device_id)
        most = int(context.device.max_mem_alloc_size)
        if nbytes > most:
            raise OutOfMemoryError(
                f"{where}: {nbytes} bytes are asked for, and one buffer has at most {most}"
            )
        with _named(where, f"allocating {nbytes} bytes"):
            flags = context.cl.mem_flags.READ_WRITE
            buffer = context.cl.Buffer(context.context, flags, max(nbytes, 1))
        return Memory(OPENCL, device_id, int(buffer.int_ptr), nbytes, owner=buffer)

    def free(self, memory: Memory) -> None:
        buffer: Any = _buffer(memory)
        if buffer is not memory.owner:
            raise ArgumentError("free: this is a part of other memory; free that")
        with _named(f"opencl({memory.device_id})", "freeing memory"):
            memory.owner.release()

    def copy(
        self,
        source: Memory,
        source_offset: int,
        target: Memory,
        target_offset: int,
        nbytes: int,
        stream: Stream | None = None,
    ) -> None:
        check_copy(source, source_offset, target, target_offset, nbytes)
        if not nbytes:
            return
        device_id = target.device_id if source.device_type == HOST else source.device_id
        if HOST not in (source.device_type, target.device_type) and (
            source.device_id != target.device_id
        ):
            self._copy_between(source, source_offset, target, target_offset, nbytes)
            return
        queue = self._queue(device_id, stream)
        cl = self._context(device_id).cl
        with _named(f"opencl({device_id})", f"copying {nbytes} bytes"):
            if source.device_type == HOST:
                host = _host_bytes(source.address + source_offset, nbytes)
                at = target.offset + target_offset
                cl.enqueue_copy(queue, _buffer(target), host, dst_offset=at, is_blocking=False)
                return
            at = source.offset + source_offset
            if target.device_type == HOST:
                host = _host_bytes(target.address + target_offset, nbytes)
                cl.enqueue_copy(queue, host, _buffer(source), src_offset=at, is_blocking=False)
                return
            to = target.offset + target_offset
            _copy_inside(cl, queue, _buffer(source), at, _buffer(target), to, nbytes)

    def _copy_between(
        self, source: Memory, source_offset: int, target: Memory, target_offset: int, nbytes: int
    ) -> None:
        """Two contexts share no memory: through the host."""
        block = np.empty(nbytes, dtype=np.uint8)
        host = Memory(HOST, 0, int(block.ctypes.data), nbytes, owner=block)
        self.copy(source, source_offset, host, 0, nbytes)
        self.synchronize(source.device_id, self.current_stream(source.device_id))
        self.copy(host, 0, target, target_offset, nbytes)
        self.synchronize(target.device_id, self.current_stream(target.device_id))

    def fill(self, memory: Memory, value: int, stream: Stream | None = None) -> None:
        if not memory.nbytes:
            return
        queue = self._queue(memory.device_id, stream)
        with _named(f"opencl({memory.device_id})", f"filling {memory.nbytes} bytes"):
            self._context(memory.device_id).cl.enqueue_fill_buffer(
                queue, _buffer(memory), np.uint8(value), memory.offset, memory.nbytes
            )

    # ------------------------------------------------------------ streams and events

    def create_stream(self, device_id: int) -> Stream:
        context = self._context(device_id)
        with _named(f"opencl({device_id})", "creating a queue"):
            queue = context.new_queue()
        context.queues.append(queue)
        return Stream(OPENCL, device_id, int(queue.int_ptr), queue)

    def free_stream(self, stream: Stream) -> None:
        queue: Any = stream.owner
        with _named(f"opencl({stream.device_id})", "waiting for a queue"):
            queue.finish()
        context = self._context(stream.device_id)
        context.queues = [q for q in context.queues if q is not queue]
        if self.current_stream(stream.device_id) is stream:
            self.set_stream(stream.device_id, None)

    def set_stream(self, device_id: int, stream: Stream | None) -> None:
        self._current_streams()[device_id] = stream

    def current_stream(self, device_id: int) -> Stream:
        return self._current_streams().get(device_id) or self._context(device_id).default

    def _current_streams(self) -> dict[int, Stream | None]:
        if not hasattr(self._current, "streams"):
            self._current.streams = {}
        streams: dict[int, Stream | None] = self._current.streams
        return streams

    def _queue(self, device_id: int, stream: Stream | None) -> _Cl:
        return (stream or self.current_stream(device_id)).owner

    def synchronize(self, device_id: int, stream: Stream | None = None) -> None:
        queues = self._context(device_id).queues if stream is None else [stream.owner]
        with _named(f"opencl({device_id})", "waiting for a queue"):
            for queue in list(queues):
                queue.finish()

    def sync_stream_from_to(self, device_id: int, first: Stream, then: Stream) -> None:
        cl = self._context(device_id).cl
        with _named(f"opencl({device_id})", "joining two queues"):
            reached = cl.enqueue_marker(first.owner)
            first.owner.flush()  # type: ignore[attr-defined]
            cl.enqueue_barrier(then.owner, wait_for=[reached])

    def record_event(self, device_id: int, stream: Stream | None = None) -> Event:
        cl = self._context(device_id).cl
        with _named(f"opencl({device_id})", "recording an event"):
            return Event(OPENCL, device_id, cl.enqueue_marker(self._queue(device_id, stream)))

    def wait_event(self, event: Event) -> None:
        with _named(f"opencl({event.device_id})", "waiting for an event"):
            event.owner.wait()  # type: ignore[attr-defined]

    def elapsed(self, first: Event, then: Event) -> float:
        self.wait_event(first)
        self.wait_event(then)
        with _named(f"opencl({first.device_id})", "reading the device's clock"):
            begin = first.owner.profile.end  # type: ignore[attr-defined]
            return float(then.owner.profile.end - begin) * 1e-9  # type: ignore[attr-defined]

    # ------------------------------------------------------------ programs

    def load(self, device_id: int, image: bytes, kernels: Sequence[str]) -> Program:
        context = self._context(device_id)
        try:
            source = image.decode()
        except UnicodeDecodeError:
            raise TargetError(
                f"opencl({device_id}) takes source text, and the image is none; build it again"
            ) from None
        return _OpenCLProgram(self, context, context.build(source), kernels)


class _Context:
    """One device with its context and queues.

    Attributes:
        cl: the package.
        context: of the device alone.
        default: its default stream.
        options: of its compiler.
        queues: those of all its streams.
    """

    def __init__(self, device: _Cl, device_id: int) -> None:
        self.cl = _pyopencl()
        self.device = device
        self.where = f"opencl({device_id})"
        with _named(self.where, "opening the device"):
            self.context = self.cl.Context([device])
            queue = self.new_queue()
        self.default = Stream(OPENCL, device_id, 0, queue)
        self.queues: list[_Cl] = [queue]
        # Nobody reads warnings about code that was generated.
        self.options = ["-w"]
        # Quotients and roots are those of every other target where the device can give them.
        if device.single_fp_config & self.cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            self.options.append("-cl-fp32-correctly-rounded-divide-sqrt")

    def new_queue(self) -> _Cl:
        """An in-order queue that tells times."""
        profiling = self.cl.command_queue_properties.PROFILING_ENABLE
        return self.cl.CommandQueue(self.context, self.device, profiling)

    def build(self, source: str) -> _Cl:
        """A program, from the binary that is kept of it, or compiled now.

        Raises:
            RunError: the device's compiler refuses it; with the first line that says why.
        """
        device, cache = self.device, program_cache()
        facts = (device.name, device.version, device.driver_version, " ".join(self.options))
        key = content_key("opencl", source, *facts)
        binary = cache.get(key)
        if binary is not None:
            try:
                return self.cl.Program(self.context, [device], [binary]).build(self.options)
            except self.cl.Error:  # the driver has changed and does not say so
                cache.remove(key)
        program = self._compile(source)
        cache.put(key, bytes(program.binaries[0]))
        return program

    def _compile(self, source: str) -> _Cl:
        try:
            with warnings.catch_warnings():  # that there is a log, even of no more than a count
                warnings.simplefilter("ignore", self.cl.CompilerWarning)
                # pyopencl keeps binaries as well, in a folder that nobody trims.
                return self.cl.Program(self.context, source).build(self.options, cache_dir=False)
        except self.cl.Error as error:
            lines = [x.strip() for x in str(error).splitlines() if "error" in x.lower()]
            text = lines[0] if lines else str(error).strip().partition("\n")[0]
            raise RunError(f"{self.where}: its compiler refused the code: {text}") from error


class _OpenCLProgram(Program):
    """A compiled program; its kernels keep their arguments, so one thread launches at a time."""

    def __init__(
        self, api: OpenCLAPI, context: _Context, program: _Cl, kernels: Sequence[str]
    ) -> None:
        self._api, self._context = api, context
        self._lock = threading.Lock()
        self._device_id = context.default.device_id
        with _named(context.where, "finding the kernels"):
            self._kernels = {name: context.cl.Kernel(program, name) for name in kernels}

    def launch(
        self,
        kernel: str,
        grid: Extents,
        block: Extents,
        arguments: Sequence[KernelArgument],
        shared_bytes: int = 0,
        stream: Stream | None = None,
    ) -> None:
        most, threads = int(self._context.device.max_work_group_size), math.prod(block)
        if threads > most:
            raise RunError(
                f"{self._context.where}: {kernel} has blocks of {threads} threads, and the device "
                f"takes {most}; build it with -max-threads-per-block={most}"
            )
        queue: Any = (stream or self._api.current_stream(self._device_id)).owner
        values = [np.int64(a) if isinstance(a, int) else _argument(a) for a in arguments]
        work = tuple(g * b for g, b in zip(grid, block, strict=True))
        with self._lock, _named(self._context.where, f"launching {kernel}"):
            found = self._kernels[kernel]
            found.set_args(*values)
            self._context.cl.enqueue_nd_range_kernel(queue, found, work, block)


def _copy_inside(
    cl: _Cl, queue: _Cl, source: _Cl, at: int, target: _Cl, to: int, nbytes: int
) -> None:
    cl.enqueue_copy(queue, target, source, byte_count=nbytes, src_offset=at, dst_offset=to)


def _buffer(memory: Memory) -> _Cl:
    """pyopencl's buffer of a piece of memory."""
    owner: Any = memory.owner
    while isinstance(owner, Memory):
        owner = owner.owner
    return owner


def _argument(memory: Memory) -> _Cl:
    """A piece of memory as a kernel takes it.

    Raises:
        ArgumentError: it begins where no buffer of this device can.
    """
    buffer = _buffer(memory)
    if not memory.offset:
        return buffer
    try:
        return buffer.get_sub_region(memory.offset, max(memory.nbytes, 1))
    except _pyopencl().Error as error:
        raise ArgumentError(
            f"opencl({memory.device_id}): a kernel cannot take memory at offset {memory.offset} of "
            f"a buffer ({error}); copy it to an array of its own"
        ) from error


def _host_bytes(address: int, nbytes: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


@lru_cache(maxsize=1)
def _pyopencl() -> _Cl:
    import pyopencl

    return pyopencl


@lru_cache(maxsize=1)
def _found() -> tuple[list[_Cl], str]:
    """The devices of all platforms, and why there are none."""
    try:
        cl = _pyopencl()
    except ImportError as error:
        return [], f"pyopencl is missing ({error}); install it: {INSTALL_PACKAGE}"
    try:
        platforms = cl.get_platforms()
        devices = [d for p in platforms for d in _devices(cl, p)]
    except cl.Error as error:
        return [], (
            f"there is no OpenCL platform ({error}); install a driver of the GPU, or PoCL for the "
            f"CPU: {INSTALL_POCL}"
        )
    if not devices:
        names = ", ".join(p.name for p in platforms)
        return [], f"the platform {names} has no device; install PoCL for the CPU: {INSTALL_POCL}"
    kinds = cl.device_type
    rank = {kinds.GPU: 0, kinds.ACCELERATOR: 1}
    return sorted(devices, key=lambda d: rank.get(d.type & ~kinds.DEFAULT, 2)), ""


def _devices(cl: _Cl, platform: _Cl) -> list[_Cl]:
    """The devices of a platform, which is an error for OpenCL where there is none."""
    try:
        return list(platform.get_devices())
    except cl.RuntimeError:
        return []


@contextmanager
def _named(where: str, doing: str) -> Iterator[None]:
    """Turn an error of OpenCL into one that says where it happened, and doing what."""
    cl = _pyopencl()
    try:
        yield
    except cl.MemoryError as error:
        raise OutOfMemoryError(f"{where}: no memory for {doing}: {error}") from error
    except cl.Error as error:
        raise RunError(f"{where}: {doing} failed: {error}") from error


def _warp(device: _Cl) -> int:
    """Threads that run in lockstep: NVIDIA and AMD tell, elsewhere none do."""
    for name in ("warp_size_nv", "wavefront_width_amd"):
        try:
            value = getattr(device, name)
        except (AttributeError, _pyopencl().Error):
            continue
        if value:
            return int(value)
    return 1


#: What OpenCL tells of a device's attributes.
_ATTRIBUTES: dict[str, Callable[[_Cl], AttributeValue]] = {
    "device_name": lambda d: f"{d.name.strip()} ({d.platform.name.strip()})",
    "multi_processor_count": lambda d: int(d.max_compute_units),
    "max_clock_rate": lambda d: int(d.max_clock_frequency) * 1000 or None,
    "total_global_memory": lambda d: int(d.global_mem_size),
    "max_threads_per_block": lambda d: int(d.max_work_group_size),
    "max_thread_dimensions": lambda d: tuple(int(n) for n in d.max_work_item_sizes),
    "max_shared_memory_per_block": lambda d: int(d.local_mem_size),
    "l2_cache_size_bytes": lambda d: int(d.global_mem_cache_size) or None,
    "warp_size": _warp,
    "compute_version": lambda d: d.version.split()[1],
    "api_version": lambda d: int(d.version.split()[1].replace(".", "")) * 10,
    "driver_version": lambda d: str(d.driver_version),
    "is_host_processor": lambda d: bool(d.type & _pyopencl().device_type.CPU),
}
