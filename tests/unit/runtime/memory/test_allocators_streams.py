"""Blocks that are used in several streams are given again when all of these are done."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright.errors import OutOfMemoryError
from loopwright.runtime.devices.interface import Memory
from loopwright.runtime.memory import (
    MemoryPool,
    PooledAllocator,
    forget_stream,
    free_stream,
    note_use,
)
from loopwright.testing.simulated_device import SimulatedDevice
from tests.unit.runtime.memory.pools import PAGE, free_all, host, pooled


def reuse_on_another_stream(device: SimulatedDevice, pool: MemoryPool) -> np.ndarray:
    """Read a block in one stream, free it, and write it in another one, which runs first."""
    data, zeros, back = (np.full(512, n, np.uint8) for n in (7, 0, 0))
    other = device.create_stream(0)
    memory = pool.alloc(512)
    device.copy(host(data), 0, memory, 0, 512)
    device.synchronize(0)
    device.copy(memory, 0, host(back), 0, 512)
    pool.free(memory)
    again = pool.alloc(512, stream=other)
    assert again.address == memory.address
    device.copy(host(zeros), 0, again, 0, 512, other)
    device.synchronize(0, other)
    device.synchronize(0)
    pool.free(again, other)
    free_stream(other)
    pool.release_cached()
    return back


def test_another_stream_waits_for_the_one_that_used_a_block(device: SimulatedDevice) -> None:
    np.testing.assert_array_equal(reuse_on_another_stream(device, pooled()), 7)


def test_without_the_wait_the_block_is_overwritten(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "sync_stream_from_to", lambda *_: None)
    assert not (reuse_on_another_stream(device, pooled()) == 7).any()


def test_the_stream_that_used_a_block_gets_it_without_a_wait(device: SimulatedDevice) -> None:
    pool, other = pooled(), device.create_stream(0)
    first, wall = pool.alloc(512), pool.alloc(256)
    second, wall_too = pool.alloc(512, stream=other), pool.alloc(PAGE - 1280)
    pool.free(first)
    pool.free(second, other)
    again = pool.alloc(512, stream=other)
    assert again.address == second.address
    assert device.calls["sync_stream_from_to"] == 0
    free_all(pool, wall, wall_too, again)
    free_stream(other)


def test_blocks_that_join_are_waited_for_in_all_their_streams(device: SimulatedDevice) -> None:
    data, zeros = np.full(512, 7, np.uint8), np.zeros(1024, np.uint8)
    backs = [np.zeros(512, np.uint8) for _ in range(2)]
    pool, streams = pooled(), [device.create_stream(0) for _ in range(3)]
    blocks = [pool.alloc(512, stream=stream) for stream in streams[:2]]
    wall = pool.alloc(PAGE - 1024)
    for memory, stream in zip(blocks, streams, strict=False):
        device.copy(host(data), 0, memory, 0, 512, stream)
    device.synchronize(0)
    for memory, stream, back in zip(blocks, streams, backs, strict=False):
        device.copy(memory, 0, host(back), 0, 512, stream)
        pool.free(memory, stream)
    both = pool.alloc(1024, stream=streams[2])
    assert both.address == blocks[0].address
    device.copy(host(zeros), 0, both, 0, 1024, streams[2])
    device.synchronize(0, streams[2])
    device.synchronize(0)
    np.testing.assert_array_equal(backs, 7)
    free_all(pool, wall, both)
    for stream in streams:
        free_stream(stream)


def test_the_stream_in_which_a_block_is_freed_is_waited_for(device: SimulatedDevice) -> None:
    data, zeros, back = (np.full(512, n, np.uint8) for n in (7, 0, 0))
    pool, other = pooled(), device.create_stream(0)
    memory = pool.alloc(512)
    device.copy(host(data), 0, memory, 0, 512)
    device.synchronize(0)
    device.copy(memory, 0, host(back), 0, 512, other)
    pool.free(memory, other)
    again = pool.alloc(512)
    device.copy(host(zeros), 0, again, 0, 512)
    device.synchronize(0, device.current_stream(0))
    device.synchronize(0)
    np.testing.assert_array_equal(back, data)
    free_stream(other)
    free_all(pool, again)


def test_a_stream_is_done_before_allocators_forget_it(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, other, queued = pooled(), device.create_stream(0), []
    memory = pool.alloc(512, stream=other)
    device.copy(host(data := np.zeros(512, np.uint8)), 0, memory, 0, 512, other)
    monkeypatch.setattr(
        PooledAllocator, "forget_stream", lambda *_: queued.append(device.queued(0))
    )
    free_stream(other)
    assert queued
    assert not any(queued)
    assert not data.any()
    free_all(pool, memory)


def test_a_device_that_frees_when_work_is_done_is_waited_for(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, allocate, data = pooled(), device.allocate, np.zeros(512, np.uint8)

    def full_until_idle(*args: int) -> Memory:
        if device.queued(0):
            raise OutOfMemoryError("full")
        return allocate(*args)

    first = pool.alloc(512)
    device.copy(host(data), 0, first, 0, 512)
    monkeypatch.setattr(device, "allocate", full_until_idle)
    blocks = [pool.alloc(PAGE), pool.alloc(1 << 16)]
    free_all(pool, first, *blocks)


@pytest.mark.parametrize("noted", [True, False])
def test_a_use_in_another_stream_is_waited_for_where_it_was_noted(
    noted: bool, device: SimulatedDevice
) -> None:
    data, zeros, back = (np.full(512, n, np.uint8) for n in (7, 0, 0))
    pool, other = pooled(), device.create_stream(0)
    memory = pool.alloc(512)
    device.copy(host(data), 0, memory, 0, 512)
    device.sync_stream_from_to(0, device.current_stream(0), other)
    device.copy(memory, 0, host(back), 0, 512, other)
    if noted:
        note_use(memory.part(0, 100).part(0, 10), other)
    pool.free(memory)
    again = pool.alloc(512)
    device.copy(host(zeros), 0, again, 0, 512)
    device.synchronize(0, device.current_stream(0))
    device.synchronize(0)
    assert np.array_equal(back, data) == noted
    free_stream(other)
    free_all(pool, again)


def test_streams_that_are_gone_are_not_waited_for(device: SimulatedDevice) -> None:
    pool, other = pooled(), device.create_stream(0)
    memory, live = pool.alloc(512, stream=other), pool.alloc(512, stream=other)
    pool.free(memory)
    free_stream(other)
    again = pool.alloc(512)
    pool.free(live)
    last = pool.alloc(512)
    assert {again.address, last.address} == {memory.address, live.address}
    forget_stream(device.current_stream(1))
    free_all(pool, again, last)
