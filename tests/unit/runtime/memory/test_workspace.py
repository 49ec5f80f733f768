"""Workspaces of kernels: lent to threads, kept by them for the next call."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright.errors import ArgumentError, OutOfMemoryError
from loopwright.runtime.devices.interface import Memory
from loopwright.runtime.memory import (
    NaiveAllocator,
    PooledAllocator,
    WorkspacePool,
    free_stream,
    workspace_pool,
)
from loopwright.runtime.memory.workspace import PAGE
from loopwright.testing.simulated_device import EXT_DEV, SimulatedDevice

DEVICE = (EXT_DEV, 0)


@pytest.fixture
def pool(device: SimulatedDevice) -> Iterator[WorkspacePool]:
    allocator = PooledAllocator(DEVICE, first_chunk=1 << 16)
    made = WorkspacePool(DEVICE, allocator)
    yield made
    made.release_cached()
    allocator.release_cached()


def test_calls_in_turn_use_the_same_memory(pool: WorkspacePool) -> None:
    seen = []
    for _ in range(10):
        with pool.lend(5000, 100, 0) as memories:
            seen.append([memory.address for memory in memories])
            assert [memory.nbytes for memory in memories] == [5000, 100, 0]
    assert seen == seen[:1] * 10
    assert pool.allocator.statistics().allocations == 3
    assert pool.allocator.allocated_size() == 4 * PAGE


def test_the_smallest_that_fits_is_lent_and_the_last_of_a_size_first(pool: WorkspacePool) -> None:
    sizes = [4 * PAGE, PAGE, 2 * PAGE, PAGE]
    memories = [pool.alloc(n) for n in sizes]
    for memory in memories:
        pool.free(memory)
    again = [pool.alloc(n) for n in (PAGE, PAGE, PAGE, PAGE)]
    assert [m.address for m in again] == [memories[i].address for i in (3, 1, 2, 0)]
    for memory in again:
        pool.free(memory)


def test_what_is_too_small_does_not_pile_up(pool: WorkspacePool) -> None:
    for pages in range(1, 10):
        pool.free(pool.alloc(pages * PAGE))
    assert pool.allocator.allocated_size() == 9 * PAGE


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 20000), st.integers(0, 9)), max_size=40))
def test_any_order(steps: list[tuple[int, int]]) -> None:
    with SimulatedDevice():
        allocator = PooledAllocator(DEVICE, first_chunk=1 << 16)
        pool, held = WorkspacePool(DEVICE, allocator), []
        for nbytes, which in steps:
            if which < len(held):
                pool.free(held.pop(which))
            held.append(pool.alloc(nbytes))
            spans = sorted((m.address, m.address + m.nbytes) for m in held if m.nbytes)
            assert all(a[1] <= b[0] for a, b in pairwise(spans))
        for memory in held:
            pool.free(memory)
        pool.release_cached()
        assert allocator.allocated_size() == 0
        allocator.release_cached()


def test_streams_have_workspaces_of_their_own(pool: WorkspacePool, device: SimulatedDevice) -> None:
    other = device.create_stream(0)
    first = pool.alloc(100)
    pool.free(first)
    second = pool.alloc(100, other)
    assert second.address != first.address
    pool.free(second)
    device.set_stream(0, other)
    third = pool.alloc(100)
    assert third.address == second.address
    pool.free(third)
    device.set_stream(0, None)
    free_stream(other)


def test_threads_have_workspaces_of_their_own_and_leave_none(pool: WorkspacePool) -> None:
    mine, theirs = pool.alloc(100), []
    pool.free(mine)

    def work() -> None:
        kept = pool.alloc(100)
        pool.free(pool.alloc(100))
        theirs.append(kept)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert theirs[0].address != mine.address
    assert pool.allocator.allocated_size() == PAGE
    with pytest.raises(ArgumentError, match="is no workspace that this thread holds"):
        pool.free(theirs[0])


def test_a_pool_that_nobody_holds_leaves_nothing(device: SimulatedDevice) -> None:
    allocator = PooledAllocator(DEVICE, first_chunk=1 << 16)
    pool = WorkspacePool(DEVICE, allocator)
    pool.free(pool.alloc(100))
    assert allocator.allocated_size() == PAGE
    del pool
    gc.collect()
    assert allocator.allocated_size() == 0
    allocator.release_cached()


def test_wrong_frees_and_sizes_are_refused(pool: WorkspacePool) -> None:
    memory = pool.alloc(100)
    pool.free(memory)
    for wrong in (memory, Memory(EXT_DEV, 0, memory.handle, 100)):
        with pytest.raises(ArgumentError, match="it is given back once, by the thread that"):
            pool.free(wrong)
    with pytest.raises(ArgumentError, match="cannot allocate -1 bytes; the number is negative"):
        pool.alloc(-1)


def test_a_block_of_code_gives_back_what_it_got_when_memory_is_out(pool: WorkspacePool) -> None:
    with pytest.raises(OutOfMemoryError), pool.lend(100, 1 << 21):
        pass
    pool.release_cached()
    assert pool.allocator.allocated_size() == 0


@pytest.mark.parametrize("kind", [PooledAllocator, NaiveAllocator])
def test_kept_workspaces_go_before_memory_is_out(
    kind: type[PooledAllocator | NaiveAllocator], device: SimulatedDevice
) -> None:
    allocator = kind(DEVICE)
    pool = WorkspacePool(DEVICE, allocator)
    pool.free(pool.alloc(1 << 19))
    assert allocator.allocated_size() == 1 << 19
    memory = allocator.alloc(1 << 20)
    allocator.free(memory)
    allocator.release_cached()


def test_kept_workspaces_serve_a_request_where_the_device_has_nothing_more(
    device: SimulatedDevice,
) -> None:
    allocator = PooledAllocator(DEVICE, first_chunk=1 << 20)
    pool, held = WorkspacePool(DEVICE, allocator), allocator.alloc(1 << 19)
    pool.free(pool.alloc(1 << 19))
    memory = allocator.alloc(1 << 18)  # the chunk is full, and cannot be released
    allocator.free(memory)
    allocator.free(held)
    allocator.release_cached()


def test_a_device_has_one_pool(device: SimulatedDevice) -> None:
    old = workspace_pool(DEVICE)
    assert workspace_pool(DEVICE) is old
    device.__exit__(None)
    with SimulatedDevice():
        assert workspace_pool(DEVICE) is not old
    device.__enter__()
