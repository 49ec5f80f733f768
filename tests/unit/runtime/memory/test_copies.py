"""Copies beside other work. The simulated device runs nothing that was not waited for, and whatever
is not ordered in the wrong order: each test of a wait has a twin that fails to wait."""

from __future__ import annotations

import copy
import gc
import pickle
from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.errors import ArgumentError, OutOfMemoryError, RunError, UsageError
from loopwright.runtime.devices.interface import HOST, Memory
from loopwright.runtime.memory import (
    AsyncMemoryCopier,
    DeviceCommunicator,
    MemoryPrefetcher,
    PooledAllocator,
    WorkspacePool,
    device_allocator,
    free_stream,
)
from loopwright.testing.simulated_device import EXT_DEV, SimulatedDevice

DEVICE = (EXT_DEV, 0)


def host(array: np.ndarray) -> Memory:
    return Memory(HOST, 0, array.ctypes.data, array.nbytes, owner=array)


@pytest.mark.parametrize("wait", [True, False])
def test_a_copy_is_done_when_it_was_waited_for(wait: bool, device: SimulatedDevice) -> None:
    data, back = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    memory = device.allocate(0, data.nbytes)
    with AsyncMemoryCopier(DEVICE) as copier:
        copier.copy_async(data, memory)
        copier.copy_async(memory, back)
        if wait:
            copier.sync()
        assert np.array_equal(back, data) == wait
    device.free(memory)


def test_arrays_live_until_they_were_copied(device: SimulatedDevice) -> None:
    memory, back = device.allocate(0, 8), np.zeros(8, np.uint8)
    with AsyncMemoryCopier(DEVICE) as copier:
        copier.copy_async(np.full(8, 5, np.uint8), memory)
        gc.collect()
        copier.copy_async(memory, back)
        copier.sync()
    np.testing.assert_array_equal(back, 5)
    device.free(memory)


def test_arrays_are_let_go_when_they_were_copied(device: SimulatedDevice) -> None:
    memory = device.allocate(0, 8)
    with AsyncMemoryCopier(DEVICE) as copier:
        copier.copy_async(np.full(8, 5, np.uint8), memory)
        copier.sync()
        assert not copier._held
    device.free(memory)


@pytest.mark.parametrize("after_current", [True, False])
def test_a_copy_waits_for_who_makes_its_source(
    after_current: bool, device: SimulatedDevice
) -> None:
    data, back = np.full(8, 5, np.uint8), np.zeros(8, np.uint8)
    memory = device.allocate(0, 8)
    with AsyncMemoryCopier(DEVICE) as copier:
        device.copy(host(data), 0, memory, 0, 8)
        copier.copy_async(memory, back, after_current=after_current)
        copier.sync()
    assert np.array_equal(back, data) == after_current
    device.synchronize(0)
    device.free(memory)


@pytest.mark.parametrize("wait", [True, False])
def test_another_stream_waits_for_copies(wait: bool, device: SimulatedDevice) -> None:
    data, back = np.full(8, 5, np.uint8), np.zeros(8, np.uint8)
    memory, other = device.allocate(0, 8), device.create_stream(0)
    with AsyncMemoryCopier(DEVICE) as copier:
        copier.copy_async(data, memory)
        if wait:
            copier.make_wait(other)
        device.copy(memory, 0, host(back), 0, 8, other)
        device.synchronize(0, other)
        assert np.array_equal(back, data) == wait
    device.free_stream(other)
    device.free(memory)


def test_pooled_memory_is_not_reused_before_its_copy(device: SimulatedDevice) -> None:
    pool, back = PooledAllocator(DEVICE, first_chunk=4096), np.zeros(512, np.uint8)
    data, zeros = np.full(512, 7, np.uint8), np.zeros(512, np.uint8)
    memory = pool.alloc(512)
    device.copy(host(data), 0, memory, 0, 512)
    with AsyncMemoryCopier(DEVICE) as copier:
        copier.copy_async(memory, back)
        pool.free(memory)
        again = pool.alloc(512)
        assert again.address == memory.address
        device.copy(host(zeros), 0, again, 0, 512)
        device.synchronize(0, device.current_stream(0))
        copier.sync()
    np.testing.assert_array_equal(back, data)
    pool.free(again)
    pool.release_cached()


