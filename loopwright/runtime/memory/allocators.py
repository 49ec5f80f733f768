"""Allocators of devices, and notes to all of them about streams."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from loopwright.errors import UsageError, did_you_mean
from loopwright.runtime.devices.interface import Stream
from loopwright.runtime.devices.registry import device_api
from loopwright.runtime.memory.naive import NaiveAllocator
from loopwright.runtime.memory.pool import DeviceLike, MemoryPool, all_pools, device_pair
from loopwright.runtime.memory.pooled import PooledAllocator

KINDS: dict[str, Callable[[DeviceLike], MemoryPool]] = {
    "naive": NaiveAllocator,
    "pooled": PooledAllocator,
}

_lock = threading.Lock()
_of_devices: dict[tuple[int, int], MemoryPool] = {}


def allocator(kind: Literal["naive", "pooled"], device: DeviceLike) -> MemoryPool:
    """A new allocator of a device.

    Args:
        kind: ``pooled`` caches freed memory; ``naive`` asks the device each time.
        device: a `Device`, or the pair of its type and number.

    Raises:
        UsageError: there is no such kind, or nothing drives such a device.

    Example:
        >>> from loopwright.runtime.memory import allocator
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> with SimulatedDevice():
        ...     print(type(allocator("naive", (12, 0))).__name__)
        NaiveAllocator
    """
    if kind not in KINDS:
        raise UsageError(
            f"there is no allocator {kind!r}{did_you_mean(kind, KINDS)}; choose from "
            f"{', '.join(KINDS)}"
        )
    return KINDS[kind](device)


def device_allocator(device: DeviceLike) -> MemoryPool:
    """The shared allocator of a device: a pooled one.

    Args:
        device: a `Device`, or the pair of its type and number.

    Raises:
        UsageError: nothing drives such a device.

    Example:
        >>> from loopwright.runtime.memory import device_allocator
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> with SimulatedDevice():
        ...     print(device_allocator((12, 0)) is device_allocator((12, 0)))
        True
    """
    pair = device_pair(device)
    with _lock:
        pool = _of_devices.get(pair)
        # A kind of devices may have been taken away and registered anew.
        if pool is None or pool.api is not device_api(pair[0]):
            pool = _of_devices[pair] = PooledAllocator(pair)
        return pool


def forget_stream(stream: Stream) -> None:
    """Tell all allocators that a stream will be given back; all work in it must be done.

    Example:
        >>> from loopwright.runtime.memory import forget_stream
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> with SimulatedDevice() as api:
        ...     stream = api.create_stream(0)
        ...     api.synchronize(0, stream)
        ...     forget_stream(stream)
        ...     api.free_stream(stream)
    """
    for pool in all_pools():
        if (pool.device_type, pool.device_id) == (stream.device_type, stream.device_id):
            pool.forget_stream(stream)


def free_stream(stream: Stream) -> None:
    """Wait for a stream, tell all allocators, and give it back.

    Use this, and not `DeviceAPI.free_stream` alone, for streams that were used with memory of an
    allocator: it would wait for a stream that is gone.

    Raises:
        RunError: something in it failed.

    Example:
        >>> from loopwright.runtime.memory import free_stream
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> with SimulatedDevice() as api:
        ...     free_stream(api.create_stream(0))
    """
    api = device_api(stream.device_type)
    api.synchronize(stream.device_id, stream)
    forget_stream(stream)
    api.free_stream(stream)
