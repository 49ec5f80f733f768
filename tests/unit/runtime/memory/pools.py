"""Small pools on the simulated device, and what their blocks take."""

from __future__ import annotations

import numpy as np

from loopwright.runtime.devices.interface import HOST, Memory
from loopwright.runtime.memory import (
    MemoryPool,
    PooledAllocator,
)
from loopwright.testing.simulated_device import EXT_DEV

PAGE = 4096


def host(array: np.ndarray) -> Memory:
    return Memory(HOST, 0, array.ctypes.data, array.nbytes, owner=array)


def pooled(**sizes: int) -> PooledAllocator:
    return PooledAllocator((EXT_DEV, 0), **{"first_chunk": PAGE, **sizes})


def free_all(pool: MemoryPool, *blocks: Memory) -> None:
    for memory in blocks:
        pool.free(memory)
    pool.release_cached()


def span(memory: Memory) -> range:
    return range(memory.address, memory.address + memory.nbytes)
