"""Allocators on the simulated device, which notices what is wrong with their calls."""

from __future__ import annotations

import random
import threading
from itertools import pairwise

import numpy as np
import pytest

from loopwright.errors import ArgumentError, OutOfMemoryError, RunError, UsageError
from loopwright.runtime.devices.interface import Memory
from loopwright.runtime.memory import PooledAllocator, allocator, device_allocator
from loopwright.testing.simulated_device import EXT_DEV, SimulatedDevice
from tests.unit.runtime.memory.pools import PAGE, free_all, host, pooled, span


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0), (0, 2, 1)])
def test_blocks_that_are_freed_join_both_neighbours(
    order: tuple[int, ...], device: SimulatedDevice
) -> None:
    pool = pooled()
    blocks = [pool.alloc(1024) for _ in range(3)]
    for i in order:
        pool.free(blocks[i])
    now = pool.statistics()
    assert (now.largest_free, now.cached_bytes, now.fragmentation) == (PAGE, PAGE, 0)
    free_all(pool, pool.alloc(PAGE))
    assert device.calls["allocate"] == 1


def test_blocks_that_are_freed_out_of_order_are_not_given_twice(device: SimulatedDevice) -> None:
    pool = pooled()
    first, second, third = (pool.alloc(1024) for _ in range(3))
    pool.free(first)
    new = pool.alloc(1024)
    assert new.address == first.address
    pool.free(third)
    newer = pool.alloc(2048)
    spans = [set(span(memory)) for memory in (second, new, newer)]
    assert sum(map(len, spans)) == len(set().union(*spans))
    free_all(pool, newer, second, new)


def test_live_blocks_stay_where_they_are_when_the_pool_grows(device: SimulatedDevice) -> None:
    pool = pooled()
    data, back = np.arange(3000, dtype=np.uint8), np.zeros(3000, np.uint8)
    memory = pool.alloc(3000)
    device.copy(host(data), 0, memory, 0, 3000)
    others = [pool.alloc(3000) for _ in range(20)]
    device.copy(memory, 0, host(back), 0, 3000)
    device.synchronize(0)
    np.testing.assert_array_equal(back, data)
    assert pool.statistics().device_allocations < 8
    free_all(pool, memory, *others)


