"""OpenCL devices through pyopencl; where there is no GPU, PoCL makes one of the CPU.

Streams are in-order command queues with profiling, so that events have the device's own times. A
program is compiled when it is loaded; PoCL does much of that work at the first launch of a shape,
so that timing needs one launch before.
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

from loopwright.errors import ArgumentError, OutOfMemoryError, RunError, TargetError
from loopwright.extras import install
from loopwright.runtime.caches import content_key, program_cache
from loopwright.runtime.devices.driver import DriverAllocation, DriverAPI, owner_of
from loopwright.runtime.devices.interface import (
    DEVICE_ALIGNMENT,
    HOST,
    AttributeValue,
    Event,
    Extents,
    KernelArgument,
    Memory,
    Program,
    Stream,
    check_device,
)

#: Objects of pyopencl, which has no types.
Cl = Any
INSTALL_POCL = "apt-get install pocl-opencl-icd ocl-icd-libopencl1"

OPENCL = 4


@lru_cache(maxsize=1)
def package() -> Cl:
    """The package pyopencl; ImportError where it is not installed."""
    import pyopencl

    return pyopencl


@lru_cache(maxsize=1)
def found_devices() -> tuple[list[Cl], str]:
    """The devices of all platforms, and the reason why there are none."""
    try:
        cl = package()
    except ImportError as error:
        return [], f"pyopencl is missing ({error}); install it: {install('opencl')}"
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


def _devices(cl: Cl, platform: Cl) -> list[Cl]:
    """The devices of a platform; OpenCL's error for a platform without any is an empty list."""
    try:
        return list(platform.get_devices())
    except cl.RuntimeError:
        return []


@contextmanager
def named(where: str, doing: str) -> Iterator[None]:
    """Turn an error of OpenCL into one that names the device and the operation."""
    cl = package()
    try:
        yield
    except cl.MemoryError as error:
        raise OutOfMemoryError(f"{where}: no memory for {doing}: {error}") from error
    except cl.Error as error:
        raise RunError(f"{where}: {doing} failed: {error}") from error


def _warp(device: Cl) -> int:
    """Threads that run in lockstep: known for NVIDIA and AMD only."""
    for name in ("warp_size_nv", "wavefront_width_amd"):
        try:
            value = getattr(device, name)
        except (AttributeError, package().Error):
            continue
        if value:
            return int(value)
    return 1


#: Attributes of a device by OpenCL's properties of it.
ATTRIBUTES: dict[str, Callable[[Cl], AttributeValue]] = {
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
    "has_float64": lambda d: "cl_khr_fp64" in d.extensions,
    "is_host_processor": lambda d: bool(d.type & package().device_type.CPU),
}


