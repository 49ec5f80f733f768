"""Number of blocks that a processor holds, as in NVIDIA's occupancy calculator.

Blocks, warps, registers and shared memory each set a limit. Registers are given to warps in units,
warps of a block in groups of four, shared memory in units too.
"""

from __future__ import annotations

from loopwright.cost.gpu.device import Device
from loopwright.cost.symbolic.symbols import Number, at_most, ceil_div, least, most, where

#: Registers that a thread can have; their units for a warp, and warps of an allocation.
MOST_REGISTERS, _REGISTER_UNIT, _WARP_UNIT = 255, 256, 4
#: Allocation unit of shared memory, in bytes.
_SHARED_UNIT = 128
#: Free registers of a thread where the device is unknown: 65536 for 2048 threads.
_USUAL = 32


def blocks_per_processor(
    device: Device, threads: Number, registers: Number, shared: Number
) -> Number:
    """Number of blocks that a processor holds, given threads of a block, registers of a thread and
    bytes of shared memory of a block; 0 where it holds none.
    """
    p = device.processor
    warps = warps_of(device, threads)
    out = least(p.blocks, p.warps // warps) if device.lockstep else p.blocks
    if device.registers:
        each = ceil_div(most(registers, 1) * device.warp, _REGISTER_UNIT) * _REGISTER_UNIT
        fitting = device.registers // each // _WARP_UNIT * _WARP_UNIT
        out = least(out, fitting // warps)
        out = where(at_most(registers, MOST_REGISTERS), out, 0)
    taken = ceil_div(shared + p.reserved, _SHARED_UNIT) * _SHARED_UNIT
    return least(out, p.shared // most(taken, 1))


def warps_of(device: Device, threads: Number) -> Number:
    return ceil_div(threads, device.warp)


def register_cap(device: Device, threads: Number) -> Number:
    """Registers that a thread of a block of this size can have."""
    if not device.registers:
        return MOST_REGISTERS
    warps = ceil_div(warps_of(device, threads), _WARP_UNIT) * _WARP_UNIT
    unit = _REGISTER_UNIT // device.warp
    each = device.registers // (warps * device.warp) // unit * unit
    return least(MOST_REGISTERS, each)


def free_registers(device: Device, threads: Number) -> Number:
    """Registers of a thread that cost no occupancy: more leave fewer blocks on a processor."""
    if not device.registers:
        return _USUAL
    warps = warps_of(device, threads)
    blocks = most(least(device.processor.blocks, device.processor.warps // warps), 1)
    return device.registers // (blocks * warps * device.warp)
