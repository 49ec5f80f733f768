"""Memory of devices: allocators, workspaces of kernels, copies beside other work.

Written against `loopwright.runtime.devices.interface` alone, so that it serves every device. Copies
beside other work are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from loopwright.runtime.memory.allocators import (
    allocator,
    device_allocator,
    forget_stream,
    free_stream,
)
from loopwright.runtime.memory.naive import NaiveAllocator
from loopwright.runtime.memory.pool import (
    DeviceLike,
    MemoryPool,
    PoolStatistics,
    note_use,
)
from loopwright.runtime.memory.pooled import PooledAllocator
from loopwright.runtime.memory.workspace import WorkspacePool, workspace_pool

if TYPE_CHECKING:
    from loopwright.runtime.memory.communicator import DeviceCommunicator
    from loopwright.runtime.memory.copier import AsyncMemoryCopier
    from loopwright.runtime.memory.prefetcher import MemoryPrefetcher, Prefetch

#: Names that are imported at their first use, and their modules.
_LATER = {
    "AsyncMemoryCopier": "loopwright.runtime.memory.copier",
    "DeviceCommunicator": "loopwright.runtime.memory.communicator",
    "MemoryPrefetcher": "loopwright.runtime.memory.prefetcher",
    "Prefetch": "loopwright.runtime.memory.prefetcher",
}

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

if not TYPE_CHECKING:  # a type checker needs to know the names

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(_LATER[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