def test_parts_are_copied(device: SimulatedDevice) -> None:
    data, back = np.arange(16, dtype=np.uint8), np.zeros(16, np.uint8)
    memory = device.allocate(0, 8)
    with AsyncMemoryCopier(DEVICE) as copier:
        copier.copy_async(data, memory, 8, source_offset=4)
        copier.copy_async(memory, back, 4, source_offset=2, target_offset=10)
        copier.sync()
    np.testing.assert_array_equal(back[10:14], [6, 7, 8, 9])
    assert not back[:10].any()
    assert not back[14:].any()
    device.free(memory)


def test_copies_that_make_no_sense_are_refused(device: SimulatedDevice) -> None:
    memory, elsewhere = device.allocate(0, 8), device.allocate(1, 8)
    fixed = np.zeros(8, np.uint8)
    fixed.flags.writeable = False
    with AsyncMemoryCopier(DEVICE) as copier:
        with pytest.raises(ArgumentError, match="a copy of 4 bytes into 8; say how many by nbytes"):
            copier.copy_async(np.zeros(4, np.uint8), memory)
        with pytest.raises(ArgumentError, match=r"shape \(4,\) is not contiguous"):
            copier.copy_async(np.zeros(8, np.uint8)[::2], memory, 4)
        with pytest.raises(ArgumentError, match=r"shape \(8,\) is read-only"):
            copier.copy_async(memory, fixed)
        with pytest.raises(ArgumentError, match=r"copy_async: neither .* is on simulated\(0\)"):
            copier.copy_async(np.zeros(8, np.uint8), elsewhere)
    copier.close()
    for use in (copier.sync, copier.record, lambda: copier.copy_async(fixed, memory)):
        with pytest.raises(UsageError, match="the copier is closed; make another one"):
            use()
    device.free(memory)
    device.free(elsewhere)


@pytest.mark.parametrize("wait", [True, False])
def test_a_prefetch_has_arrived_when_it_was_waited_for(wait: bool, device: SimulatedDevice) -> None:
    pool, back = PooledAllocator(DEVICE, first_chunk=4096), np.zeros(100, np.uint8)
    with MemoryPrefetcher(DEVICE, pool) as prefetcher:
        prefetches = [prefetcher.prefetch(np.full(100, n, np.uint8)) for n in (3, 4)]
        gc.collect()
        memory = prefetcher.wait(prefetches[0]) if wait else prefetches[0].memory
        device.copy(memory, 0, host(back), 0, 100)
        device.synchronize(0, device.current_stream(0))
        assert np.array_equal(back, np.full(100, 3)) == wait
        assert device.queued(0) == (2 if wait else 4)  # the other one is still on its way
    if wait:
        pool.free(memory)
    assert pool.allocated_size() == 0
    assert pool.release_cached() == 4096


def test_a_prefetch_waits_for_who_makes_its_source(device: SimulatedDevice) -> None:
    pool, back = PooledAllocator(DEVICE, first_chunk=4096), np.zeros(8, np.uint8)
    source, data = device.allocate(0, 8), np.full(8, 5, np.uint8)
    device.copy(host(data), 0, source, 0, 8)
    with MemoryPrefetcher(DEVICE, pool) as prefetcher:
        memory = prefetcher.wait(prefetcher.prefetch(source))
        device.copy(memory, 0, host(back), 0, 8)
        device.synchronize(0)
    np.testing.assert_array_equal(back, data)
    pool.free(memory)
    pool.release_cached()
    device.free(source)


def test_pooled_memory_is_not_reused_before_it_was_prefetched(device: SimulatedDevice) -> None:
    pool, back = PooledAllocator(DEVICE, first_chunk=4096), np.zeros(512, np.uint8)
    data, zeros = np.full(512, 7, np.uint8), np.zeros(512, np.uint8)
    source, wall = pool.alloc(512), pool.alloc(4096 - 1024)
    device.copy(host(data), 0, source, 0, 512)
    with MemoryPrefetcher(DEVICE, pool) as prefetcher:
        prefetch = prefetcher.prefetch(source)
        pool.free(source)
        again = pool.alloc(512)
        assert again.address == source.address
        device.copy(host(zeros), 0, again, 0, 512)
        device.synchronize(0, device.current_stream(0))
        memory = prefetcher.wait(prefetch)
        device.copy(memory, 0, host(back), 0, 512)
        device.synchronize(0)
    np.testing.assert_array_equal(back, data)
    for block in (memory, again, wall):
        pool.free(block)
    pool.release_cached()


