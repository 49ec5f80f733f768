"""Occupancy against numbers worked out by hand from the rules of NVIDIA's occupancy calculator."""

from __future__ import annotations

import pytest

import loopwright as lw
from loopwright.cost.gpu.device import (
    blocks_per_processor,
    device_of,
    free_registers,
    register_cap,
)

KB = 1024
#: Architecture, threads, registers, bytes of shared memory; blocks of a processor, and what limits.
TABLE = [
    ("sm_80", 256, 32, 0, 8),  # 64 warps / 8
    ("sm_80", 256, 64, 0, 4),  # 65536 / (64 * 32) = 32 warps / 8
    ("sm_80", 256, 65, 0, 3),  # 65 * 32 rounded to 2304: 28 warps / 8
    ("sm_80", 96, 40, 0, 16),  # 51 warps, in fours 48, / 3
    ("sm_80", 32, 16, 0, 32),  # 32 blocks at most
    ("sm_80", 128, 32, 48 * KB, 3),  # 164 KB / (48 + 1) KB
    ("sm_90", 128, 32, 48 * KB, 4),  # 228 KB / (48 + 1) KB
    ("sm_90", 1024, 32, 0, 2),  # 64 warps / 32
    ("sm_90", 1024, 64, 0, 1),  # 32 warps / 32
    ("sm_90", 1024, 65, 0, 0),  # 28 warps: none
    ("sm_90", 256, 128, 100 * KB, 2),  # 16 warps / 8, and 228 / 101
    ("sm_90", 128, 255, 0, 2),  # 255 * 32 rounded to 8192: 8 warps / 4
    ("sm_90", 33, 32, 0, 32),  # two warps each, 32 blocks at most
    ("sm_90", 128, 32, 227 * KB, 1),  # all of it
    ("sm_86", 256, 32, 0, 6),  # 48 warps / 8
    ("sm_86", 64, 32, 0, 16),  # 16 blocks at most
    ("sm_75", 256, 32, 0, 4),  # 32 warps / 8
    ("sm_75", 128, 32, 32 * KB, 2),  # 64 KB / 32 KB, none reserved
]


@pytest.mark.parametrize(("arch", "threads", "registers", "shared", "blocks"), TABLE)
def test_blocks_of_a_processor(
    arch: str, threads: int, registers: int, shared: int, blocks: int
) -> None:
    device = device_of(lw.Target(f"cuda -arch={arch}"))
    assert blocks_per_processor(device, threads, registers, shared) == blocks


@pytest.mark.parametrize(
    ("threads", "registers"), [(32, 255), (256, 255), (257, 168), (512, 128), (1024, 64)]
)
def test_registers_that_a_block_leaves_a_thread(threads: int, registers: int) -> None:
    device = device_of(lw.Target("cuda -arch=sm_90"))
    assert register_cap(device, threads) == registers


def test_a_core_runs_one_group_and_has_no_warps() -> None:
    device = device_of(lw.Target("opencl"))
    assert not device.lockstep
    assert blocks_per_processor(device, 256, 32, 16 * KB) == 1


def test_an_opencl_device_with_warps_is_a_gpu() -> None:
    device = device_of(lw.Target("opencl -thread_warp_size=32 -multi_processor_count=40"))
    assert device.lockstep
    assert device.processors == 40


@pytest.mark.parametrize(
    ("arch", "threads", "registers"),
    [
        ("sm_90", 1, 64),  # 32 blocks of a warp: 65536 / 1024
        ("sm_90", 32, 64),
        ("sm_90", 33, 32),  # two warps each: 2048 threads
        ("sm_90", 256, 32),
        ("sm_90", 768, 42),  # two blocks: 1536 threads
        ("sm_90", 1024, 32),
        ("sm_86", 256, 42),  # 48 warps: 1536 threads
        ("sm_86", 32, 128),  # 16 blocks of a warp
    ],
)
def test_registers_that_cost_no_occupancy(arch: str, threads: int, registers: int) -> None:
    device = device_of(lw.Target(f"cuda -arch={arch}"))
    assert free_registers(device, threads) == registers
    shared = blocks_per_processor(device, threads, 1, 0)
    assert blocks_per_processor(device, threads, min(registers, 64) // 8 * 8, 0) == shared


def test_a_device_that_says_nothing_of_registers_has_the_usual_number() -> None:
    assert free_registers(device_of(lw.Target("opencl")), 64) == 32
