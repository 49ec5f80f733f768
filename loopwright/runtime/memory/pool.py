"""`MemoryPool`: what gives out the memory of one device, its statistics, and how devices are named.

A block may be freed while work that uses it is still queued. So each block that is given out
remembers the streams of such work, in its `Lease`, and a pool that gives the bytes to another
stream makes that one wait.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

from loopwright.errors import UsageError
from loopwright.runtime.devices.checks import check_device
from loopwright.runtime.devices.interface import (
    DeviceAPI,
    Memory,
    Stream,
    check_request,
)
from loopwright.runtime.devices.registry import device_api


class DeviceValue(Protocol):
    """A device as an object, such as `loopwright.runtime.Device`."""

    @property
    def device_type(self) -> int:
        """DLPack code of its kind."""

    @property
    def device_id(self) -> int:
        """Its number."""


#: A device: an object that has its type and number, or the pair of them.
DeviceLike = DeviceValue | tuple[int, int]


def device_pair(device: DeviceLike) -> tuple[int, int]:
    """Type and number of a device, which must be there.

    Raises:
        UsageError: it is no device, nothing drives such devices, or there is none of that number.
    """
    if not isinstance(device, tuple) and not hasattr(device, "device_type"):
        raise UsageError(
            f"expected a Device, or the pair of its type and number, got {device!r}; "
            "loopwright.device makes one of a text"
        )
    pair = device if isinstance(device, tuple) else (device.device_type, device.device_id)
    check_device(device_api(pair[0]), pair[1])
    return pair


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """What a pool has done, and what it holds now. All sizes are bytes.

    Attributes:
        requested_bytes: what the holders of live blocks asked for.
        live_bytes: what they got, rounded up to the alignment.
        peak_bytes: the highest that ``live_bytes`` was.
        reserved_bytes: what the pool has from the device.
        cached_bytes: the part of it that nobody holds.
        largest_free: the longest piece of that which is in one place.
        allocations, frees: calls of the pool.
        device_allocations, device_frees: calls of the device.
    """

    requested_bytes: int
    live_bytes: int
    peak_bytes: int
    reserved_bytes: int
    cached_bytes: int
    largest_free: int
    allocations: int
    frees: int
    device_allocations: int
    device_frees: int

    @property
    def fragmentation(self) -> float:
        """Share of the cached bytes that a single request cannot have, from 0 to 1."""
        return 1 - self.largest_free / self.cached_bytes if self.cached_bytes else 0.0


class CacheHolder(Protocol):
    """Who keeps memory of a pool for later, and gives it back when memory is short."""

    def release_cached(self) -> int:
        """Free what is kept; the number of bytes."""


_pools: weakref.WeakSet[MemoryPool] = weakref.WeakSet()
_pools_lock = threading.Lock()


def all_pools() -> list[MemoryPool]:
    """Every pool that somebody still holds."""
    with _pools_lock:
        return list(_pools)


class MemoryPool(ABC):
    """Gives out the memory of one device; may be used from any thread.

    Args:
        device: whose memory; see `DeviceLike`.

    Attributes:
        device_type, device_id: of the device.
        api: its kind.
        alignment: bytes to which memory is aligned unless more is asked: 64 on the host, else 256.
        holders: others who keep memory of this pool, and are asked for it when memory is short.
    """

    def __init__(self, device: DeviceLike) -> None:
        self.device_type, self.device_id = device_pair(device)
        self.api: DeviceAPI = device_api(self.device_type)
        self.alignment = self.api.alignment(self.device_id)
        self.holders: weakref.WeakSet[CacheHolder] = weakref.WeakSet()
        with _pools_lock:
            _pools.add(self)

    @property
    def device_name(self) -> str:
        """The device as messages name it."""
        return f"{self.api.name}({self.device_id})"

    @abstractmethod
    def alloc(
        self, nbytes: int, alignment: int | None = None, stream: Stream | None = None
    ) -> Memory:
        """Uninitialised memory.

        Args:
            nbytes: how much; 0 gives a piece that must not be touched.
            alignment: a power of two; default and least is that of the pool.
            stream: where the first work that uses it will be queued; default the current one.

        Raises:
            OutOfMemoryError: there is not so much, even with all caches released.
            ArgumentError: the size is negative, or the alignment no power of two.
        """

    @abstractmethod
    def free(self, memory: Memory, stream: Stream | None = None) -> None:
        """Give back what `alloc` gave; work that is queued already may still use it.

        Args:
            memory: the memory.
            stream: where such work was queued, beside the stream that it was allocated for and
                those that `note_use` was told; default the current one.

        Raises:
            ArgumentError: it is not from this pool, or was freed before.
        """

    @abstractmethod
    def statistics(self) -> PoolStatistics:
        """What the pool holds and has done."""

    @abstractmethod
    def release_cached(self) -> int:
        """Give memory that nobody holds back to the device; the number of bytes."""

    @abstractmethod
    def forget_stream(self, stream: Stream) -> None:
        """Remember a stream no more: all work in it is done, and it will be given back."""

    def allocated_size(self) -> int:
        """Bytes of the blocks that are held by somebody.

        Example:
            >>> from loopwright.runtime.memory import NaiveAllocator
            >>> from loopwright.testing.simulated_device import SimulatedDevice
            >>> with SimulatedDevice():
            ...     pool = NaiveAllocator((12, 0))
            ...     memory = pool.alloc(1000)
            ...     print(pool.allocated_size())
            ...     pool.free(memory)
            1000
        """
        return self.statistics().live_bytes

    def _ask_holders(self) -> int:
        """Have others free what they keep for later; the number of bytes."""
        return sum(holder.release_cached() for holder in list(self.holders))

    def _checked(self, nbytes: int, alignment: int | None) -> int:
        """The alignment to give; a request that makes no sense is refused."""
        wanted = self.alignment if alignment is None else alignment
        check_request(self.device_name, nbytes, wanted)
        return max(wanted, self.alignment)


@dataclass(slots=True, eq=False)
class Lease:
    """What a pool knows of memory that it gave out.

    Attributes:
        pool: where it goes back to.
        nbytes: what was asked.
        block: the pool's piece; None once it was freed.
        streams: by their handles, those in which work may be queued that uses it.
    """

    pool: MemoryPool
    nbytes: int
    block: object | None
    streams: dict[int, Stream] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class PooledMemory(Memory):
    """Memory that a pool gave out; its owner is what the device gave to the pool.

    Attributes:
        lease: what the pool knows of it.
    """

    lease: Lease | None = field(default=None, repr=False)


def lease_of(memory: Memory) -> Lease | None:
    """The lease behind memory or a part of it; None where no pool keeps one."""
    owner: object = memory
    while isinstance(owner, Memory):
        if isinstance(owner, PooledMemory):
            return owner.lease
        owner = owner.owner
    return None


def note_use(memory: Memory, stream: Stream) -> None:
    """Say that work in a stream uses memory, where that is not the stream it was allocated for.

    The memory is then given to another stream only behind that work. Nothing happens for memory
    that is from no pool, which the device itself keeps until it is unused.

    Args:
        memory: memory, or a part of it.
        stream: where the work was queued.

    Example:
        >>> from loopwright.runtime.memory import device_allocator, note_use
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> with SimulatedDevice() as api:
        ...     pool, other = device_allocator((12, 0)), api.create_stream(0)
        ...     memory = pool.alloc(64)
        ...     note_use(memory, other)
        ...     pool.free(memory)
        ...     print(pool.release_cached())
        ...     api.free_stream(other)
        67108864
    """
    lease = lease_of(memory)
    if lease is not None:
        lease.streams[stream.handle] = stream