def test_a_prefetch_is_waited_for_once(device: SimulatedDevice) -> None:
    pool = PooledAllocator(DEVICE, first_chunk=4096)
    with MemoryPrefetcher(DEVICE, pool) as prefetcher:
        prefetch = prefetcher.prefetch(np.zeros(8))
        pool.free(prefetcher.wait(prefetch))
        with pytest.raises(ArgumentError, match="was waited for before, or is of another"):
            prefetcher.wait(prefetch)
    prefetcher.close()
    with pytest.raises(UsageError, match="the prefetcher is closed"):
        prefetcher.prefetch(np.zeros(8))
    pool.release_cached()


def test_a_prefetch_that_fails_leaves_nothing(device: SimulatedDevice) -> None:
    pool = PooledAllocator(DEVICE, first_chunk=4096)
    with MemoryPrefetcher(DEVICE, pool) as prefetcher:
        with pytest.raises(OutOfMemoryError, match="9000000 bytes were asked"):
            prefetcher.prefetch(np.zeros(9_000_000, np.uint8))
        with pytest.raises(ArgumentError, match="is not contiguous"):
            prefetcher.prefetch(np.zeros((4, 4)).T)
        copy, device.copy = device.copy, broken
        with pytest.raises(RunError, match="refused"):
            prefetcher.prefetch(np.zeros(8))
        device.copy = copy
        assert pool.allocated_size() == 0
    pool.release_cached()


def broken(*_: object) -> None:
    raise RunError("refused")


def test_arrays_of_both_kinds_are_copied_by_their_memory(device: SimulatedDevice) -> None:
    data = lw.nd.array(np.arange(4, dtype=np.float32))
    there, back = lw.nd.empty((4,), device="ext_dev:0"), lw.nd.empty((4,))
    with AsyncMemoryCopier(DEVICE) as copier:
        copier.copy_async(data, there)
        copier.copy_async(there, back)
        copier.sync()
    assert back.numpy().tolist() == [0, 1, 2, 3]
    with DeviceCommunicator([DEVICE]) as communicator:
        assert communicator.copy(lw.nd.array(np.full(4, 7, np.float32)), there) == "host"
    assert there.numpy().tolist() == [7, 7, 7, 7]
    with MemoryPrefetcher(DEVICE) as prefetcher:
        memory = prefetcher.wait(prefetcher.prefetch(data))
        device_allocator(DEVICE).free(memory)
    del there
    gc.collect()
    device_allocator(DEVICE).release_cached()


@pytest.mark.parametrize("wrong", [[1, 2], None, b"text", 3])
def test_what_is_no_array_is_refused(wrong: object, device: SimulatedDevice) -> None:
    memory = device.allocate(0, 8)
    with AsyncMemoryCopier(DEVICE) as copier:
        for sides in ((wrong, memory), (memory, wrong)):
            with pytest.raises(ArgumentError, match="expected an array of NumPy, an NDArray or"):
                copier.copy_async(*sides)  # type: ignore[arg-type]
    read_only = np.zeros(8, np.uint8)
    read_only.flags.writeable = False
    with AsyncMemoryCopier(DEVICE) as copier, pytest.raises(ArgumentError, match="read-only"):
        copier.copy_async(memory, lw.runtime.from_dlpack(read_only))
    device.free(memory)


def test_memory_of_arrays_that_are_copied_goes_to_others_only_behind_the_copy(
    device: SimulatedDevice,
) -> None:
    other = device.create_stream(0)
    source = lw.nd.array(np.full(64, 5, np.float32), device="ext_dev:0")
    target = lw.nd.empty((64,), device="ext_dev:0")
    device.set_stream(0, other)
    target.copyfrom(source)
    device.set_stream(0, None)
    address = source.data
    del source
    gc.collect()
    later = lw.nd.empty((64,), device="ext_dev:0")
    assert later.data == address
    later.copyfrom(np.full(64, 9, np.float32))
    device.synchronize(0)
    assert target.numpy().tolist() == [5] * 64
    del later, target
    gc.collect()
    free_stream(other)
    device_allocator(DEVICE).release_cached()


