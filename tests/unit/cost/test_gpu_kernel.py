"""What kernels take and do by the symbolic schedule, against the lowered program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from math import prod

import pytest

import loopwright as lw
from loopwright import ops
from loopwright.cost.gpu.device import device_of
from loopwright.cost.gpu.kernel import TENSOR_CORE, GpuKernel, kernels_of
from loopwright.cost.symbolic.loop_nest import nests_of
from loopwright.errors import TooMuchCodeError
from loopwright.ir.buffer import Buffer
from loopwright.ir.node import Node
from loopwright.ir.stmt import Allocate, For, Func, View, is_launch
from loopwright.schedule import Schedule
from loopwright.task import create_task
from tests.covering import examples
from tests.unit.cost import gpu_workloads as workloads
from tests.unit.lowering import gpu_programs, tensor_core_programs

CUDA = device_of(lw.Target("cuda -arch=sm_90"))
PROGRAMS = ("tiled_matmul", "shared_stage", "row_sum", "softmax", "argmax")


def lowered_kernel(f: Func) -> tuple[dict[str, int], list[Buffer], int]:
    """Launch extents, shared buffers, and the most bytes of local ones that exist at once."""
    launch: dict[str, int] = {}
    shared: list[Buffer] = []

    def local(s: Node) -> int:
        if isinstance(s, For) and is_launch(s):
            launch[s.tag] = s.count
        inner = max(map(local, s.children()), default=0)
        if isinstance(s, View) or not isinstance(s, Allocate):
            return inner
        if s.buffer.scope != "local":
            shared.extend([s.buffer] if s.buffer.is_shared else [])
            return inner
        return inner + s.buffer.nbytes

    return launch, shared, local(f.body)


def check_kernel(k: GpuKernel, f: Func) -> None:
    launch, shared, local = lowered_kernel(f)
    assert k.launch == launch
    assert k.grid == prod(n for t, n in launch.items() if t.startswith("blockIdx"))
    assert k.threads == prod(n for t, n in launch.items() if t.startswith("threadIdx"))
    assert k.shared_bytes == sum(-(-b.nbytes // 16) * 16 for b in shared)
    assert local <= k.local_bytes <= 2 * local


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_are_those_of_the_lowered_program(name: str) -> None:
    case = getattr(gpu_programs, name)()
    (kernel,) = kernels_of(case.s.state, CUDA)
    check_kernel(kernel, lw.lower(case.s, case.args))


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_and_regions_are_those_of_bound_inference(name: str) -> None:
    s = getattr(gpu_programs, name)().s
    check_nests(s)


def test_fragments_of_tensor_cores_are_spread_over_the_lanes_of_a_warp() -> None:
    case = tensor_core_programs.tensor_core_matmul(stages=2)
    check_nests(case.s)
    (kernel,) = kernels_of(case.s.state, CUDA)
    check_kernel(kernel, lw.lower(case.s, case.args))
    tensorized = [x for x in kernel.stages if x.nest.stage.tensorized is not None]
    (product,) = [x for x in tensorized if x.nest.op.reduction is not None]
    # A block of 32 x 32 x 32, by two warps of 32 lanes, eight times as fast as without.
    assert product.iterations * product.warps * 32 * TENSOR_CORE == 32 * 32 * 32


def check_nests(s: Schedule) -> None:
    bounds = s.bounds()
    nests = {n.stage.id: n for n in nests_of(s.state)}
    assert set(nests) == set(bounds.stages)
    for sid, sb in bounds.stages.items():
        own = nests[sid].loops[len(nests[sid].loops) - nests[sid].own :]
        assert [x.extent for x in own] == [x.extent for x in sb.loops]
        assert nests[sid].shape == sb.shape
        assert nests[sid].scope == sb.scope


def candidates(name: str, n: int, seed: int) -> Iterator[tuple[Schedule, list[lw.te.Tensor]]]:
    """Schedules of random points."""
    task = workloads.task_of(name)
    for digits in workloads.digits_of(task, n, seed):
        index = task.config_space.knob2point([int(d) for d in digits])
        s, args = task.instantiate(index)
        yield s, list(args)


@pytest.mark.parametrize("name", workloads.TEMPLATES)
def test_random_points_take_what_their_programs_take(name: str) -> None:
    for s, args in candidates(name, examples(15), 3):
        check_nests(s)
        (kernel,) = kernels_of(s.state, CUDA)
        with suppress(TooMuchCodeError):  # a point that no build takes
            check_kernel(kernel, lw.lower(s, args))


@pytest.mark.parametrize(("name", "keep"), [("softmax", "keep_E"), ("layer_norm", "keep_D")])
def test_a_thread_computes_no_row_but_its_own(name: str, keep: str) -> None:
    """A row that a block keeps in shared memory is filled by the threads that need it: what is one
    number a row is one number for each of them, although two stages name their axis."""
    task = create_task(getattr(ops, name), args=(64, 128), target="cuda -arch=sm_90")
    chosen = {"threads": 16, "rows": 16, "unroll": 2, "vector": False, keep: True}
    s, args = task.instantiate(task.config_space.get(task.config_space.index_of(chosen)))
    check_nests(s)
    (kernel,) = kernels_of(s.state, CUDA)
    check_kernel(kernel, lw.lower(s, args))
    (kept,) = [x for x in kernel.stages if x.nest.scope == "shared"]
    (one,) = [a for a in kept.accesses[1:] if a.scope == "local"]
    assert all(not moves for moves in one.access.moves)


def softmax_kernel(**chosen: object) -> GpuKernel:
    task = create_task(ops.softmax, args=(512, 1000), target="cuda -arch=sm_90")
    choice = {"unroll": 2, "vector": False, "keep_E": False, **chosen}
    s, _ = task.instantiate(task.config_space.get(task.config_space.index_of(choice)))
    (kernel,) = kernels_of(s.state, CUDA)
    return kernel


def test_small_blocks_take_the_registers_that_cost_no_occupancy() -> None:
    """ptxas gives a thread of these kernels 24 registers and 42: blocks of one warp leave twice as
    many free, and the iterations of the loops over a row are overlapped there."""
    many = softmax_kernel(threads=128, rows=4, unroll=4)
    few = softmax_kernel(threads=2, rows=16, unroll=4)
    assert int(many.registers) == pytest.approx(24, abs=5)
    assert int(few.registers) == pytest.approx(42, abs=10)


def test_a_row_in_shared_memory_takes_no_registers_for_the_other_rows() -> None:
    """27 by ptxas, where a number for each of the 16 rows was counted: 57."""
    kept = softmax_kernel(threads=64, rows=16, unroll=1, keep_E=True)
    assert int(kept.local_bytes) < 32
    assert int(kept.registers) == pytest.approx(27, abs=6)
