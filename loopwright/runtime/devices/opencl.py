"""OpenCL devices through pyopencl; where there is no GPU, PoCL makes one of the CPU.

Streams are in-order command queues with profiling, so that events have the device's own times. A
program is compiled when it is loaded; PoCL does much of that work at the first launch of a shape,
so that timing needs one launch before.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.errors import (
    ArgumentError,
    OutOfMemoryError,
    TargetError,
)
from loopwright.runtime.devices.checks import (
    Block,
    check_byte,
    check_device,
    check_event,
    check_may_go,
    check_memory,
    check_sides,
    check_stream,
    release,
    retire,
)
from loopwright.runtime.devices.current_streams import CurrentStreams
from loopwright.runtime.devices.interface import (
    DEVICE_ALIGNMENT,
    HOST,
    AttributeValue,
    DeviceAPI,
    Event,
    Memory,
    Program,
    Stream,
    check_copy,
    check_request,
)
from loopwright.runtime.devices.opencl_driver import ATTRIBUTES, Cl, found_devices, named
from loopwright.runtime.devices.opencl_program import (
    OPENCL,
    OpenCLContext,
    OpenCLProgram,
    buffer_of,
)
from loopwright.runtime.devices.transfers import note_copy


class OpenCLAPI(DeviceAPI):
    """Devices of all OpenCL platforms, GPUs first; each has a context of its own."""

    device_type = OPENCL
    name = "opencl"
    has_addresses = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._contexts: dict[int, OpenCLContext] = {}
        self._current = CurrentStreams()

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
        bits = int(found_devices()[0][device_id].mem_base_addr_align)
        return max(DEVICE_ALIGNMENT, bits // 8)

    def _context(self, device_id: int) -> OpenCLContext:
        check_device(self, device_id)
        with self._lock:
            if device_id not in self._contexts:
                self._contexts[device_id] = OpenCLContext(found_devices()[0][device_id], device_id)
            return self._contexts[device_id]

    # ------------------------------------------------------------ memory

    def allocate(
        self,
        device_id: int,
        nbytes: int,
        alignment: int = DEVICE_ALIGNMENT,
        scope: str = "global",
    ) -> Memory:
        # There are no addresses: an alignment is that of places within the buffer, and the driver
        # aligns buffers for the largest type.
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
        with named(where, f"allocating {nbytes} bytes"):
            flags = context.cl.mem_flags.READ_WRITE
            buffer = context.cl.Buffer(context.context, flags, max(nbytes, 1))
        return Memory(OPENCL, device_id, int(buffer.int_ptr), nbytes, owner=Block(buffer))

    def free(self, memory: Memory) -> None:
        buffer = release(memory, self)
        with named(f"opencl({memory.device_id})", "freeing memory"):
            buffer.release()

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
        check_sides(source, target, self)
        if not nbytes:
            return
        note_copy(source, target, nbytes)
        device_id = target.device_id if source.device_type == HOST else source.device_id
        if HOST not in (source.device_type, target.device_type) and (
            source.device_id != target.device_id
        ):
            self._copy_between(source, source_offset, target, target_offset, nbytes)
            return
        queue = self._queue(device_id, stream)
        cl = self._context(device_id).cl
        with named(f"opencl({device_id})", f"copying {nbytes} bytes"):
            if source.device_type == HOST:
                host = _host_bytes(source.address + source_offset, nbytes)
                at = target.offset + target_offset
                cl.enqueue_copy(queue, buffer_of(target), host, dst_offset=at, is_blocking=False)
                return
            at = source.offset + source_offset
            if target.device_type == HOST:
                host = _host_bytes(target.address + target_offset, nbytes)
                cl.enqueue_copy(queue, host, buffer_of(source), src_offset=at, is_blocking=False)
                return
            to = target.offset + target_offset
            _copy_inside(cl, queue, buffer_of(source), at, buffer_of(target), to, nbytes)

    def _copy_between(
        self, source: Memory, source_offset: int, target: Memory, target_offset: int, nbytes: int
    ) -> None:
        """Copy through the host, since two contexts share no memory."""
        block = np.empty(nbytes, dtype=np.uint8)
        host = Memory(HOST, 0, int(block.ctypes.data), nbytes, owner=block)
        self.copy(source, source_offset, host, 0, nbytes)
        self.synchronize(source.device_id, self.current_stream(source.device_id))
        self.copy(host, 0, target, target_offset, nbytes)
        self.synchronize(target.device_id, self.current_stream(target.device_id))

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
        return Memory(OPENCL, device_id, handle, nbytes, offset, owner=Block(buffer, owner))

    def fill(self, memory: Memory, value: int, stream: Stream | None = None) -> None:
        check_memory("fill", memory, self)
        check_byte(value)
        if not memory.nbytes:
            return
        queue = self._queue(memory.device_id, stream)
        with named(f"opencl({memory.device_id})", f"filling {memory.nbytes} bytes"):
            self._context(memory.device_id).cl.enqueue_fill_buffer(
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

    def free_stream(self, stream: Stream) -> None:
        check_may_go(stream, self)
        queue: Any = stream.owner
        with named(f"opencl({stream.device_id})", "waiting for a queue"):
            queue.finish()
        context = self._context(stream.device_id)
        with self._lock:
            context.queues = [q for q in context.queues if q is not queue]
        if self.current_stream(stream.device_id) is stream:
            self.set_stream(stream.device_id, None)
        retire(stream, self)

    def set_stream(self, device_id: int, stream: Stream | None) -> None:
        if stream is not None:
            check_stream("set_stream", stream, self, device_id)
        self._current.by_device[device_id] = stream

    def current_stream(self, device_id: int) -> Stream:
        return self._current.by_device.get(device_id) or self._context(device_id).default

    def _queue(self, device_id: int, stream: Stream | None) -> Cl:
        used = stream or self.current_stream(device_id)
        check_stream("queueing work", used, self, device_id)
        return used.owner

    def synchronize(self, device_id: int, stream: Stream | None = None) -> None:
        every = self._context(device_id).queues
        queues = every if stream is None else [self._queue(device_id, stream)]
        with named(f"opencl({device_id})", "waiting for a queue"):
            for queue in list(queues):
                queue.finish()

    def sync_stream_from_to(self, device_id: int, first: Stream, then: Stream) -> None:
        cl = self._context(device_id).cl
        with named(f"opencl({device_id})", "joining two queues"):
            queue = self._queue(device_id, first)
            reached = cl.enqueue_marker(queue)
            queue.flush()
            cl.enqueue_barrier(self._queue(device_id, then), wait_for=[reached])

    def record_event(self, device_id: int, stream: Stream | None = None) -> Event:
        cl = self._context(device_id).cl
        with named(f"opencl({device_id})", "recording an event"):
            return Event(OPENCL, device_id, cl.enqueue_marker(self._queue(device_id, stream)))

    def wait_event(self, event: Event) -> None:
        check_event("wait_event", event, self)
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


def _copy_inside(cl: Cl, queue: Cl, source: Cl, at: int, target: Cl, to: int, nbytes: int) -> None:
    cl.enqueue_copy(queue, target, source, byte_count=nbytes, src_offset=at, dst_offset=to)


def _host_bytes(address: int, nbytes: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