class OpenCLContext:
    """One device with its context and queues.

    ``default`` is its default stream, ``queues`` those of all its streams.
    """

    def __init__(self, device: Cl, device_id: int) -> None:
        self.cl = package()
        self.device = device
        self.where = f"opencl({device_id})"
        with named(self.where, "opening the device"):
            self.context = self.cl.Context([device])
            queue = self.new_queue()
        self.default = Stream(OPENCL, device_id, 0, queue)
        self.queues: list[Cl] = [queue]
        # Nobody reads warnings about code that was generated.
        self.options = ["-w"]
        # Correctly rounded quotients and roots, as of all other targets, where the device has them.
        if device.single_fp_config & self.cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            self.options.append("-cl-fp32-correctly-rounded-divide-sqrt")

    def new_queue(self) -> Cl:
        """An in-order queue with profiling."""
        profiling = self.cl.command_queue_properties.PROFILING_ENABLE
        return self.cl.CommandQueue(self.context, self.device, profiling)

    def build(self, source: str) -> Cl:
        """A program, from its cached binary, or compiled now.

        RunError has the first line of the compiler's output that gives a reason.
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

    def _compile(self, source: str) -> Cl:
        try:
            with warnings.catch_warnings():  # that there is a log, even of no more than a count
                warnings.simplefilter("ignore", self.cl.CompilerWarning)
                # pyopencl keeps binaries as well, in a folder that is never trimmed.
                return self.cl.Program(self.context, source).build(self.options, cache_dir=False)
        except self.cl.Error as error:
            lines = [x.strip() for x in str(error).splitlines() if "error" in x.lower()]
            text = lines[0] if lines else str(error).strip().partition("\n")[0]
            raise RunError(f"{self.where}: its compiler refused the code: {text}") from error


class OpenCLProgram(Program):
    """A compiled program; its kernels keep their arguments, so one thread launches at a time."""

    def __init__(
        self, api: DriverAPI, context: OpenCLContext, program: Cl, kernels: Sequence[str]
    ) -> None:
        self._api, self._context = api, context
        self._lock = threading.Lock()
        self._device_id = context.default.device_id
        with named(context.where, "finding the kernels"):
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
        """See `Program.launch`; blocks that are too large are refused with both numbers."""
        self._api.check_launch(self._kernels, kernel, grid, block, arguments)
        most, threads = int(self._context.device.max_work_group_size), math.prod(block)
        if threads > most:
            raise RunError(
                f"{self._context.where}: {kernel} has blocks of {threads} threads, and the device "
                f"takes {most}; build it with -max-threads-per-block={most}"
            )
        queue = self._api.queue_of(self._device_id, stream, kernel)
        values = [np.int64(a) if isinstance(a, int) else _argument(a) for a in arguments]
        work = tuple(g * b for g, b in zip(grid, block, strict=True))
        with self._lock, named(self._context.where, f"launching {kernel}"):
            function = self._kernels[kernel]
            if function.num_args != len(values):
                raise ArgumentError(
                    f"{kernel} takes {function.num_args} arguments, got {len(values)}"
                )
            function.set_args(*values)
            self._context.cl.enqueue_nd_range_kernel(queue, function, work, block)


def buffer_of(memory: Memory) -> Cl:
    owner = owner_of(memory)
    assert isinstance(owner, DriverAllocation), "memory of OpenCL belongs to a block"
    return owner.raw


def _argument(memory: Memory) -> Cl:
    """Memory as a kernel takes it; ArgumentError where no buffer of this device can begin there."""
    buffer = buffer_of(memory)
    if not memory.offset:
        return buffer
    try:
        return buffer.get_sub_region(memory.offset, max(memory.nbytes, 1))
    except package().Error as error:
        raise ArgumentError(
            f"opencl({memory.device_id}): a kernel cannot take memory at offset {memory.offset} of "
            f"a buffer ({error}); copy it to an array of its own"
        ) from error


class OpenCLAPI(DriverAPI):
    """Devices of all OpenCL platforms, GPUs first; each has a context of its own."""

    device_type = OPENCL
    name = "opencl"
    has_addresses = False

    def __init__(self) -> None:
        super().__init__()
        self._contexts: dict[int, OpenCLContext] = {}

    # ------------------------------------------------------------ devices

    def count(self) -> int:
        return len(found_devices()[0])

    def why_absent(self) -> str:
        return found_devices()[1]

    def attribute(self, device_id: int, name: str) -> AttributeValue:
        check_device(self, device_id)
        device = found_devices()[0][device_id]
        ask = ATTRIBUTES.get(name)
        if ask is not None:
            return ask(device)
        value = getattr(device, name, None)
        return value if isinstance(value, int | str) else None

    def uuid(self, device_id: int) -> str:
        device = found_devices()[0][device_id]
        return f"opencl {device.platform.name} {device.name} {device_id}"

    def alignment(self, device_id: int) -> int:
        check_device(self, device_id)
        return max(DEVICE_ALIGNMENT, int(found_devices()[0][device_id].mem_base_addr_align) // 8)

    def _context(self, device_id: int) -> OpenCLContext:
        check_device(self, device_id)
        with self._lock:
            if device_id not in self._contexts:
                self._contexts[device_id] = OpenCLContext(found_devices()[0][device_id], device_id)
            return self._contexts[device_id]

    # ------------------------------------------------------------ memory

    def _allocate(self, device_id: int, nbytes: int, alignment: int) -> Memory:
        # There are no addresses: an alignment is that of places within the buffer, and the driver
        # aligns buffers for the largest type.
        where, context = self.where(device_id), self._context(device_id)
        most = int(context.device.max_mem_alloc_size)
        if nbytes > most:
            raise OutOfMemoryError(
                f"{where}: cannot allocate {nbytes} bytes; one buffer has at most {most}"
            )
        with named(where, f"allocating {nbytes} bytes"):
            flags = context.cl.mem_flags.READ_WRITE
            buffer = context.cl.Buffer(context.context, flags, max(nbytes, 1))
        handle = int(buffer.int_ptr)
        return Memory(OPENCL, device_id, handle, nbytes, owner=DriverAllocation(buffer))

    def free(self, memory: Memory) -> None:
        buffer = self.release(memory)
        with named(self.where(memory.device_id), "freeing memory"):
            buffer.release()

    def _copy(self, device_id: int, source: Memory, target: Memory, stream: Stream | None) -> None:
        devices = {m.device_id for m in (source, target) if m.device_type != HOST}
        if len(devices) > 1:  # through the host, since two contexts share no memory
            block = np.empty(source.nbytes, dtype=np.uint8)
            host = Memory(HOST, 0, int(block.ctypes.data), source.nbytes, owner=block)
            for start, end, device in ((source, host, source), (host, target, target)):
                self.copy(start, 0, end, 0, source.nbytes)
                self.synchronize(device.device_id, self.current_stream(device.device_id))
            return
        queue = self.queue_of(device_id, stream)
        options: dict[str, Any] = {"is_blocking": False}
        if source.device_type == HOST:
            options["dst_offset"] = target.offset
        elif target.device_type == HOST:
            options["src_offset"] = source.offset
        else:
            options = {"src_offset": source.offset, "dst_offset": target.offset}
            options["byte_count"] = source.nbytes
        with named(self.where(device_id), f"copying {source.nbytes} bytes"):
            package().enqueue_copy(queue, _side(target), _side(source), **options)

    def adopt(self, device_id: int, handle: int, offset: int, nbytes: int, owner: object) -> Memory:
        context = self._context(device_id)
        with named(f"opencl({device_id})", "looking at memory of another library"):
            buffer = context.cl.Buffer.from_int_ptr(handle, True)
            ours = buffer.context == context.context
        if not ours:
            raise ArgumentError(
                f"opencl({device_id}): the memory is of another context of OpenCL; copy it by way "
                "of the host"
            )
        return Memory(
            OPENCL, device_id, handle, nbytes, offset, owner=DriverAllocation(buffer, owner)
        )

    def _fill(self, memory: Memory, value: int, stream: Stream | None) -> None:
        queue = self.queue_of(memory.device_id, stream)
        with named(self.where(memory.device_id), f"filling {memory.nbytes} bytes"):
            package().enqueue_fill_buffer(
                queue, buffer_of(memory), np.uint8(value), memory.offset, memory.nbytes
            )

    # ------------------------------------------------------------ streams and events

    def create_stream(self, device_id: int) -> Stream:
        context = self._context(device_id)
        with named(f"opencl({device_id})", "creating a queue"):
            queue = context.new_queue()
        with self._lock:  # a queue that is missing in the list would not be waited for
            context.queues.append(queue)
        return Stream(OPENCL, device_id, int(queue.int_ptr), queue)

    def _drop_stream(self, stream: Stream) -> None:
        context = self._context(stream.device_id)
        with self._lock:
            context.queues = [q for q in context.queues if q is not stream.owner]

    def _default_stream(self, device_id: int) -> Stream:
        return self._context(device_id).default

    def synchronize(self, device_id: int, stream: Stream | None = None) -> None:
        every = self._context(device_id).queues
        queues = every if stream is None else [self.queue_of(device_id, stream)]
        with named(f"opencl({device_id})", "waiting for a queue"):
            for queue in list(queues):
                queue.finish()

    def sync_stream_from_to(self, device_id: int, first: Stream, then: Stream) -> None:
        cl = self._context(device_id).cl
        with named(f"opencl({device_id})", "joining two queues"):
            queue = self.queue_of(device_id, first)
            reached = cl.enqueue_marker(queue)
            queue.flush()
            cl.enqueue_barrier(self.queue_of(device_id, then), wait_for=[reached])

    def record_event(self, device_id: int, stream: Stream | None = None) -> Event:
        cl = self._context(device_id).cl
        with named(f"opencl({device_id})", "recording an event"):
            return Event(OPENCL, device_id, cl.enqueue_marker(self.queue_of(device_id, stream)))

    def wait_event(self, event: Event) -> None:
        self.check_event("wait_event", event)
        with named(f"opencl({event.device_id})", "waiting for an event"):
            event.owner.wait()  # type: ignore[attr-defined]

    def elapsed(self, first: Event, then: Event) -> float:
        self.wait_event(first)
        self.wait_event(then)
        with named(f"opencl({first.device_id})", "reading the device's clock"):
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
        return OpenCLProgram(self, context, context.build(source), kernels)


def _side(memory: Memory) -> Any:
    """Memory as copies take it: a buffer, or an array over the bytes of the host."""
    if memory.device_type != HOST:
        return buffer_of(memory)
    return np.ctypeslib.as_array((ctypes.c_uint8 * memory.nbytes).from_address(memory.address))