def test_chunks_double_up_to_a_bound_and_larger_requests_are_direct(
    device: SimulatedDevice,
) -> None:
    pool = pooled(largest_chunk=4 * PAGE)
    reserved, blocks = [], []
    for _ in range(5):
        blocks.append(pool.alloc(PAGE))
        reserved.append(pool.statistics().reserved_bytes // PAGE)
    assert reserved == [1, 3, 3, 7, 7]
    direct = pool.alloc(5 * PAGE)
    assert pool.statistics().reserved_bytes == 12 * PAGE
    pool.free(direct)
    assert pool.statistics().reserved_bytes == 7 * PAGE
    free_all(pool, *blocks)
    assert pool.statistics().reserved_bytes == 0


def test_fragmentation_is_told(device: SimulatedDevice) -> None:
    pool = pooled()
    blocks = [pool.alloc(256) for _ in range(16)]
    for memory in blocks[::2]:
        pool.free(memory)
    now = pool.statistics()
    assert (now.cached_bytes, now.largest_free) == (8 * 256, 256)
    assert now.fragmentation == pytest.approx(7 / 8)
    large = pool.alloc(512)  # no free block has so much
    assert pool.statistics().device_allocations == 2
    free_all(pool, large, *blocks[1::2])


def test_the_first_block_that_fits_is_taken(device: SimulatedDevice) -> None:
    pool = pooled()
    first, second, third, fourth = (pool.alloc(n) for n in (512, 256, 1024, 256))
    pool.free(first)
    pool.free(third)
    new = [pool.alloc(n) for n in (600, 200, 256)]
    assert [m.address for m in new] == [third.address, first.address, first.address + 256]
    free_all(pool, second, fourth, *new)


def test_statistics_agree_with_the_device(device: SimulatedDevice) -> None:
    pool = pooled()
    first, second = pool.alloc(100), pool.alloc(300)
    now = pool.statistics()
    assert (now.requested_bytes, now.live_bytes, now.peak_bytes) == (400, 768, 768)
    assert now.reserved_bytes == device.used_bytes(0) == PAGE
    pool.free(first)
    now = pool.statistics()
    assert (now.requested_bytes, now.live_bytes, now.peak_bytes) == (300, 512, 768)
    assert (now.allocations, now.frees) == (2, 1)
    assert pool.allocated_size() == 512
    assert pool.release_cached() == 0
    pool.free(second)
    assert pool.release_cached() == PAGE
    assert device.used_bytes(0) == 0
    assert (now.device_allocations, pool.statistics().device_frees) == (1, 1)


@pytest.mark.parametrize("alignment", [None, 1, 64, 256, 512, 65536])
@pytest.mark.parametrize("kind", ["naive", "pooled"])
def test_alignment(kind: str, alignment: int | None, device: SimulatedDevice) -> None:
    pool = allocator("naive", (EXT_DEV, 0)) if kind == "naive" else pooled()
    blocks = [pool.alloc(nbytes, alignment) for nbytes in (1, 0, 700, 256)]
    assert all(memory.address % max(alignment or 0, 256) == 0 for memory in blocks)
    assert [memory.nbytes for memory in blocks] == [1, 0, 700, 256]
    assert len({memory.address for memory in blocks}) == 4
    free_all(pool, *blocks)


@pytest.mark.parametrize("kind", ["naive", "pooled"])
def test_requests_and_frees_are_checked(kind: str, device: SimulatedDevice) -> None:
    pool = allocator("naive", (EXT_DEV, 0)) if kind == "naive" else pooled()
    with pytest.raises(ArgumentError, match=r"simulated\(0\): cannot allocate -1 bytes"):
        pool.alloc(-1)
    with pytest.raises(ArgumentError, match="the alignment 48 is not a power of two"):
        pool.alloc(1, 48)
    memory = pool.alloc(100)
    for wrong in (memory.part(0, 10), Memory(EXT_DEV, 0, memory.handle, 100)):
        with pytest.raises(ArgumentError, match=r"free: Memory.*(was not allocated|is not live)"):
            pool.free(wrong)
    pool.free(memory)
    other = pool.alloc(100)  # perhaps the same bytes
    with pytest.raises(ArgumentError, match=r"was freed before|is not live"):
        pool.free(memory)
    free_all(pool, other)


def test_memory_of_another_pool_is_refused(device: SimulatedDevice) -> None:
    pool, other = pooled(), pooled()
    memory = pool.alloc(8)
    with pytest.raises(ArgumentError, match="was not allocated by this pool"):
        other.free(memory)
    free_all(pool, memory)


def test_caches_are_released_before_memory_is_out(device: SimulatedDevice) -> None:
    pool = pooled()
    blocks = [pool.alloc(1 << 14) for _ in range(40)]
    for memory in blocks:
        pool.free(memory)
    assert pool.statistics().cached_bytes > 1 << 19
    free_all(pool, pool.alloc(1 << 20))


def test_the_error_says_where_the_memory_is(device: SimulatedDevice) -> None:
    pool = pooled(first_chunk=1 << 19)
    held = pool.alloc(1000)
    cached = pool.alloc(1 << 19)
    pool.free(cached)
    with pytest.raises(OutOfMemoryError) as error:
        pool.alloc(700_000)
    assert str(error.value) == (
        "simulated(0): 700000 bytes were asked; 1024 are live, 523264 are cached after 524288 were "
        "released, the largest free block has 523264; free arrays, or use a smaller problem"
    )
    free_all(pool, held)


def test_a_chunk_that_is_too_large_is_made_as_large_as_needed(device: SimulatedDevice) -> None:
    pool = pooled(first_chunk=1 << 24)
    memory = pool.alloc(1000)
    assert pool.statistics().reserved_bytes == 1024
    free_all(pool, memory)


def test_memory_of_a_naive_allocator_is_out(device: SimulatedDevice) -> None:
    pool = allocator("naive", (EXT_DEV, 0))
    held = pool.alloc(1000)
    with pytest.raises(OutOfMemoryError, match="2000000 bytes were asked; 1000 are live, none"):
        pool.alloc(2_000_000)
    assert (pool.statistics().peak_bytes, pool.allocated_size()) == (1000, 1000)
    free_all(pool, held)
    assert pool.allocated_size() == 0


def test_a_lost_device_is_told_and_leaves_the_pool_in_order(device: SimulatedDevice) -> None:
    pool = pooled()
    memory = pool.alloc(100)
    device.lost_at = device.calls.total() + 1
    with pytest.raises(RunError, match="the device is lost"):
        pool.alloc(1 << 15)
    with pytest.raises(RunError, match="the device is lost"):
        pool.free(memory)
    device.lost_at = None
    assert pool.statistics().live_bytes == 256
    free_all(pool, memory)


# Threads and finalizers.


def test_threads_get_memory_of_their_own(device: SimulatedDevice) -> None:
    pool, held, wrong = pooled(), [], []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        mine: list[Memory] = []
        for _ in range(300):
            if mine and rng.random() < 0.5:
                pool.free(mine.pop(rng.randrange(len(mine))))
            else:
                mine.append(pool.alloc(rng.randrange(2000)))
            if len(mine) > 20:
                pool.free(mine.pop())
        held.extend(mine)

    def watched(seed: int) -> None:
        try:
            work(seed)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=watched, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    spans = sorted((memory.address, memory.address + memory.nbytes) for memory in held)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    now = pool.statistics()
    assert now.allocations - now.frees == len(held)
    assert now.requested_bytes == sum(memory.nbytes for memory in held)
    free_all(pool, *held)


def test_a_finalizer_may_free_while_the_pool_works(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pooled()
    memory, allocate = pool.alloc(1024), device.allocate

    def collected(*args, **options):
        pool.free(memory)  # as when an array is collected just now
        assert pool._live == 1024
        return allocate(*args, **options)

    monkeypatch.setattr(device, "allocate", collected)
    large = pool.alloc(2 * PAGE)
    assert pool.statistics().live_bytes == 2 * PAGE
    free_all(pool, large)


def test_a_finalizer_may_not_allocate(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pooled()
    monkeypatch.setattr(device, "allocate", lambda *_: pool.alloc(1))
    with pytest.raises(UsageError, match="alloc: called while the pool works; a finalizer may"):
        pool.alloc(1)


# Which allocator.


def test_devices_share_one_allocator_each(device: SimulatedDevice) -> None:
    class Device:
        device_type, device_id = EXT_DEV, 1

    assert device_allocator(Device()) is device_allocator((EXT_DEV, 1))
    assert device_allocator((EXT_DEV, 0)) is not device_allocator((EXT_DEV, 1))


def test_a_device_that_is_registered_anew_has_a_new_allocator() -> None:
    with SimulatedDevice():
        old = device_allocator((EXT_DEV, 0))
    with SimulatedDevice():
        assert device_allocator((EXT_DEV, 0)) is not old


def test_unknown_allocators_and_devices_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no allocator 'poled' \(did you mean 'pooled'\?\)"):
        allocator("poled", (EXT_DEV, 0))
    with pytest.raises(UsageError, match="no backend drives devices of type 99"):
        device_allocator((99, 0))
    with SimulatedDevice(), pytest.raises(ArgumentError, match="a chunk of -1 bytes holds nothing"):
        PooledAllocator((EXT_DEV, 0), largest_chunk=-1)