def test_devices_that_are_not_there_are_refused_at_once(device: SimulatedDevice) -> None:
    for make in (AsyncMemoryCopier, MemoryPrefetcher, PooledAllocator, device_allocator):
        with pytest.raises(UsageError, match=r"simulated\(5\) cannot be used: there is no such"):
            make((EXT_DEV, 5))
        with pytest.raises(UsageError, match="expected a Device, or the pair"):
            make("ext_dev:0")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"simulated\(7\) cannot be used"):
        DeviceCommunicator([DEVICE, (EXT_DEV, 7)])
    if not lw.cuda().exist:
        with pytest.raises(UsageError, match=r"cuda\(0\) cannot be used: "):
            AsyncMemoryCopier(lw.cuda())


def test_sizes_that_are_no_whole_numbers_leave_a_pool_as_it_was(device: SimulatedDevice) -> None:
    pool = PooledAllocator(DEVICE, first_chunk=4096)
    for ask in (pool.alloc, WorkspacePool(DEVICE, pool).alloc):
        for nbytes in (1.5, "8", None):
            with pytest.raises(ArgumentError, match="pass a whole number for each"):
                ask(nbytes)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="choose a whole number, at least 1"):
        PooledAllocator(DEVICE, first_chunk=1.5)  # type: ignore[arg-type]
    assert pool.statistics().reserved_bytes == 0


def test_borrowed_memory_goes_back_only_behind_the_work_that_uses_it(
    device: SimulatedDevice,
) -> None:
    other = device.create_stream(0)
    lent = lw.nd.array(np.full(64, 5, np.float32), device="ext_dev:0")
    borrowed, address = lw.runtime.from_dlpack(lent.to_dlpack()), lent.data
    target = lw.nd.empty((64,), device="ext_dev:0")
    device.set_stream(0, other)
    target.copyfrom(borrowed)
    device.set_stream(0, None)
    del lent, borrowed
    gc.collect()
    later = lw.nd.array(np.full(64, 9, np.float32), device="ext_dev:0")
    assert later.data == address
    assert target.numpy().tolist() == [5] * 64
    del later, target
    gc.collect()
    free_stream(other)
    device_allocator(DEVICE).release_cached()


def test_arrays_of_devices_are_copied_and_pickled_by_their_elements(
    device: SimulatedDevice,
) -> None:
    a = lw.nd.array(np.arange(3, dtype=np.float32), device="ext_dev:1")
    for b in (pickle.loads(pickle.dumps(a)), copy.deepcopy(a)):
        assert (str(b.device), b.dtype, b.numpy().tolist()) == ("ext_dev(1)", "float32", [0, 1, 2])
        b.copyfrom([7, 7, 7])
    assert a.numpy().tolist() == [0, 1, 2]
    del a, b
    gc.collect()
    device_allocator((EXT_DEV, 1)).release_cached()


class Textures(SimulatedDevice):
    """A device with memory of a second scope."""

    def allocate(
        self, device_id: int, nbytes: int, alignment: int = 256, scope: str = "global"
    ) -> Memory:
        """Memory of either scope."""
        if scope != "texture":
            return super().allocate(device_id, nbytes, alignment, scope)
        return replace(super().allocate(device_id, nbytes, alignment), scope=scope)


def test_arrays_in_memory_of_another_scope() -> None:
    with Textures() as device:
        a = lw.nd.array([1.0, 2.0], "float32", "ext_dev", mem_scope="texture")
        assert (a.mem_scope, a.numpy().tolist()) == ("texture", [1, 2])
        assert device_allocator(DEVICE).statistics().allocations == 0
        b = lw.nd.array([3.0, 4.0], "float32").copyto("ext_dev", "texture")
        assert (b.mem_scope, b.CreateView((1,)).mem_scope) == ("texture", "texture")
        assert a.copyto(b, "texture").numpy().tolist() == [1, 2]
        with pytest.raises(ArgumentError, match="lies in memory of scope 'texture', not 'global'"):
            a.copyto(b, "global")
        del a, b
        gc.collect()
        assert device.used_bytes(0) == 0
