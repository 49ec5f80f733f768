"""Random use of the pooled allocator against a model: a list of what is live, and nothing else.

The simulated device runs streams in the worst order, and each block is read back in the stream
that used it last, so that bytes which are given out too early show as wrong data.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loopwright.errors import OutOfMemoryError
from loopwright.runtime.devices.interface import HOST, Memory, Stream
from loopwright.runtime.memory import PooledAllocator, free_stream
from loopwright.testing.simulated_device import EXT_DEV, SimulatedDevice

LIMIT = 1 << 16
sizes = st.one_of(st.integers(0, 600), st.integers(0, LIMIT // 4), st.sampled_from([256, 4096]))


def host(array: np.ndarray) -> Memory:
    return Memory(HOST, 0, array.ctypes.data, array.nbytes, owner=array)


def rounded(nbytes: int) -> int:
    """What a block takes."""
    return max(-(-nbytes // 256), 1) * 256


class AllocatorMachine(RuleBasedStateMachine):
    """What a program may do with an allocator, in any order."""

    @initialize(first=st.sampled_from([256, 1000, 4096]), largest=st.sampled_from([4096, 16384]))
    def start(self, first: int, largest: int) -> None:
        self.device = SimulatedDevice(1, LIMIT).__enter__()
        self.pool = PooledAllocator((EXT_DEV, 0), first, largest)
        self.streams = [self.device.current_stream(0)]
        self.live: list[tuple[Memory, Stream, np.ndarray]] = []
        self.reads: list[tuple[np.ndarray, np.ndarray]] = []
        self.counter = self.allocations = self.frees = self.peak = 0

    @rule(nbytes=sizes, alignment=st.sampled_from([None, 64, 256, 1024]), data=st.data())
    def alloc(self, nbytes: int, alignment: int | None, data: Any) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        try:
            memory = self.pool.alloc(nbytes, alignment, stream)
        except OutOfMemoryError:
            assert self.device.used_bytes(0) + rounded(nbytes) > LIMIT
            assert not any(chunk.unused for chunk in self.pool._chunks)
            return
        assert memory.nbytes == nbytes
        assert memory.address % max(alignment or 0, 256) == 0
        self.counter += 1
        pattern = np.full(nbytes, self.counter % 200, np.uint8)
        self.device.copy(host(pattern), 0, memory, 0, nbytes, stream)
        self.live.append((memory, stream, pattern))
        self.allocations += 1
        self.peak = max(self.peak, self.live_bytes())

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free(self, data: Any) -> None:
        position = data.draw(st.integers(0, len(self.live) - 1))
        memory, stream, pattern = self.live.pop(position)
        back = np.zeros_like(pattern)
        self.device.copy(memory, 0, host(back), 0, memory.nbytes, stream)
        self.reads.append((back, pattern))
        self.pool.free(memory, stream)
        self.frees += 1

    @precondition(lambda self: len(self.streams) < 3)
    @rule()
    def new_stream(self) -> None:
        self.streams.append(self.device.create_stream(0))

    @precondition(lambda self: len(self.streams) > 1)
    @rule(position=st.integers(1, 2))
    def end_stream(self, position: int) -> None:
        stream = self.streams.pop(min(position, len(self.streams) - 1))
        free_stream(stream)
        default = self.streams[0]
        self.live = [(m, default if s is stream else s, p) for m, s, p in self.live]

    @rule(data=st.data())
    def wait(self, data: Any) -> None:
        self.device.synchronize(0, data.draw(st.sampled_from([None, *self.streams])))

    @rule()
    def release(self) -> None:
        before = self.device.calls["free"]
        self.pool.release_cached()
        if not self.live:
            assert self.pool.statistics().reserved_bytes == 0
        assert self.device.calls["free"] >= before

    def live_bytes(self) -> int:
        return sum(rounded(memory.nbytes) for memory, *_ in self.live)

    @invariant()
    def live_blocks_are_apart(self) -> None:
        spans = sorted((memory.address, memory.nbytes) for memory, *_ in self.live)
        for (start, nbytes), (after, _) in itertools.pairwise(spans):
            assert start + nbytes <= after

    @invariant()
    def statistics_agree(self) -> None:
        now = self.pool.statistics()
        assert now.requested_bytes == sum(memory.nbytes for memory, *_ in self.live)
        assert now.live_bytes == self.live_bytes()
        assert now.peak_bytes == self.peak
        assert (now.allocations, now.frees) == (self.allocations, self.frees)
        assert now.cached_bytes == now.reserved_bytes - now.live_bytes
        assert now.largest_free <= now.cached_bytes
        assert 0 <= now.fragmentation <= 1
        calls = self.device.calls
        held = now.device_allocations - now.device_frees
        assert held == sum(1 for _ in self.device._book.live()) or calls["allocate"] == 0

    @invariant()
    def neighbours_that_are_free_are_one(self) -> None:
        for chunk in self.pool._chunks:
            blocks = list(chunk.blocks())
            assert sum(block.size for block in blocks) == chunk.memory.nbytes
            assert [b for b in blocks if b.lease is None] == chunk.free
            for one, next_one in itertools.pairwise(blocks):
                assert one.offset + one.size == next_one.offset
                assert one.lease is not None or next_one.lease is not None

    def teardown(self) -> None:
        if not hasattr(self, "device"):
            return
        while self.live:
            memory, stream, pattern = self.live.pop()
            back = np.zeros_like(pattern)
            self.device.copy(memory, 0, host(back), 0, memory.nbytes, stream)
            self.reads.append((back, pattern))
            self.pool.free(memory, stream)
        self.device.synchronize(0)
        for stream in self.streams[1:]:
            free_stream(stream)
        self.pool.release_cached()
        self.device.__exit__(None)
        for back, pattern in self.reads:
            np.testing.assert_array_equal(back, pattern)


TestPooledAllocator = AllocatorMachine.TestCase
TestPooledAllocator.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
