"""Memory of devices: allocators, workspaces of kernels, copies beside other work.

Written against `loopwright.runtime.devices.interface` alone, so that it serves every device. Copies
beside other work are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from loopwright.runtime.devices.interface import forget_stream, free_stream
from loopwright.runtime.memory.allocators import (
    NaiveAllocator,
    allocator,
    device_allocator,
)
from loopwright.runtime.memory.pool import (
    DeviceLike,
    MemoryPool,
    PoolStatistics,
    note_use,
)
from loopwright.runtime.memory.pooled import PooledAllocator
from loopwright.runtime.memory.workspace import WorkspacePool, workspace_pool

if TYPE_CHECKING:
    from loopwright.runtime.memory.transfers import (
        AsyncMemoryCopier,
        DeviceCommunicator,
        MemoryPrefetcher,
        Prefetch,
    )

#: Names that are imported at their first use, and their modules.
_LATER = {
    "AsyncMemoryCopier": "loopwright.runtime.memory.transfers",
    "DeviceCommunicator": "loopwright.runtime.memory.transfers",
    "MemoryPrefetcher": "loopwright.runtime.memory.transfers",
    "Prefetch": "loopwright.runtime.memory.transfers",
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
        value = getattr(importlib.import_module(_LATER[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
