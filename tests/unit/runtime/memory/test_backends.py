"""The allocator, workspaces and copies on the devices that are here."""

from __future__ import annotations

import random

import numpy as np
import pytest

from loopwright.errors import OutOfMemoryError
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import HOST, Memory, device_api
from loopwright.runtime.memory import (
    AsyncMemoryCopier,
    DeviceCommunicator,
    MemoryPrefetcher,
    PooledAllocator,
    WorkspacePool,
    free_stream,
)
from loopwright.runtime.profiling import CopiedBytes, counted_copies


def host(array: np.ndarray) -> Memory:
    return Memory(HOST, 0, array.ctypes.data, array.nbytes, owner=array)


@pytest.fixture(params=["cpu", "opencl", "cuda"])
def device(request: pytest.FixtureRequest) -> Device:
    device = Device(request.param)
    if not device.exist:
        pytest.skip(f"no {request.param}: {device_api(device.device_type).why_absent()}")
    return device


def test_random_blocks_keep_their_data(device: Device) -> None:
    rng, pool = random.Random(0), PooledAllocator(device, 1 << 14, 1 << 16)
    streams = [device.api.current_stream(0), device.api.create_stream(0)]
    live: list[tuple[Memory, int, np.ndarray]] = []
    reads: list[tuple[np.ndarray, np.ndarray]] = []

    def free(memory: Memory, which: int, data: np.ndarray) -> None:
        back = np.zeros_like(data)
        device.api.copy(memory, 0, host(back), 0, memory.nbytes, streams[which])
        reads.append((back, data))
        pool.free(memory, streams[which])

    for step in range(300):
        which = rng.randrange(2)
        data = np.full(rng.choice([1, 100, 5000, 20000]), step % 250 + 1, np.uint8)
        memory = pool.alloc(data.nbytes, stream=streams[which])
        device.api.copy(host(data), 0, memory, 0, data.nbytes, streams[which])
        live.append((memory, which, data))
        if len(live) > 8:
            free(*live.pop(rng.randrange(len(live))))
    for item in live:
        free(*item)
    device.api.synchronize(0)
    assert len(reads) == 300
    for back, data in reads:
        np.testing.assert_array_equal(back, data)
    free_stream(streams[1])
    now = pool.statistics()
    assert now.device_allocations < 20 < now.allocations
    assert pool.release_cached() == now.reserved_bytes


def test_copies_within_the_host_are_not_counted() -> None:
    source, target = np.arange(8), np.zeros(8, "int64")
    with counted_copies() as copied:
        device_api(HOST).copy(host(source), 0, host(target), 0, target.nbytes)
    assert (target.tolist(), copied) == (source.tolist(), CopiedBytes())


def test_alignment(device: Device) -> None:
    pool = PooledAllocator(device, 1 << 14)
    for alignment in (None, 64, 4096):
        memory = pool.alloc(100, alignment)
        if device.device_type == HOST or device.name == "cuda":  # elsewhere there are no addresses
            assert memory.address % (alignment or pool.alignment) == 0
        pool.free(memory)
    pool.release_cached()


def test_too_much_is_refused(device: Device) -> None:
    pool = PooledAllocator(device)
    with pytest.raises(OutOfMemoryError, match=rf"{device.name}\(0\): {1 << 50} bytes were asked"):
        pool.alloc(1 << 50)
    assert pool.statistics().live_bytes == 0


def test_copies_prefetches_and_workspaces(device: Device) -> None:
    data, back = np.arange(5000, dtype=np.float32), np.zeros(5000, np.float32)
    pool = PooledAllocator(device, 1 << 16)
    workspaces = WorkspacePool(device, pool)
    with MemoryPrefetcher(device, pool) as prefetcher, AsyncMemoryCopier(device) as copier:
        memory = prefetcher.wait(prefetcher.prefetch(data))
        with workspaces.lend(data.nbytes) as (space,):
            copier.copy_async(memory, space)
            copier.copy_async(space, back)
            copier.sync()
    np.testing.assert_array_equal(back, data)
    pool.free(memory)
    workspaces.release_cached()
    assert pool.statistics().live_bytes == 0
    pool.release_cached()


def test_devices_of_different_kinds_exchange_data(device: Device) -> None:
    data, back = np.arange(5000, dtype=np.float32), np.zeros(5000, np.float32)
    memory = device.api.allocate(0, data.nbytes)
    way = "direct" if device.device_type == HOST else "host"
    with DeviceCommunicator([device, (HOST, 0)], 1000) as communicator:
        assert communicator.copy(data, memory) == way
        assert communicator.copy(memory, back) == way
    np.testing.assert_array_equal(back, data)
    device.api.free(memory)
