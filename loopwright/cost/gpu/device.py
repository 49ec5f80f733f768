"""What features and the analytical model know of the device that a task is tuned for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loopwright.target import Target


@dataclass(frozen=True, slots=True)
class Processor:
    """One processor (SM) of an architecture.

    Attributes:
        warps, blocks: most that it holds at a time.
        shared: bytes of its shared memory.
        reserved: bytes of it that the system takes for each block.
        lanes: multiplications with an addition that it makes in a cycle, float32.
    """

    warps: int
    blocks: int
    shared: int
    reserved: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Device:
    """A device; limits are those of its target, rates those of a usual card of its architecture.

    Attributes:
        warp: threads that run in lockstep; 1 where work-groups are tasks of a CPU's cores.
        processors: processors that run blocks.
        processor: what one of them holds.
        max_threads, max_shared, max_local: threads and bytes of shared memory of a block, and bytes
            of local buffers of a thread, at most.
        registers: registers of a processor, and of a block at most; 0 where that is unknown.
        segment: bytes in which memory is read.
        l2: bytes of the cache that all processors share.
        l2_rate: bytes that come from it in a cycle, for one processor.
        memory_rate: bytes that come from memory in a cycle, for all.
        memory_latency, shared_latency, latency: cycles until a load of global memory, of shared
            memory, and an operation is done.
        barrier: cycles of a barrier, and cycles that it costs for each thread.
        launch: cycles from one launch to the next.
    """

    warp: int
    processors: int
    processor: Processor
    max_threads: int
    max_shared: int
    max_local: int
    registers: int
    segment: int
    l2: int
    l2_rate: int
    memory_rate: int
    memory_latency: int
    shared_latency: int
    latency: int
    barrier: tuple[int, int]
    launch: int

    @property
    def lockstep(self) -> bool:
        """Whether threads run in warps, which coalesce accesses and share banks."""
        return self.warp > 1


#: By compute capability; the CUDA C++ programming guide's table of technical specifications, and
#: the CUDA C++ best practices guide's throughput of arithmetic.
PROCESSORS: Mapping[int, Processor] = {
    75: Processor(32, 16, 65536, 0, 64),
    80: Processor(64, 32, 167936, 1024, 64),
    86: Processor(48, 16, 102400, 1024, 128),
    87: Processor(48, 16, 167936, 1024, 128),
    89: Processor(48, 24, 102400, 1024, 128),
    90: Processor(64, 32, 233472, 1024, 128),
    100: Processor(64, 32, 233472, 1024, 128),
    103: Processor(64, 32, 233472, 1024, 128),
    110: Processor(48, 24, 233472, 1024, 128),
    120: Processor(48, 24, 102400, 1024, 128),
    121: Processor(48, 24, 102400, 1024, 128),
}
#: Bytes of the second cache, and bytes of memory in a cycle, of a usual card.
MEMORY: Mapping[int, tuple[int, int]] = {
    75: (4 << 20, 200), 80: (40 << 20, 1100), 86: (6 << 20, 450), 87: (4 << 20, 160),
    89: (72 << 20, 400), 90: (50 << 20, 2000), 100: (126 << 20, 4000), 103: (126 << 20, 4000),
    110: (32 << 20, 170), 120: (96 << 20, 700), 121: (24 << 20, 110),
}  # fmt: skip
#: Taken where the architecture is not known: what most devices of the last years have.
_ANY, _ANY_MEMORY = 80, (4 << 20, 300)
#: A core of a CPU that runs work-groups: one at a time, vectors of 8 lanes, two a cycle.
_CORE = Processor(1, 1, 1 << 20, 0, 16)


def device_of(target: Target) -> Device:
    """The device of a target of the family ``gpu``."""
    options = target.options
    warp = int(options.get("thread_warp_size", 1))
    if warp == 1:
        return _core_device(options)
    found = re.match(r"sm_(\d+)", str(options.get("arch", "")))
    capability = int(found[1]) if found else _ANY
    l2, rate = MEMORY.get(capability, _ANY_MEMORY) if found else _ANY_MEMORY
    return Device(
        warp,
        _option(options, "multi_processor_count", 1),
        PROCESSORS.get(capability, PROCESSORS[_ANY]),
        _option(options, "max_threads_per_block", 256),
        _option(options, "max_shared_memory_per_block", 32768),
        _option(options, "max_local_memory_per_thread", 524288),
        int(options.get("registers_per_block", 0)),
        segment=32,
        l2=l2,
        l2_rate=64,
        memory_rate=rate,
        memory_latency=600,
        shared_latency=25,
        latency=4,
        barrier=(30, 0),
        launch=4000,
    )


def _core_device(options: Mapping[str, Any]) -> Device:
    """The cores of a CPU, each of which runs a work-group as a task, thread by thread."""
    return Device(
        1,
        _option(options, "multi_processor_count", 1),
        _CORE,
        _option(options, "max_threads_per_block", 256),
        _option(options, "max_shared_memory_per_block", 32768),
        _option(options, "max_local_memory_per_thread", 524288),
        registers=0,
        segment=64,
        l2=32 << 20,
        l2_rate=16,
        memory_rate=10,
        memory_latency=8,
        shared_latency=1,
        latency=1,
        barrier=(20, 10),
        launch=20000,
    )


def _option(options: Mapping[str, Any], name: str, default: int) -> int:
    return max(1, int(options.get(name, default)))
