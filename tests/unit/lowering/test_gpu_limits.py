"""Limits of GPUs: each is found, named with its value and the loop or buffer."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from loopwright import te
from loopwright.errors import LowerError
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from loopwright.lowering.gpu_limits import GpuLimits, limits_of, verify_gpu_limits
from loopwright.schedule import Schedule, create_schedule
from loopwright.target import Target
from tests.unit.lowering import gpu_programs


def elementwise(*shape: int, tags: tuple[str, ...]) -> tuple[Schedule, list[te.Tensor]]:
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda *i: a[i] + 1.0, name="B")
    s = create_schedule(b)
    for axis, tag in zip(b.op.axis, tags, strict=True):
        s[b].bind(axis, tag)
    return s, [a, b]


def refused(s: Schedule, args: list[te.Tensor], text: str, **limits: int) -> None:
    f = lower(s, args)
    with pytest.raises(LowerError, match=re.escape(text)):
        verify_gpu_limits(f, GpuLimits(**limits), s)


def test_defaults_are_those_of_the_issue() -> None:
    x = GpuLimits()
    assert (x.max_threads_per_block, x.max_shared_memory_per_block) == (1024, 49152)
    assert (x.max_thread_x, x.max_thread_y, x.max_thread_z) == (1024, 1024, 64)
    assert (x.max_block_y, x.max_block_z, x.max_vthread, x.max_vector_bytes) == (
        65535, 65535, 8, 16,
    )  # fmt: skip


def test_kernels_within_the_limits_pass() -> None:
    for make in (gpu_programs.tiled_matmul, gpu_programs.shared_stage, gpu_programs.softmax):
        case = make()
        verify_gpu_limits(lower(case.s, case.args), schedule=case.s)


@pytest.mark.parametrize("which", "xyz")
def test_extents_of_thread_axes(which: str) -> None:
    most = getattr(GpuLimits(), f"max_thread_{which}")
    s, args = elementwise(most + 1, tags=(f"threadIdx.{which}",))
    refused(
        s,
        args,
        f"gpu limits: function 'main': threadIdx.{which} has the extent {most + 1} (loop B.i0), "
        f"max_thread_{which} is {most}; split the loop and bind a smaller part",
    )
    s, args = elementwise(most, tags=(f"threadIdx.{which}",))
    verify_gpu_limits(lower(s, args), schedule=s)


def test_extents_of_block_axes() -> None:
    for which in "yz":
        s, args = elementwise(65536, tags=(f"blockIdx.{which}",))
        refused(
            s,
            args,
            f"blockIdx.{which} has the extent 65536 (loop B.i0), max_block_{which} is 65535",
        )
    s, args = elementwise(65536, tags=("blockIdx.x",))
    verify_gpu_limits(lower(s, args))
    refused(s, args, "blockIdx.x has the extent 65536 (loop B.i0), max_block_x is 9", max_block_x=9)


def test_threads_of_a_block() -> None:
    s, args = elementwise(64, 32, tags=("threadIdx.y", "threadIdx.x"))
    refused(
        s,
        args,
        "a block has 2048 threads (threadIdx.y 64 (loop B.i0), threadIdx.x 32 (loop B.i1)), "
        "max_threads_per_block is 1024; bind smaller loops",
    )
    verify_gpu_limits(lower(s, args), GpuLimits(max_threads_per_block=2048))


def test_axes_that_env_threads_gives() -> None:
    s, (a, b) = elementwise(4, tags=("blockIdx.x",))
    s[b].env_threads([("threadIdx.z", 65)])
    refused(s, [a, b], "threadIdx.z has the extent 65 (env_threads of B), max_thread_z is 64")


def test_shared_memory_of_a_block() -> None:
    case = gpu_programs.tiled_matmul()
    refused(
        case.s,
        case.args,
        "shared memory of a block takes 1024 bytes ('A.shared' 512, 'B.shared' 512), "
        "max_shared_memory_per_block is 1023; make the tiles smaller",
        max_shared_memory_per_block=1023,
    )
    verify_gpu_limits(lower(case.s, case.args), GpuLimits(max_shared_memory_per_block=1024))
    rows = gpu_programs.row_sum()
    refused(rows.s, rows.args, "takes 64 bytes ('B.acc.row' 64)", max_shared_memory_per_block=63)


def test_dynamic_shared_memory_counts() -> None:
    case = gpu_programs.tiled_matmul(scope="shared.dyn")
    refused(case.s, case.args, "takes 1024 bytes", max_shared_memory_per_block=1023)


def test_gaps_of_storage_align_count() -> None:
    case = gpu_programs.shared_stage()
    refused(case.s, case.args, "takes 1280 bytes ('A.shared' 1280)", max_shared_memory_per_block=99)


def test_local_memory_of_a_thread() -> None:
    case = gpu_programs.tiled_matmul()
    refused(
        case.s,
        case.args,
        "local memory of a thread takes 88 bytes ('C.local' 64, 'A.shared.local' 16, "
        "'B.shared.local' 8), max_local_memory_per_thread is 87; make the tiles smaller",
        max_local_memory_per_thread=87,
    )
    verify_gpu_limits(lower(case.s, case.args), GpuLimits(max_local_memory_per_thread=88))


def test_virtual_threads() -> None:
    case = gpu_programs.tiled_matmul(160, 160, 8, vthreads=2)
    verify_gpu_limits(lower(case.s, case.args), GpuLimits(max_vthread=2), case.s)
    refused(
        case.s,
        case.args,
        "gpu limits: loop 'C.i.1.0' is bound to 2 virtual threads (step 14), max_vthread is 1; "
        "split it and bind a smaller part",
        max_vthread=1,
    )
    verify_gpu_limits(lower(case.s, case.args), GpuLimits(max_vthread=1))  # no schedule: not seen


def test_vectors() -> None:
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, 0] + 1.0, name="B")
    s = create_schedule(b)
    s[b].bind(b.op.axis[0], "threadIdx.x")
    s[b].vectorize(b.op.axis[1])
    refused(
        s,
        [a, b],
        "the vectorized loop 'j' touches 32 bytes of 'B' at a time, max_vector_bytes is 16; split "
        "it and vectorize a smaller part",
    )
    verify_gpu_limits(lower(s, [a, b]), GpuLimits(max_vector_bytes=32))


def test_loops_of_a_cpu_are_not_limited() -> None:
    s, args = elementwise(70000, tags=("vthread",))
    with PassContext(config={"code_limit": 1 << 22}):
        f = lower(s, args)
    verify_gpu_limits(f)
    s, (a, b) = elementwise(4, 4, tags=("vthread", "vthread"))
    verify_gpu_limits(lower(s, [a, b]), schedule=s)


@pytest.mark.parametrize("name", [f.name for f in fields(GpuLimits)])
def test_limits_are_positive_numbers(name: str) -> None:
    for bad in (0, -1, True, "8", 1.5):
        with pytest.raises(LowerError, match=f"GpuLimits: {name} must be a positive int, got"):
            GpuLimits(**{name: bad})  # type: ignore[arg-type]


def test_limits_are_those_that_a_target_says() -> None:
    limits = limits_of(Target("cuda -arch=sm_80 -max_num_threads=512").options)
    assert (limits.max_shared_memory_per_block, limits.max_threads_per_block) == (166912, 512)
    assert limits.max_thread_z == GpuLimits().max_thread_z


def test_lower_asks_the_target_in_force() -> None:
    s, args = elementwise(2048, tags=("threadIdx.x",))
    with Target("cuda"), pytest.raises(LowerError, match="max_thread_x is 1024"):
        lower(s, args)
    s, args = elementwise(512, tags=("threadIdx.x",))
    text = r"a block has 512 threads \(.*\), max_threads_per_block is 256"
    with Target("opencl -max_threads_per_block=256"), pytest.raises(LowerError, match=text):
        lower(s, args)
    with Target("llvm"):
        lower(s, args)


def test_axes_are_as_long_as_the_blocks_of_a_device() -> None:
    assert limits_of({"max_threads_per_block": 4096}).max_thread_x == 4096
    assert limits_of({"max_threads_per_block": 256}).max_thread_x == 1024
    assert limits_of({"max_threads_per_block": 4096}).max_thread_z == 64
