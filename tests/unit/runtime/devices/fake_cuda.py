"""A stand-in for ``cuda.bindings.driver`` without a GPU: memory of the host, and rules checked.

It has the functions that the backend calls, with their arguments and results as the bindings have
them (a status first). What the driver would refuse or what would crash it fails the test: a call
without a context, a copy outside of what was allocated, a handle that is not valid any more.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

#: A kernel: called with the launch's arguments, integers as they lie in memory.
Kernel = Callable[..., None]


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704


_OK = Status.CUDA_SUCCESS


class FakeDriver:
    """The driver of some equal GPUs.

    Attributes:
        kernels: what kernels of loaded images do, by name.
        failing: statuses to answer with, by function.
        calls: names of the functions that were called.
        launches: kernel, grid, block, bytes of shared memory and stream of every launch.
        blocks: live allocations by address.
        pinned: live memory of the host that was pinned, by address.
    """

    CUdevice_attribute = SimpleNamespace(
        **{
            f"CU_DEVICE_ATTRIBUTE_{name}": value
            for name, value in {
                "MAX_THREADS_PER_BLOCK": 1024, "WARP_SIZE": 32, "MULTIPROCESSOR_COUNT": 132,
                "CLOCK_RATE": 1_980_000, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232_448,
                "MAX_REGISTERS_PER_BLOCK": 65_536, "L2_CACHE_SIZE": 1 << 16,
                "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0,
                "MAX_BLOCK_DIM_X": 1024, "MAX_BLOCK_DIM_Y": 1024, "MAX_BLOCK_DIM_Z": 64,
            }.items()
        }
    )  # fmt: skip
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUstream = int

    def __init__(self, memory: int = 1 << 24, devices: int = 1) -> None:
        self.kernels: dict[str, Kernel] = {}
        self.failing: dict[str, Status] = {}
        self.calls: list[str] = []
        self.launches: list[tuple[Any, ...]] = []
        self.blocks: dict[int, ctypes.Array[ctypes.c_uint8]] = {}
        self.pinned: dict[int, ctypes.Array[ctypes.c_uint8]] = {}
        self.shared: dict[str, int] = {}
        self._left, self._devices = memory, devices
        self._current = threading.local()
        self._number = 0
        self._streams, self._events, self._modules = {0}, dict[int, float](), set[int]()
        self._recording: dict[int, list[Callable[[], None]]] = {}
        self._graphs: dict[int, list[Callable[[], None]]] = {}
        self._clock = 0.0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith("cu") or not callable(found):
            return found
        self.calls.append(name)
        status = self.failing.get(name)
        return found if status is None else lambda *args: (status,)

    def _new(self) -> int:
        self._number += 1
        return self._number

    def _in_context(self) -> None:
        assert getattr(self._current, "context", None) is not None, "no context is current"

    # ------------------------------------------------------------ devices

    def cuInit(self, flags: int) -> tuple[Any, ...]:
        assert flags == 0
        return (_OK,)

    def cuDeviceGet(self, ordinal: int) -> tuple[Any, ...]:
        assert 0 <= ordinal < self._devices
        return _OK, ordinal

    def cuDeviceGetName(self, length: int, device: int) -> tuple[Any, ...]:
        return _OK, b"Fake H200".ljust(length, b"\0")

    def cuDeviceGetAttribute(self, which: int, device: int) -> tuple[Any, ...]:
        return _OK, which

    def cuDeviceTotalMem(self, device: int) -> tuple[Any, ...]:
        return _OK, 1 << 24

    def cuDeviceGetUuid(self, device: int) -> tuple[Any, ...]:
        return _OK, SimpleNamespace(bytes=bytes([device] * 16))

    def cuDriverGetVersion(self) -> tuple[Any, ...]:
        return _OK, 13000

    def cuDeviceCanAccessPeer(self, device: int, peer: int) -> tuple[Any, ...]:
        return _OK, int(device != peer)

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, ...]:
        return _OK, f"context {device}"

    def cuCtxSetCurrent(self, context: str) -> tuple[Any, ...]:
        self._current.context = context
        return (_OK,)

    def cuCtxEnablePeerAccess(self, context: str, flags: int) -> tuple[Any, ...]:
        self._in_context()
        return (_OK,)

    def cuCtxSynchronize(self) -> tuple[Any, ...]:
        self._in_context()
        return (_OK,)

    # ------------------------------------------------------------ memory

    def cuMemGetInfo(self) -> tuple[Any, ...]:
        self._in_context()
        return _OK, self._left, 1 << 24

    def cuMemAlloc(self, nbytes: int) -> tuple[Any, ...]:
        self._in_context()
        if nbytes > self._left:
            return (Status.CUDA_ERROR_OUT_OF_MEMORY,)
        self._left -= nbytes
        whole = (ctypes.c_uint8 * (nbytes + 256))()
        begin = -ctypes.addressof(whole) % 256
        block = (ctypes.c_uint8 * nbytes).from_buffer(whole, begin)
        self.blocks[ctypes.addressof(block)] = block
        return _OK, ctypes.addressof(block)

    def cuMemFree(self, address: int) -> tuple[Any, ...]:
        self._in_context()
        self._left += len(self.blocks.pop(address))
        return (_OK,)

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> tuple[Any, ...]:
        self._in_context()
        assert flags == 1
        if nbytes > self._left:
            return (Status.CUDA_ERROR_OUT_OF_MEMORY,)
        block = (ctypes.c_uint8 * nbytes)()
        self.pinned[ctypes.addressof(block)] = block
        return _OK, ctypes.addressof(block)

    def cuMemFreeHost(self, address: int) -> tuple[Any, ...]:
        self._in_context()
        del self.pinned[address]
        return (_OK,)

    def _check(self, address: int, nbytes: int) -> None:
        inside = (a <= address and address + nbytes <= a + len(b) for a, b in self.blocks.items())
        assert any(inside), f"{nbytes} bytes at {address:#x} are not of the device"

    def _move(self, to: int, at: int, nbytes: int, stream: int) -> tuple[Any, ...]:
        self._in_context()
        self._do(stream, lambda: ctypes.memmove(to, at, nbytes))
        return (_OK,)

    def cuMemcpyHtoDAsync(self, to: int, at: int, n: int, stream: int) -> tuple[Any, ...]:
        self._check(to, n)
        return self._move(to, at, n, stream)

    def cuMemcpyDtoHAsync(self, to: int, at: int, n: int, stream: int) -> tuple[Any, ...]:
        self._check(at, n)
        return self._move(to, at, n, stream)

    def cuMemcpyDtoDAsync(self, to: int, at: int, n: int, stream: int) -> tuple[Any, ...]:
        self._check(at, n)
        self._check(to, n)
        return self._move(to, at, n, stream)

    def cuMemcpyPeerAsync(
        self, to: int, there: str, at: int, here: str, n: int, stream: int
    ) -> tuple[Any, ...]:
        assert there != here
        self._check(at, n)
        self._check(to, n)
        return self._move(to, at, n, stream)

    def cuMemsetD8Async(self, to: int, value: int, n: int, stream: int) -> tuple[Any, ...]:
        self._check(to, n)
        self._do(stream, lambda: ctypes.memset(to, value, n))
        return (_OK,)

    # ------------------------------------------------------------ streams and events

    def _do(self, stream: int, work: Callable[[], Any]) -> None:
        assert stream in self._streams, f"the stream {stream} is gone"
        if stream in self._recording:
            self._recording[stream].append(work)
            return
        self._clock += 1e-3
        work()

    def cuStreamCreate(self, flags: int) -> tuple[Any, ...]:
        self._in_context()
        number = self._new()
        self._streams.add(number)
        return _OK, number

    def cuStreamDestroy(self, stream: int) -> tuple[Any, ...]:
        self._streams.remove(stream)
        return (_OK,)

    def cuStreamSynchronize(self, stream: int) -> tuple[Any, ...]:
        assert stream in self._streams
        return (_OK,)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> tuple[Any, ...]:
        assert stream in self._streams
        assert event in self._events
        return (_OK,)

    def cuEventCreate(self, flags: int) -> tuple[Any, ...]:
        self._in_context()
        number = self._new()
        self._events[number] = -1.0
        return _OK, number

    def cuEventRecord(self, event: int, stream: int) -> tuple[Any, ...]:
        assert stream in self._streams
        self._events[event] = self._clock
        return (_OK,)

    def cuEventSynchronize(self, event: int) -> tuple[Any, ...]:
        assert self._events[event] >= 0
        return (_OK,)

    def cuEventElapsedTime(self, first: int, then: int) -> tuple[Any, ...]:
        return _OK, (self._events[then] - self._events[first]) * 1e3

    def cuEventDestroy(self, event: int) -> tuple[Any, ...]:
        del self._events[event]
        return (_OK,)

    def cuStreamBeginCapture(self, stream: int, mode: int) -> tuple[Any, ...]:
        self._recording[stream] = []
        return (_OK,)

    def cuStreamEndCapture(self, stream: int) -> tuple[Any, ...]:
        return _OK, self._recording.pop(stream)

    def cuGraphInstantiate(self, graph: list[Callable[[], None]], flags: int) -> tuple[Any, ...]:
        number = self._new()
        self._graphs[number] = graph
        return _OK, number

    def cuGraphDestroy(self, graph: object) -> tuple[Any, ...]:
        return (_OK,)

    def cuGraphExecDestroy(self, graph: int) -> tuple[Any, ...]:
        del self._graphs[graph]
        return (_OK,)

    def cuGraphLaunch(self, graph: int, stream: int) -> tuple[Any, ...]:
        for work in self._graphs[graph]:
            self._do(stream, work)
        return (_OK,)

    # ------------------------------------------------------------ programs

    def cuModuleLoadData(self, image: bytes) -> tuple[Any, ...]:
        self._in_context()
        if not image.startswith(b"cubin"):
            return (Status.CUDA_ERROR_NO_BINARY_FOR_GPU,)
        number = self._new()
        self._modules.add(number)
        return _OK, number

    def cuModuleUnload(self, module: int) -> tuple[Any, ...]:
        self._modules.remove(module)
        return (_OK,)

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[Any, ...]:
        assert module in self._modules
        if name.decode() not in self.kernels:
            return (Status.CUDA_ERROR_NOT_FOUND,)
        return _OK, name.decode()

    def cuFuncSetAttribute(self, function: str, which: int, value: int) -> tuple[Any, ...]:
        assert which == 8
        self.shared[function] = value
        return (_OK,)

    def cuLaunchKernel(
        self, function: str, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int,
        stream: int, parameters: int, extra: int,
    ) -> tuple[Any, ...]:  # fmt: skip
        self._in_context()
        if bx * by * bz > 1024 or shared > self.shared.get(function, 49152):
            return (Status.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,)
        kernel = self.kernels[function]
        count = kernel.__code__.co_argcount
        cells = (ctypes.c_void_p * count).from_address(parameters)
        values = [ctypes.c_int64.from_address(cell or 0).value for cell in cells]
        self.launches.append((function, (gx, gy, gz), (bx, by, bz), shared, stream))
        self._do(stream, lambda: kernel(*values))
        return (_OK,)
