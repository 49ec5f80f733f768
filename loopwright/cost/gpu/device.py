"""Properties of a GPU that features and the analytical model use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from loopwright.cost.symbolic.symbols import Number, at_most, ceil_div, least, most, where
from loopwright.target import Target


@dataclass(frozen=True, slots=True)
class Processor:
    warps: int  # most that it holds at a time
    blocks: int  # most that it holds at a time
    shared: int  # bytes of its shared memory
    reserved: int  # bytes of it that the system takes for each block
    lanes: int  # float32 multiply-adds per cycle


@dataclass(frozen=True, slots=True)
class GpuProperties:
    """A device, with limits of its target and rates of a usual card of its architecture."""

    warp: int  # threads that run in lockstep; 1 where work-groups are tasks of a CPU's cores
    processors: int
    processor: Processor
    max_threads: int  # of a block
    max_shared: int  # bytes of a block
    max_local: int  # bytes of local buffers of a thread
    registers: int  # of a processor, and of a block at most; 0 where unknown
    segment: int  # bytes in which memory is read
    l2: int  # bytes of the cache that all processors share
    l2_rate: int  # bytes per cycle, for one processor
    memory_rate: int  # bytes per cycle, for all processors
    memory_latency: int  # cycles of a load of global memory
    shared_latency: int  # cycles of a load of shared memory
    latency: int  # cycles of an operation
    barrier: tuple[int, int]  # cycles of a barrier, and more cycles for each thread
    launch: int  # cycles from one launch to the next

    @property
    def lockstep(self) -> bool:
        """Whether threads run in warps, which coalesce accesses and share banks."""
        return self.warp > 1


#: Processors by compute capability, from the CUDA C++ programming guide's table of technical
#: specifications and the CUDA C++ best practices guide's throughput of arithmetic.
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


def device_of(target: Target) -> GpuProperties:
    options = target.options
    warp = int(options.get("thread_warp_size", 1))
    arch = re.match(r"sm_(\d+)", str(options.get("arch", "")))
    capability = int(arch[1]) if arch else _ANY
    l2, rate = MEMORY.get(capability, _ANY_MEMORY) if arch else _ANY_MEMORY
    device = GpuProperties(
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
    if device.lockstep:
        return device
    # Cores of a CPU: each runs a work-group as a task, thread by thread.
    return replace(
        device,
        processor=_CORE,
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


#: Registers that a thread can have; their units for a warp, and warps of an allocation.
MOST_REGISTERS, _REGISTER_UNIT, _WARP_UNIT = 255, 256, 4
_SHARED_UNIT = 128  #: allocation unit of shared memory, in bytes
_USUAL = 32  #: free registers of a thread where the device is unknown: 65536 for 2048 threads


# As in NVIDIA's occupancy calculator: registers are given to warps in units, warps of a block in
# groups of four, shared memory in units too.


def blocks_per_processor(
    device: GpuProperties, threads: Number, registers: Number, shared: Number
) -> Number:
    """Blocks that a processor holds, of ``threads`` threads with ``registers`` registers each, and
    of ``shared`` bytes of shared memory; 0 where it holds none."""
    p = device.processor
    warps = warps_of(device, threads)
    out = least(p.blocks, p.warps // warps) if device.lockstep else p.blocks
    if device.registers:
        each = ceil_div(most(registers, 1) * device.warp, _REGISTER_UNIT) * _REGISTER_UNIT
        out = least(out, device.registers // each // _WARP_UNIT * _WARP_UNIT // warps)
        out = where(at_most(registers, MOST_REGISTERS), out, 0)
    taken = ceil_div(shared + p.reserved, _SHARED_UNIT) * _SHARED_UNIT
    return least(out, p.shared // most(taken, 1))


def warps_of(device: GpuProperties, threads: Number) -> Number:
    return ceil_div(threads, device.warp)


def register_cap(device: GpuProperties, threads: Number) -> Number:
    if not device.registers:
        return MOST_REGISTERS
    warps = ceil_div(warps_of(device, threads), _WARP_UNIT) * _WARP_UNIT
    unit = _REGISTER_UNIT // device.warp
    each = device.registers // (warps * device.warp) // unit * unit
    return least(MOST_REGISTERS, each)


def free_registers(device: GpuProperties, threads: Number) -> Number:
    """Registers of a thread that cost no occupancy: more leave fewer blocks on a processor."""
    if not device.registers:
        return _USUAL
    warps = warps_of(device, threads)
    blocks = most(least(device.processor.blocks, device.processor.warps // warps), 1)
    return device.registers // (blocks * warps * device.warp)
