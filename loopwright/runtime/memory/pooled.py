"""Allocators of devices: the shared pooled one, and `NaiveAllocator`, the baseline for pools.

`PooledAllocator` works as the caching allocator of PyTorch, whose use of streams comes from CUDA: a
block is reused in the stream of its last use without waiting, and in another one only behind a
wait.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

from loopwright.errors import ArgumentError, OutOfMemoryError, UsageError, did_you_mean
from loopwright.runtime.caches import watch_pool
from loopwright.runtime.devices.driver import RETIRED
from loopwright.runtime.devices.interface import HOST, Memory, Stream, device_api
from loopwright.runtime.memory.pool import (
    DeviceLike,
    Lease,
    MemoryPool,
    PooledMemory,
    PoolStatistics,
    device_pair,
)

_MIB = 1 << 20


@dataclass(slots=True, eq=False)
class PoolBlock:
    """A piece of a chunk, with its neighbours in the chunk."""

    chunk: Chunk
    #: Bytes from the chunk's beginning.
    offset: int
    size: int
    #: The holder's lease; None where the block is free.
    lease: Lease | None = None
    #: Of a free block: streams in which work that uses it may be queued.
    streams: dict[int, Stream] = field(default_factory=dict)
    before: PoolBlock | None = None
    after: PoolBlock | None = None


class Chunk:
    """Memory that a pool has from its device in one piece.

    Its blocks lie beside each other and know their neighbours, so that a block that becomes free
    joins those on both sides (boundary tags, as in Knuth, The Art of Computer Programming, 2.5).
    """

    __slots__ = ("_first", "free", "memory")

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._first = PoolBlock(self, 0, memory.nbytes)
        self.free = [self._first]

    @property
    def unused(self) -> bool:
        """Whether nobody holds a block of it."""
        return len(self.free) == 1 and self.free[0].size == self.memory.nbytes

    def blocks(self) -> Iterator[PoolBlock]:
        """All blocks in the order of their addresses."""
        block: PoolBlock | None = self._first
        while block is not None:
            yield block
            block = block.after

    def take(self, block: PoolBlock, size: int) -> None:
        """Take the first bytes of a free block; the rest stays free."""
        position = bisect_left(self.free, block.offset, key=attrgetter("offset"))
        if block.size == size:
            del self.free[position]
            return
        rest = PoolBlock(
            self, block.offset + size, block.size - size, None, dict(block.streams), block,
            block.after,
        )  # fmt: skip
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self.free[position] = rest

    def give(self, block: PoolBlock) -> None:
        """Make a block free, and join it with its free neighbours."""
        position = bisect_left(self.free, block.offset, key=attrgetter("offset"))
        self.free.insert(position, block)
        if block.after is not None and block.after.lease is None:
            self._join(block, block.after, position + 1)
        if block.before is not None and block.before.lease is None:
            self._join(block.before, block, position)

    def _join(self, block: PoolBlock, after: PoolBlock, position: int) -> None:
        """Join two free neighbours; ``position`` is that of the second in the free list."""
        block.size += after.size
        block.streams.update(after.streams)
        block.after = after.after
        if after.after is not None:
            after.after.before = block
        del self.free[position]


class PooledAllocator(MemoryPool):
    """First fit in chunks that double in size; requests above the largest chunk go to the device.

    Memory that is freed stays here until `release_cached`, or until memory is short. ArgumentError
    where a chunk would be empty.

    Args:
        first_chunk: bytes of the first chunk; default 64 MiB, 1 MiB on the host.
        largest_chunk: bytes up to which chunks double, and of the largest request that is served
            from one; default 1 GiB, 64 MiB on the host.

    Example:
        >>> pool = lw.runtime.memory.PooledAllocator(lw.cpu(), first_chunk=4096)
        >>> memory = pool.alloc(1000)
        >>> print(pool.statistics().live_bytes, pool.statistics().cached_bytes)
        1024 3072
        >>> pool.free(memory)
        >>> print(pool.release_cached())
        4096
    """

    def __init__(
        self, device: DeviceLike, first_chunk: int | None = None, largest_chunk: int | None = None
    ) -> None:
        super().__init__(device)
        for size in (first_chunk, largest_chunk):
            if size is not None and (not isinstance(size, int) or size < 1):
                raise ArgumentError(
                    f"a chunk of {size} bytes holds nothing; choose a whole number, at least 1"
                )
        on_host = self.device_type == HOST
        self._next_chunk = first_chunk or (_MIB if on_host else 64 * _MIB)
        self._largest_chunk = largest_chunk or (64 * _MIB if on_host else 1024 * _MIB)
        self._chunks: list[Chunk] = []
        self._direct: set[PoolBlock] = set()
        self._requested = self._live = self._peak = self._reserved = 0
        self._allocations = self._frees = self._device_allocations = self._device_frees = 0
        # An object that is collected while this thread is in here may free its memory: it enters
        # the lock again, finds the pool busy, and leaves the block for later.
        self._lock = threading.RLock()
        self._busy = False
        self._late: deque[PoolBlock] = deque()

    def alloc(
        self, nbytes: int, alignment: int | None = None, stream: Stream | None = None
    ) -> Memory:
        aligned_to = self._checked(nbytes, alignment)
        user = stream or self.api.current_stream(self.device_id)
        size = max(-(-nbytes // self.alignment), 1) * self.alignment
        with self._alone("alloc"):
            block = self._block(nbytes, size, aligned_to, user)
            lease = Lease(self, nbytes, block, {user.handle: user})
            block.lease = lease
            self._allocations += 1
            self._requested += nbytes
            self._live += block.size
            self._peak = max(self._peak, self._live)
        chunk = block.chunk.memory
        return PooledMemory(
            self.device_type, self.device_id, chunk.handle, nbytes, chunk.offset + block.offset,
            chunk.scope, chunk, lease,
        )  # fmt: skip

    def free(self, memory: Memory, stream: Stream | None = None) -> None:
        user = stream or self.api.current_stream(self.device_id)
        lease = memory.lease if isinstance(memory, PooledMemory) else None
        if lease is None or lease.pool is not self:
            raise ArgumentError(f"free: {memory} was not allocated by this pool, or is a part")
        with self._lock:
            block, lease.block = lease.block, None
            if not isinstance(block, PoolBlock):
                raise ArgumentError(f"free: {memory} was freed before")
            lease.streams[user.handle] = user
            self._late.append(block)
            if not self._busy:
                self._drain()

    def statistics(self) -> PoolStatistics:
        with self._alone("statistics"):
            return self._statistics()

    def release_cached(self) -> int:
        """Give chunks without a held block back to the device; returns the number of bytes."""
        with self._alone("release_cached"):
            return self._release_unused()

    def forget_stream(self, stream: Stream) -> None:
        with self._alone("forget_stream"):
            blocks = [block for chunk in self._chunks for block in chunk.blocks()]
            for block in (*blocks, *self._direct):
                (block.lease or block).streams.pop(stream.handle, None)

    def _block(self, nbytes: int, size: int, alignment: int, user: Stream) -> PoolBlock:
        """A free block that work in a stream may use."""
        if size > self._largest_chunk or alignment > self.alignment:
            return self._direct_block(nbytes, size, alignment)
        block = self._first_fit(size, user) or self._grow(nbytes, size, user)
        for handle, stream in block.streams.items():
            if handle != user.handle and stream not in RETIRED:
                self.api.sync_stream_from_to(self.device_id, stream, user)
        block.chunk.take(block, size)
        block.streams = {}
        return block

    def _direct_block(self, nbytes: int, size: int, alignment: int) -> PoolBlock:
        """A block of its own from the device, which goes back there."""
        memory = self._from_device(size, alignment)
        if memory is None:
            before = self._reserved
            self._collect()
            memory = self._after_release(size, alignment)
            if memory is None:
                raise self._out_of_memory(nbytes, before)
        block = Chunk(memory).free[0]
        self._direct.add(block)
        return block

    def _first_fit(self, size: int, user: Stream) -> PoolBlock | None:
        """The first free block that is large enough, preferring one that needs no wait."""
        needs_wait = None
        for chunk in self._chunks:
            for block in chunk.free:
                if block.size < size:
                    continue
                if block.streams.keys() <= {user.handle}:
                    return block
                needs_wait = needs_wait or block
        return needs_wait

    def _grow(self, nbytes: int, size: int, user: Stream) -> PoolBlock:
        """A free block that is large enough, in a new chunk if the device has one."""
        wanted = self._next_chunk
        while wanted < size:
            wanted *= 2
        wanted = min(wanted, self._largest_chunk)
        memory = self._from_device(wanted, self.alignment)
        if memory is None and wanted > size:
            memory = self._from_device(size, self.alignment)
        if memory is None:
            before = self._reserved
            self._collect()
            block = self._first_fit(size, user)
            if block is not None:
                return block
            memory = self._after_release(size, self.alignment)
            if memory is None:
                raise self._out_of_memory(nbytes, before)
        self._next_chunk = min(2 * wanted, self._largest_chunk)
        self._chunks.append(Chunk(memory))
        return self._chunks[-1].free[0]

    def _from_device(self, size: int, alignment: int) -> Memory | None:
        """Memory from the device; None where it has less."""
        try:
            memory = self.api.allocate(self.device_id, size, alignment)
        except OutOfMemoryError:
            return None
        self._device_allocations += 1
        self._reserved += size
        return memory

    def _collect(self) -> None:
        """Reclaim memory that others cache."""
        self._ask_holders()
        self._drain()

    def _after_release(self, size: int, alignment: int) -> Memory | None:
        """Memory from the device after all cached memory went back to it."""
        self._release_unused()
        self.api.synchronize(self.device_id)  # a device may keep memory until it is unused
        return self._from_device(size, alignment)

    def _out_of_memory(self, nbytes: int, before: int) -> OutOfMemoryError:
        now = self._statistics()
        return OutOfMemoryError(
            f"{self.device_name}: {nbytes} bytes were asked; {now.live_bytes} are live, "
            f"{now.cached_bytes} are cached after {before - now.reserved_bytes} were released, the "
            f"largest free block has {now.largest_free}; free arrays, or use a smaller problem"
        )

    def _release_unused(self) -> int:
        before = self._reserved
        for chunk in [chunk for chunk in self._chunks if chunk.unused]:
            self._to_device(chunk.memory)
            self._chunks.remove(chunk)
        return before - self._reserved

    def _to_device(self, memory: Memory) -> None:
        self.api.free(memory)
        self._device_frees += 1
        self._reserved -= memory.nbytes

    def _statistics(self) -> PoolStatistics:
        free = [block.size for chunk in self._chunks for block in chunk.free]
        return PoolStatistics(
            requested_bytes=self._requested,
            live_bytes=self._live,
            peak_bytes=self._peak,
            reserved_bytes=self._reserved,
            cached_bytes=self._reserved - self._live,
            largest_free=max(free, default=0),
            allocations=self._allocations,
            frees=self._frees,
            device_allocations=self._device_allocations,
            device_frees=self._device_frees,
        )

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        """Keep other threads out, and finish frees that finalizers requested meanwhile."""
        with self._lock:
            if self._busy:
                raise UsageError(f"{what}: called while the pool works; a finalizer may only free")
            self._busy = True
            try:
                yield
            finally:
                self._busy = False
                if self._late:
                    self._drain()

    def _drain(self) -> None:
        """Free the blocks that were given back by finalizers."""
        self._busy, before = True, self._busy
        try:
            while self._late:
                self._reclaim(self._late.popleft())
        finally:
            self._busy = before

    def _reclaim(self, block: PoolBlock) -> None:
        if block in self._direct:
            self._direct.remove(block)
            self._to_device(block.chunk.memory)
        lease, block.lease = block.lease, None
        assert lease is not None, "a block that is given back had a holder"
        self._frees += 1
        self._requested -= lease.nbytes
        self._live -= block.size
        block.streams = lease.streams
        block.chunk.give(block)


class NaiveAllocator(MemoryPool):
    """Asks the device each time, caches nothing, and counts.

    Example:
        >>> pool = lw.runtime.memory.NaiveAllocator(lw.cpu())
        >>> memory = pool.alloc(1000)
        >>> print(pool.statistics().reserved_bytes)
        1000
        >>> pool.free(memory)
    """

    def __init__(self, device: DeviceLike) -> None:
        super().__init__(device)
        self._held: set[Memory] = set()
        self._live = self._peak = self._allocations = self._frees = 0
        self._lock = threading.RLock()

    def alloc(
        self, nbytes: int, alignment: int | None = None, stream: Stream | None = None
    ) -> Memory:
        aligned_to = self._checked(nbytes, alignment)
        try:
            memory = self._from_device(nbytes, aligned_to)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"{self.device_name}: {nbytes} bytes were asked; {self._live} are live, none are "
                "cached; free arrays, or use a smaller problem"
            ) from error
        with self._lock:
            self._held.add(memory)
            self._allocations += 1
            self._live += nbytes
            self._peak = max(self._peak, self._live)
        return memory

    def free(self, memory: Memory, stream: Stream | None = None) -> None:
        with self._lock:
            if memory not in self._held:
                raise ArgumentError(f"free: {memory} is not live memory of this allocator")
            self._held.remove(memory)
            self._frees += 1
            self._live -= memory.nbytes
        self.api.free(memory)

    def statistics(self) -> PoolStatistics:
        with self._lock:
            return PoolStatistics(
                requested_bytes=self._live,
                live_bytes=self._live,
                peak_bytes=self._peak,
                reserved_bytes=self._live,
                cached_bytes=0,
                largest_free=0,
                allocations=self._allocations,
                frees=self._frees,
                device_allocations=self._allocations,
                device_frees=self._frees,
            )

    def release_cached(self) -> int:
        return 0

    def forget_stream(self, stream: Stream) -> None:
        """Nothing to do: streams are not remembered."""

    def _from_device(self, nbytes: int, alignment: int) -> Memory:
        try:
            return self.api.allocate(self.device_id, nbytes, alignment)
        except OutOfMemoryError:
            if not self._ask_holders():
                raise
        return self.api.allocate(self.device_id, nbytes, alignment)


KINDS: dict[str, Callable[[DeviceLike], MemoryPool]] = {
    "naive": NaiveAllocator,
    "pooled": PooledAllocator,
}

_lock = threading.Lock()
_of_devices: dict[tuple[int, int], MemoryPool] = {}


def allocator(kind: Literal["naive", "pooled"], device: DeviceLike) -> MemoryPool:
    """A new allocator of a device.

    ``pooled`` caches freed memory; ``naive`` asks the device each time. UsageError where there is
    no such kind, or nothing drives such a device.
    """
    if kind not in KINDS:
        raise UsageError(
            f"there is no allocator {kind!r}{did_you_mean(kind, KINDS)}; choose from "
            f"{', '.join(KINDS)}"
        )
    return KINDS[kind](device)


def device_allocator(device: DeviceLike) -> MemoryPool:
    """The shared allocator of a device: a pooled one; UsageError where nothing drives it."""
    pair = device_pair(device)
    with _lock:
        pool = _of_devices.get(pair)
        # A kind of devices may have been taken away and registered anew.
        if pool is None or pool.api is not device_api(pair[0]):
            pool = _of_devices[pair] = PooledAllocator(pair)
            if pair[0] != HOST:
                watch_pool(pool, lambda own: own.statistics().reserved_bytes)
        return pool
