"""What the analytical model of GPUs must know: of two schedules, which is plainly better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.cost.analytical import AnalyticalModel
from loopwright.cost.gpu import cycles
from loopwright.cost.gpu.device import device_of
from loopwright.cost.gpu.kernel import GpuKernel, kernels_of
from loopwright.schedule import Schedule
from loopwright.task import Task, create_task
from tests.unit.cost import gpu_workloads as workloads

CUDA = device_of(lw.Target("cuda -arch=sm_90"))
GOOD: dict[str, Any] = {
    "tile_i": [-1, 2, 16, 4],
    "tile_j": [-1, 2, 16, 4],
    "tile_k": [-1, 16],
    "vector": 4,
    "pad": 4,
    "double": True,
}


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task(workloads.gpu_matmul, args=(2048, 2048, 2048), target="cuda -arch=sm_90")


def score(task: Task, **changes: Any) -> float:
    space = task.config_space
    digits = space.point2knob(space.index_of(GOOD | changes))
    return float(AnalyticalModel(task).predict(np.array([digits]))[0])


@pytest.mark.parametrize(
    "worse",
    [
        {"tile_i": [-1, 1, 1, 1], "tile_j": [-1, 1, 32, 1]},  # no reuse in registers
        {"tile_i": [-1, 1, 4, 16], "tile_j": [-1, 1, 4, 32]},  # 512 sums: spills, half a warp
        {"tile_i": [-1, 1, 16, 128], "tile_j": [-1, 1, 16, 1]},  # one block a column of tiles
        {"vector": 1, "tile_i": [-1, 8, 2, 4], "tile_j": [-1, 8, 2, 4]},  # 4 threads
    ],
)
def test_a_good_tile_beats_a_plainly_worse_one(task: Task, worse: dict[str, Any]) -> None:
    assert score(task) > score(task, **worse) + 1


def test_the_good_one_is_near_the_peak(task: Task) -> None:
    assert score(task) > np.log2(0.3)


def copy(down: bool, n: int = 1024) -> Schedule:
    """A copy in which neighbouring threads touch neighbours in memory, or go down a column."""
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    i, j = s[b].op.axis
    block, thread = (j, i) if down else (i, j)
    outer, inner = s[b].split(thread, factor=128)
    s[b].reorder(block, outer, inner)
    s[b].bind(s[b].fuse(block, outer), te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    return s


def kernel(s: Schedule) -> GpuKernel:
    (k,) = kernels_of(s.state, CUDA)
    return k


def test_accesses_down_a_column_take_a_segment_for_each_thread() -> None:
    along, down = kernel(copy(False)), kernel(copy(True))
    sectors = [[a.sectors for a in k.stages[0].accesses] for k in (along, down)]
    assert sectors == [[4, 4], [32, 32]]
    assert cycles.block_cycles(down) == pytest.approx(8 * cycles.block_cycles(along))
    assert cycles.kernel_cycles(down) > cycles.kernel_cycles(along)


def test_memory_is_read_once_where_blocks_that_run_together_share_it() -> None:
    """A matmul larger than the second cache: blocks side by side read the same rows of A."""
    n = 16384
    large = create_task(workloads.gpu_matmul, args=(n, n, n), target="cuda -arch=sm_90")
    s, _ = large.instantiate(large.config_space.index_of(GOOD))
    k = kernel(s)
    tiles, size = n // 128, n * n * 4
    moved = cycles.memory_bytes(k)
    assert 3 * size <= moved < tiles * size


def test_an_attached_stage_with_a_double_buffer_waits_less(task: Task) -> None:
    (one, two) = (
        kernel(task.instantiate(task.config_space.index_of(GOOD | {"double": d}))[0])
        for d in (False, True)
    )
    assert two.shared_bytes == 2 * one.shared_bytes
    assert cycles.barriers(two) < cycles.barriers(one)
    assert cycles.block_latency(two) < cycles.block_latency(one)


def test_a_cpu_prefers_groups_of_some_size() -> None:
    """On the cores of a CPU a group is a task; groups of one thread cost more than they do."""
    cpu = create_task(workloads.gpu_rows, args=(512, 4096), target="opencl")
    space = cpu.config_space
    found = AnalyticalModel(cpu).predict(np.arange(len(space))[:, None])
    assert np.isfinite(found).all()
    assert np.ptp(found) < 4


def test_a_schedule_without_threads_has_no_kernel() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    assert kernels_of(s.state, CUDA) == []
    assert cycles.slowdown(s.state, CUDA) > 1
