"""Memory of devices: allocators, workspaces of kernels, copies beside other work.

Written against `loopwright.runtime.devices.interface` alone, so that it serves every device.
"""

from loopwright.runtime.memory.allocators import (
    allocator,
    device_allocator,
    forget_stream,
    free_stream,
)
from loopwright.runtime.memory.communicator import DeviceCommunicator
from loopwright.runtime.memory.copier import AsyncMemoryCopier
from loopwright.runtime.memory.naive import NaiveAllocator
from loopwright.runtime.memory.pool import (
    DeviceLike,
    MemoryPool,
    PoolStatistics,
    note_use,
)
from loopwright.runtime.memory.pooled import PooledAllocator
from loopwright.runtime.memory.prefetcher import MemoryPrefetcher, Prefetch
from loopwright.runtime.memory.workspace import WorkspacePool, workspace_pool

__all__ = [
    "AsyncMemoryCopier",
    "DeviceCommunicator",
    "DeviceLike",
    "MemoryPool",
    "MemoryPrefetcher",
    "NaiveAllocator",
    "PoolStatistics",
    "PooledAllocator",
    "Prefetch",
    "WorkspacePool",
    "allocator",
    "device_allocator",
    "forget_stream",
    "free_stream",
    "note_use",
    "workspace_pool",
]
