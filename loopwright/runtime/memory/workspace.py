"""`WorkspacePool`: memory that a kernel uses while it runs.

Calls of a kernel request the same sizes repeatedly and mostly free them in reverse order, so
each thread keeps the pages that it used and takes the best fit. As TVM's workspace pool.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from bisect import bisect_left, insort_left
from collections.abc import Iterator
from contextlib import contextmanager

from loopwright.errors import ArgumentError, RunError
from loopwright.runtime.devices.interface import Memory, Stream, check_request
from loopwright.runtime.memory.pool import DeviceLike, MemoryPool, device_pair
from loopwright.runtime.memory.pooled import device_allocator

#: Sizes of workspaces are multiples of this.
PAGE = 4096


def _size(memory: Memory) -> int:
    return memory.nbytes


class _Shelf:
    """The workspaces of one thread."""

    def __init__(self) -> None:
        #: By the handle of the stream that used them, in order of size.
        self.free: dict[int, list[Memory]] = {}
        #: Workspaces in use, newest last: the piece lent, all of its memory, the stream.
        self.lent: list[tuple[Memory, Memory, int]] = []

    def take_free(self) -> list[Memory]:
        """Remove and return all free workspaces."""
        taken = [memory for memories in self.free.values() for memory in memories]
        self.free.clear()
        return taken


class _Thread(threading.local):
    """The calling thread's shelf, and an object that lives as long as the thread and the pool."""

    shelf: _Shelf | None = None
    alive: object = None


class _Alive: ...


class WorkspacePool:
    """Lends memory of a device to the threads that launch kernels.

    A thread reuses what it freed for the same stream, in which work is done in order.
    Workspaces go back to the allocator when memory is short, and when their thread or pool ends.

    The memory is the allocator's, default that of the device. UsageError where nothing drives it.

    Example:
        >>> allocator = lw.runtime.memory.PooledAllocator(lw.cpu(), first_chunk=65536)
        >>> pool = lw.runtime.memory.WorkspacePool(lw.cpu(), allocator)
        >>> memory = pool.alloc(1000)
        >>> pool.free(memory)
        >>> print(memory.nbytes, allocator.allocated_size(), pool.release_cached())
        1000 4096 4096
    """

    def __init__(self, device: DeviceLike, allocator: MemoryPool | None = None) -> None:
        self._allocator = allocator or device_allocator(device)
        self._allocator.holders.add(self)
        self._thread = _Thread()
        self._shelves: weakref.WeakSet[_Shelf] = weakref.WeakSet()
        # Taken for shelves only and never while the allocator is called, which calls back.
        self._lock = threading.RLock()

    @property
    def allocator(self) -> MemoryPool:
        """Source of the memory."""
        return self._allocator

    def alloc(self, nbytes: int, stream: Stream | None = None) -> Memory:
        """Uninitialised memory for work in a stream, aligned as the allocator aligns.

        0 bytes give a piece that must not be touched; the stream is that of all work that uses it,
        default the current one. OutOfMemoryError where the device has less memory.
        """
        check_request(self._allocator.device_name, nbytes, PAGE)
        user = stream or self._allocator.api.current_stream(self._allocator.device_id)
        size = max(-(-nbytes // PAGE), 1) * PAGE
        shelf = self._shelf()
        block = self._best_fit(shelf, user.handle, size)
        if block is None:
            block = self._allocator.alloc(size, stream=user)
        memory = block.part(0, nbytes)
        shelf.lent.append((memory, block, user.handle))
        return memory

    def free(self, memory: Memory) -> None:
        """Give back what `alloc` gave to this thread; work that is queued may still use it.

        ArgumentError where it was not lent to this thread, or was given back before.
        """
        shelf = self._shelf()
        for position in reversed(range(len(shelf.lent))):
            lent, whole, handle = shelf.lent[position]
            if lent is memory:
                del shelf.lent[position]
                with self._lock:
                    # The last one of a size goes first, so that it is lent next.
                    insort_left(shelf.free.setdefault(handle, []), whole, key=_size)
                return
        raise ArgumentError(
            f"free: {memory} is no workspace that this thread holds; it is given back once, by the "
            "thread that asked for it"
        )

    @contextmanager
    def lend(self, *sizes: int, stream: Stream | None = None) -> Iterator[list[Memory]]:
        """Workspaces for a block of code, one for each size in bytes."""
        held: list[Memory] = []
        try:
            for nbytes in sizes:
                held.append(self.alloc(nbytes, stream))
            yield list(held)
        finally:
            for memory in reversed(held):
                self.free(memory)

    def release_cached(self) -> int:
        """Give workspaces that no thread holds back to the allocator; returns their bytes."""
        with self._lock:
            free = [memory for shelf in self._shelves for memory in shelf.take_free()]
        for memory in free:
            self._allocator.free(memory)
        return sum(map(_size, free))

    def _shelf(self) -> _Shelf:
        if self._thread.shelf is None:
            shelf, alive = _Shelf(), _Alive()
            end = weakref.finalize(alive, _give_all_back, self._allocator, self._lock, shelf)
            end.atexit = False
            with self._lock:
                self._shelves.add(shelf)
            self._thread.shelf, self._thread.alive = shelf, alive
        return self._thread.shelf

    def _best_fit(self, shelf: _Shelf, handle: int, size: int) -> Memory | None:
        """The smallest free workspace of enough bytes; else the largest free one is given back."""
        with self._lock:
            free = shelf.free.get(handle, [])
            position = bisect_left(free, size, key=_size)
            if position < len(free):
                return free.pop(position)
            too_small = free.pop() if free else None
        if too_small is not None:
            self._allocator.free(too_small)
        return None


def _give_all_back(allocator: MemoryPool, lock: threading.RLock, shelf: _Shelf) -> None:
    """Give all workspaces to the allocator, when a thread ends or its pool is gone."""
    with lock:
        left = [*shelf.take_free(), *(whole for _, whole, _ in shelf.lent)]
        shelf.lent.clear()
    # Nobody would hear that the device is lost; its memory is, then, too.
    with contextlib.suppress(RunError):
        for memory in left:
            allocator.free(memory)


_lock = threading.Lock()
_of_devices: dict[tuple[int, int], WorkspacePool] = {}


def workspace_pool(device: DeviceLike) -> WorkspacePool:
    """The shared workspaces of a device; UsageError where nothing drives it."""
    pair, allocator = device_pair(device), device_allocator(device)
    with _lock:
        pool = _of_devices.get(pair)
        if pool is None or pool.allocator is not allocator:
            pool = _of_devices[pair] = WorkspacePool(pair, allocator)
        return pool
