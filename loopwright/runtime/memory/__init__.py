"""Memory of devices, of every kind: allocators, workspaces of kernels, copies beside other work.

Copies beside other work are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.lazy import lazy_names
from loopwright.runtime.devices.interface import forget_stream, free_stream
from loopwright.runtime.memory.pool import DeviceLike, MemoryPool, PoolStatistics, note_use
from loopwright.runtime.memory.pooled import (
    NaiveAllocator,
    PooledAllocator,
    allocator,
    device_allocator,
)
from loopwright.runtime.memory.workspace import WorkspacePool, workspace_pool

if TYPE_CHECKING:
    from loopwright.runtime.memory.transfers import (
        AsyncMemoryCopier,
        DeviceCommunicator,
        MemoryPrefetcher,
        Prefetch,
    )

__all__ = [
    "AsyncMemoryCopier", "DeviceCommunicator", "DeviceLike", "MemoryPool", "MemoryPrefetcher",
    "NaiveAllocator", "PoolStatistics", "PooledAllocator", "Prefetch", "WorkspacePool", "allocator",
    "device_allocator", "forget_stream", "free_stream", "note_use", "workspace_pool",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
