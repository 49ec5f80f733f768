"""`MemoryPool`: allocation of one device's memory, its statistics, and names of devices.

A block may be freed while work that uses it is still queued. Each block therefore records the
streams of such work in its `Lease`; a pool that reuses the bytes in another stream makes that
stream wait.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

from loopwright.errors import UsageError
from loopwright.runtime.devices.interface import (
    DeviceAPI,
    Memory,
    Stream,
    StreamUser,
    check_device,
    check_request,
    device_api,
)


class DeviceValue(Protocol):
    """A device as an object, such as `loopwright.runtime.Device`."""

    @property
    def device_type(self) -> int: ...
    @property
    def device_id(self) -> int: ...


#: A device: an object that has its type and number, or the pair of them.
DeviceLike = DeviceValue | tuple[int, int]


def device_pair(device: DeviceLike) -> tuple[int, int]:
    """Type and number of a device; UsageError where it is not there."""
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
    """Counts and sizes of a memory pool. All sizes are bytes.

    Attributes:
        requested_bytes, live_bytes: sizes of live blocks, and those rounded up to the alignment.
        peak_bytes: maximum of ``live_bytes``.
        reserved_bytes: memory that the pool has from the device.
        cached_bytes, largest_free: the free part of it, and the largest contiguous piece of that.
        allocations, frees, device_allocations, device_frees: calls of the pool, and of the device.
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
    """A cache of a pool's memory that is released when memory is short."""

    def release_cached(self) -> int:
        """Free cached memory; returns the number of bytes."""


class MemoryPool(StreamUser):
    """Gives out the memory of one device; may be used from any thread.

    Attributes:
        device_type, device_id, api: of the device, and its kind.
        alignment: bytes to which memory is aligned unless more is asked: 64 on the host, else 256.
        holders: caches of this pool's memory, which are released when memory is short.
    """

    def __init__(self, device: DeviceLike) -> None:
        self.device_type, self.device_id = device_pair(device)
        self.api: DeviceAPI = device_api(self.device_type)
        self.alignment = self.api.alignment(self.device_id)
        self.holders: weakref.WeakSet[CacheHolder] = weakref.WeakSet()
        super().__init__()  # at last: from here on other threads tell it of streams

    @property
    def device_name(self) -> str:
        """The device as messages name it."""
        return f"{self.api.name}({self.device_id})"

    @abstractmethod
    def alloc(
        self, nbytes: int, alignment: int | None = None, stream: Stream | None = None
    ) -> Memory:
        """Uninitialised memory; 0 bytes give a piece that must not be touched.

        ``alignment`` is a power of two, default and least that of the pool; ``stream`` that of the
        first work that uses the memory, default the current one. OutOfMemoryError where the device
        has less, even with all caches released; ArgumentError for a request that makes no sense.
        """

    @abstractmethod
    def free(self, memory: Memory, stream: Stream | None = None) -> None:
        """Give back what `alloc` gave; work that is queued already may still use it.

        ``stream`` has such work, beside the stream that it was allocated for and those of
        `note_use`; default the current one. ArgumentError where it is not from this pool, or was
        freed before.
        """

    @abstractmethod
    def statistics(self) -> PoolStatistics:
        """Sizes and counts of the pool."""

    @abstractmethod
    def release_cached(self) -> int:
        """Give free memory back to the device; returns the number of bytes."""

    def allocated_size(self) -> int:
        """Bytes of live blocks."""
        return self.statistics().live_bytes

    def _ask_holders(self) -> int:
        """Release the caches of the holders; returns the number of bytes."""
        return sum(holder.release_cached() for holder in list(self.holders))

    def _checked(self, nbytes: int, alignment: int | None) -> int:
        """The alignment to use; ArgumentError where the request makes no sense."""
        wanted = self.alignment if alignment is None else alignment
        check_request(self.device_name, nbytes, wanted)
        return max(wanted, self.alignment)


@dataclass(slots=True, eq=False)
class Lease:
    """State of memory that a pool gave out."""

    pool: MemoryPool
    #: Size that was requested.
    nbytes: int
    #: The pool's piece; None once it was freed.
    block: object | None
    #: Streams in which work that uses it may be queued, by their handles.
    streams: dict[int, Stream] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class PooledMemory(Memory):
    """Memory that a pool gave out; its owner is the device's own piece."""

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
    """Record that work in a stream uses memory, where the memory was allocated for another stream.

    The memory is then given to another stream only behind that work. Nothing happens for memory
    that is from no pool, which the device itself keeps until it is unused.
    """
    lease = lease_of(memory)
    if lease is not None:
        lease.streams[stream.handle] = stream
