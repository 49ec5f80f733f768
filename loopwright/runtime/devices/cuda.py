"""CUDA devices through the driver's interface: memory, streams, events, cubins, graphs.

Each device has its primary context, which other libraries of the process share, so that arrays can
be exchanged with them without a copy. Nothing here has been run without a driver but against a
stand-in for it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from loopwright.errors import (
    ArgumentError,
    DeviceLostError,
    OutOfMemoryError,
    RunError,
    TargetError,
)
from loopwright.extras import install
from loopwright.runtime.devices.driver import DriverAllocation, DriverAPI
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
    check_request,
)

#: Objects of the bindings, which have no useful types.
Driver = Any
#: Errors after which every further call in this process fails too.
_STICKY = (
    "ILLEGAL_ADDRESS", "LAUNCH_TIMEOUT", "ASSERT", "HARDWARE_STACK_ERROR", "ILLEGAL_INSTRUCTION",
    "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC", "LAUNCH_FAILED",
    "ECC_UNCORRECTABLE", "CONTEXT_IS_DESTROYED", "DEVICE_UNAVAILABLE",
)  # fmt: skip

CUDA = 2
#: Static shared memory that every kernel may have; more has to be requested.
_STATIC_SHARED = 49152
#: The driver's flag CU_MEMHOSTALLOC_PORTABLE: pinned for every context.
_FOR_ALL_DEVICES = 1
#: DLPack's number of the default stream, and the driver's.
_LEGACY = 1
#: The driver's names of attributes.
_ATTRIBUTES = {
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "warp_size": "WARP_SIZE",
    "multi_processor_count": "MULTIPROCESSOR_COUNT",
    "max_clock_rate": "CLOCK_RATE",
    "max_shared_memory_per_block": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "max_registers_per_block": "MAX_REGISTERS_PER_BLOCK",
    "l2_cache_size_bytes": "L2_CACHE_SIZE",
}


def call(driver: Driver, where: str, doing: str, name: str, *args: object) -> Any:
    """Call a function of the driver and return its result (a tuple where there are several).

    OutOfMemoryError, TargetError (code for another architecture, or for a newer driver),
    DeviceLostError (unusable for this process from now on), and RunError for all other failures.
    """
    status, *results = getattr(driver, name)(*args)
    if int(status) != 0:
        raise _error(status, where, doing)
    return results[0] if len(results) == 1 else tuple(results)


def _error(status: Any, where: str, doing: str) -> Exception:
    name = str(getattr(status, "name", status)).removeprefix("CUDA_ERROR_")
    text = f"{where}: {doing} failed: {name} ({int(status)})"
    if name == "OUT_OF_MEMORY":
        return OutOfMemoryError(text)
    if name in ("NO_BINARY_FOR_GPU", "UNSUPPORTED_PTX_VERSION", "INVALID_IMAGE"):
        return TargetError(f"{text}; build it for this device (-arch, see its compute_version)")
    if any(word in name for word in _STICKY):
        return DeviceLostError(f"{text}; this process has lost the device: start it again")
    return RunError(text)


@lru_cache(maxsize=1)
def find_driver() -> tuple[Driver, int, str]:
    """The driver's module or None, the number of devices, and the reason where that is 0.

    The bindings raise, or hang at the second call, where there is no driver. So the driver's
    library is opened by itself first; only if that works is the package imported.
    """
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        opened = ctypes.CDLL(library)
    except OSError:
        return None, 0, f"there is no NVIDIA driver ({library}); install the driver of the GPU"
    code = opened.cuInit(0)
    number = ctypes.c_int(0)
    code = code or opened.cuDeviceGetCount(ctypes.byref(number))
    if code or not number.value:
        problem = f"it says error {code}" if code else "it finds no device"
        return None, 0, f"{library} is there, but {problem}; see nvidia-smi"
    try:
        from cuda.bindings import driver
    except ImportError as error:
        return None, 0, f"cuda-bindings is missing ({error}); install it: {install('cuda')}"
    return driver, number.value, ""


class CudaAPI(DriverAPI):
    """GPUs of NVIDIA.

    Tests pass a stand-in for ``cuda.bindings.driver`` and its number of devices.
    """

    device_type = CUDA
    name = "cuda"
    has_graphs = True

    def __init__(self, driver: Driver = None, devices: int = 1) -> None:
        super().__init__()
        self._given = driver, devices, ""
        self._contexts: dict[int, Any] = {}
        self._defaults: dict[int, Stream] = {}
        self._peers: set[tuple[int, int]] = set()

    # ------------------------------------------------------------ devices

    def _found(self) -> tuple[Driver, int, str]:
        return find_driver() if self._given[0] is None else self._given

    @property
    def driver(self) -> Driver:
        return self._found()[0]

    def count(self) -> int:
        return self._found()[1]

    def why_absent(self) -> str:
        return "" if self.count() else find_driver()[2]

    def call(self, device_id: int, doing: str, name: str, *args: object) -> Any:
        """Call the driver with a device's context in force; errors as `call`.

        The context is entered every time: other libraries of the process may have left it.
        """
        where, context = f"cuda({device_id})", self._context(device_id)
        call(self.driver, where, "entering its context", "cuCtxSetCurrent", context)
        return call(self.driver, where, doing, name, *args)

    def give_back(self, device_id: int, name: str, handle: object) -> None:
        """Release a handle; not while the process ends, which releases all by itself."""
        if not sys.is_finalizing():
            self.call(device_id, "giving something back", name, handle)

    def _context(self, device_id: int) -> Any:
        with self._lock:
            if device_id not in self._contexts:
                self._contexts[device_id] = self._ask(
                    device_id, "cuDevicePrimaryCtxRetain", self._device(device_id)
                )
                self._defaults[device_id] = Stream(CUDA, device_id, 0, self.driver.CUstream(0))
            return self._contexts[device_id]

    def _ask(self, device_id: int, name: str, *args: object) -> Any:
        """Call the driver where no context is needed."""
        return call(self.driver, f"cuda({device_id})", "asking for it", name, *args)

    def _device(self, device_id: int) -> Any:
        check_device(self, device_id)
        self._ask(device_id, "cuInit", 0)
        return self._ask(device_id, "cuDeviceGet", device_id)

    def _integer(self, device_id: int, name: str) -> int:
        which = getattr(self.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._ask(device_id, "cuDeviceGetAttribute", which, self._device(device_id)))

    def attribute(self, device_id: int, name: str) -> AttributeValue:
        check_device(self, device_id)
        if name in _ATTRIBUTES:
            return self._integer(device_id, _ATTRIBUTES[name])
        match name:
            case "device_name":
                raw = self._ask(device_id, "cuDeviceGetName", 256, self._device(device_id))
                return bytes(raw).split(b"\0")[0].decode(errors="replace")
            case "compute_version" | "arch":
                major = self._integer(device_id, "COMPUTE_CAPABILITY_MAJOR")
                minor = self._integer(device_id, "COMPUTE_CAPABILITY_MINOR")
                return f"{major}.{minor}" if name == "compute_version" else f"sm_{major}{minor}"
            case "max_thread_dimensions":
                return tuple(self._integer(device_id, f"MAX_BLOCK_DIM_{x}") for x in "XYZ")
            case "total_global_memory":
                return int(self._ask(device_id, "cuDeviceTotalMem", self._device(device_id)))
            case "available_global_memory":
                return int(self.call(device_id, "asking for memory", "cuMemGetInfo")[0])
            case "api_version":
                return int(self._ask(device_id, "cuDriverGetVersion"))
            case "driver_version":
                version = int(self._ask(device_id, "cuDriverGetVersion"))
                return f"{version // 1000}.{version % 1000 // 10}"
        return None

    def uuid(self, device_id: int) -> str:
        raw = self._ask(device_id, "cuDeviceGetUuid", self._device(device_id))
        return f"cuda {bytes(raw.bytes).hex()}"

    def can_access_peer(self, device_id: int, other: int) -> bool:
        if device_id == other:
            return True
        devices = self._device(device_id), self._device(other)
        return bool(self._ask(device_id, "cuDeviceCanAccessPeer", *devices))

    # ------------------------------------------------------------ memory

    def _allocate(self, device_id: int, nbytes: int, alignment: int) -> Memory:
        # The driver aligns to 512 bytes at least; more is had by leaving out the first ones.
        spare = alignment if alignment > DEVICE_ALIGNMENT else 0
        wanted = max(nbytes, 1) + spare
        base = int(self.call(device_id, f"allocating {wanted} bytes", "cuMemAlloc", wanted))
        offset = -base % alignment if spare else 0
        return Memory(CUDA, device_id, base, nbytes, offset, owner=DriverAllocation(base))

    def allocate_host(self, device_id: int, nbytes: int) -> Memory:
        check_request("the host", nbytes, 1)
        doing = f"pinning {nbytes} bytes of the host"
        args = (max(nbytes, 1), _FOR_ALL_DEVICES)
        address = int(self.call(device_id, doing, "cuMemHostAlloc", *args))
        owner = _Owned(self, device_id, "cuMemFreeHost", address)
        return Memory(HOST, 0, address, nbytes, owner=owner)

    def free(self, memory: Memory) -> None:
        self.call(memory.device_id, "freeing memory", "cuMemFree", self.release(memory))

    def _copy(self, device_id: int, source: Memory, target: Memory, stream: Stream | None) -> None:
        queue, nbytes = self.queue_of(device_id, stream), source.nbytes
        doing, at, to = f"copying {nbytes} bytes", source.address, target.address
        if source.device_type == HOST:
            self.call(device_id, doing, "cuMemcpyHtoDAsync", to, at, nbytes, queue)
        elif target.device_type == HOST:
            self.call(device_id, doing, "cuMemcpyDtoHAsync", to, at, nbytes, queue)
        elif source.device_id == target.device_id:
            self.call(device_id, doing, "cuMemcpyDtoDAsync", to, at, nbytes, queue)
        else:
            contexts = self._context(target.device_id), self._context(source.device_id)
            self._enable_peer(source.device_id, target.device_id)
            args = (to, contexts[0], at, contexts[1], nbytes, queue)
            self.call(device_id, doing, "cuMemcpyPeerAsync", *args)

    def _enable_peer(self, device_id: int, other: int) -> None:
        """Let a device read and write another one's memory; copies work without it, only slower."""
        with self._lock:
            if (device_id, other) in self._peers or not self.can_access_peer(device_id, other):
                return
            self._peers.add((device_id, other))
        context, doing = self._context(other), f"reaching cuda({other})"
        try:
            self.call(device_id, doing, "cuCtxEnablePeerAccess", context, 0)
        except RunError as error:
            if "PEER_ACCESS_ALREADY_ENABLED" not in str(error):  # by another library
                raise

    def exchange_stream(self, device_id: int) -> int:
        return self.current_stream(device_id).handle or _LEGACY

    def let_follow(self, device_id: int, streams: Sequence[Stream], number: int | None) -> bool:
        wanted = _LEGACY if number is None else number
        if not isinstance(wanted, int) or wanted < 1:
            raise ArgumentError(
                f"stream {number!r}: DLPack has -1 for none, 1 and 2 for CUDA's default streams, "
                "and handles of others"
            )
        # These numbers of the default streams are the driver's own (CU_STREAM_LEGACY and so on).
        follower = self.driver.CUstream(wanted)
        for stream in streams:
            if (stream.handle or _LEGACY) == wanted:
                continue  # a stream works in order
            event = self._event(device_id, stream)
            self.call(device_id, "joining two streams", "cuStreamWaitEvent", follower, event, 0)
            self.call(device_id, "freeing an event", "cuEventDestroy", event)
        return True

    def _fill(self, memory: Memory, value: int, stream: Stream | None) -> None:
        args = (memory.address, value, memory.nbytes, self.queue_of(memory.device_id, stream))
        self.call(memory.device_id, f"filling {memory.nbytes} bytes", "cuMemsetD8Async", *args)

    # ------------------------------------------------------------ streams and events

    def create_stream(self, device_id: int) -> Stream:
        check_device(self, device_id)
        flags = self.driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        handle = self.call(device_id, "creating a stream", "cuStreamCreate", int(flags))
        return Stream(CUDA, device_id, int(handle), handle)

    def _drop_stream(self, stream: Stream) -> None:
        self.call(stream.device_id, "freeing a stream", "cuStreamDestroy", stream.owner)

    def _default_stream(self, device_id: int) -> Stream:
        self._context(device_id)
        return self._defaults[device_id]

    def synchronize(self, device_id: int, stream: Stream | None = None) -> None:
        if stream is None:
            self.call(device_id, "waiting for the device", "cuCtxSynchronize")
        else:
            queue = self.queue_of(device_id, stream)
            self.call(device_id, "waiting for a stream", "cuStreamSynchronize", queue)

    def sync_stream_from_to(self, device_id: int, first: Stream, then: Stream) -> None:
        queue = self.queue_of(device_id, then)
        event = self._event(device_id, first)
        self.call(device_id, "joining two streams", "cuStreamWaitEvent", queue, event, 0)
        self.call(device_id, "freeing an event", "cuEventDestroy", event)

    def _event(self, device_id: int, stream: Stream | None) -> Any:
        event = self.call(device_id, "making an event", "cuEventCreate", 0)
        queue = self.queue_of(device_id, stream)
        self.call(device_id, "recording an event", "cuEventRecord", event, queue)
        return event

    def record_event(self, device_id: int, stream: Stream | None = None) -> Event:
        event = self._event(device_id, stream)
        return Event(CUDA, device_id, _Owned(self, device_id, "cuEventDestroy", event))

    def wait_event(self, event: Event) -> None:
        self.check_event("wait_event", event)
        self.call(event.device_id, "waiting for an event", "cuEventSynchronize", _raw(event))

    def elapsed(self, first: Event, then: Event) -> float:
        self.wait_event(first)
        self.wait_event(then)
        pair = _raw(first), _raw(then)
        took = self.call(first.device_id, "reading a time", "cuEventElapsedTime", *pair)
        return float(took) * 1e-3

    # ------------------------------------------------------------ programs

    def load(self, device_id: int, image: bytes, kernels: Sequence[str]) -> Program:
        return _CudaProgram(self, device_id, image, kernels)

    def record_graph(
        self, device_id: int, work: Callable[[Stream], None]
    ) -> Callable[[Stream | None], None]:
        stream = self.create_stream(device_id)
        mode = self.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        doing = "recording a graph"
        try:
            self.call(device_id, doing, "cuStreamBeginCapture", stream.owner, mode)
            try:
                work(stream)
            finally:
                graph = self.call(device_id, doing, "cuStreamEndCapture", stream.owner)
            executable = self.call(device_id, doing, "cuGraphInstantiate", graph, 0)
            self.call(device_id, doing, "cuGraphDestroy", graph)
        finally:
            self.free_stream(stream)
        recorded = _Owned(self, device_id, "cuGraphExecDestroy", executable)

        def launch(stream: Stream | None) -> None:
            queue = self.queue_of(device_id, stream)
            self.call(device_id, "launching a graph", "cuGraphLaunch", recorded.raw, queue)

        return launch


class _Owned:
    """An object of the driver, released by a function of it with the last reference to it."""

    def __init__(self, api: CudaAPI, device_id: int, release: str, raw: Any) -> None:
        self._api, self._device_id, self._release, self.raw = api, device_id, release, raw

    def __del__(self) -> None:
        self._api.give_back(self._device_id, self._release, self.raw)


def _raw(event: Event) -> Any:
    assert isinstance(event.owner, _Owned)
    return event.owner.raw


class _CudaProgram(Program):
    def __init__(self, api: CudaAPI, device_id: int, image: bytes, kernels: Sequence[str]) -> None:
        self._api, self._device_id = api, device_id
        self._module = api.call(device_id, "loading a cubin", "cuModuleLoadData", image)
        self._kernels = {
            name: api.call(
                device_id, f"finding {name}", "cuModuleGetFunction", self._module, name.encode()
            )
            for name in kernels
        }
        self._shared: dict[str, int] = {}

    def launch(
        self,
        kernel: str,
        grid: Extents,
        block: Extents,
        arguments: Sequence[KernelArgument],
        shared_bytes: int = 0,
        stream: Stream | None = None,
    ) -> None:
        self._api.check_launch(self._kernels, kernel, grid, block, arguments)
        function = self._kernels[kernel]
        self._allow_shared(kernel, shared_bytes)
        values = [a if isinstance(a, int) else a.address for a in arguments]
        cells = (ctypes.c_int64 * len(values))(*values)
        first = ctypes.addressof(cells)
        pointers = (ctypes.c_void_p * len(values))(*(first + 8 * k for k in range(len(values))))
        queue = self._api.queue_of(self._device_id, stream)
        doing = f"launching {kernel} on {grid} blocks of {block} threads"
        self._api.call(
            self._device_id, doing, "cuLaunchKernel", function, *grid, *block, shared_bytes, queue,
            ctypes.addressof(pointers), 0,
        )  # fmt: skip

    def _allow_shared(self, kernel: str, nbytes: int) -> None:
        """Request more dynamic shared memory than every kernel may have."""
        if nbytes <= max(_STATIC_SHARED, self._shared.get(kernel, 0)):
            return
        attribute = self._api.driver.CUfunction_attribute
        which = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        doing = f"giving {kernel} {nbytes} bytes of shared memory"
        args = (self._kernels[kernel], which, nbytes)
        self._api.call(self._device_id, doing, "cuFuncSetAttribute", *args)
        self._shared[kernel] = nbytes

    def __del__(self) -> None:
        module = getattr(self, "_module", None)
        if module is not None:
            self._api.give_back(self._device_id, "cuModuleUnload", module)
