"""The CUDA target: kernels become cubins, and NVRTC tells what they take; without a GPU."""

from __future__ import annotations

import importlib.util
import re
import sys
from typing import Any

import pytest

from loopwright import te
from loopwright.codegen.backends import LoweredProgram, check_resources, compile_program
from loopwright.codegen.gpu import nvrtc
from loopwright.codegen.gpu.cuda import write_cuda
from loopwright.codegen.gpu.split import split_host_device
from loopwright.errors import BuildError, LowerError, TargetError
from loopwright.lowering import lower
from loopwright.runtime.artifacts.device_code import DeviceCode, KernelResources
from loopwright.schedule import create_schedule
from loopwright.target import Target
from tests.unit.lowering import gpu_programs

NVRTC = importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings")
needs_nvrtc = pytest.mark.skipif(not NVRTC, reason=f"NVRTC is not here: {nvrtc.INSTALL}")
ELF = b"\x7fELF"


def compiled(case: Any, target: str = "cuda") -> tuple[DeviceCode, Any]:
    program = LoweredProgram(lower(case.s, case.args), case.s)
    code = compile_program(program, Target(target))
    return DeviceCode.from_bytes(code.objects, len(case.args)), code


def text(case: Any) -> str:
    return write_cuda(split_host_device(lower(case.s, case.args), "cuda")).text


def staged_copy(n: int, lanes: int, pad: int = 0) -> Any:
    """A copy through shared memory, whose rows may be too long by some elements."""
    a = te.placeholder((4, n), name="A")
    b = te.compute((4, n), lambda i, j: a[i, j] + 1.0, name="B")
    s = create_schedule(b)
    tile = s.cache_read(a, "shared", [b])
    s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
    s[tile].compute_at(s[b], b.op.axis[0])
    if pad:
        s[tile].storage_align(s[tile].op.axis[0], n, pad)
    _, inner = s[tile].split(s[tile].op.axis[1], factor=lanes)
    s[tile].vectorize(inner)
    _, tx = s[b].split(b.op.axis[1], factor=8)
    s[b].bind(tx, te.thread_axis("threadIdx.x"))
    return type("Case", (), {"s": s, "args": [a, b]})


@needs_nvrtc
@pytest.mark.parametrize("name", ["tiled_matmul", "argmax"])
def test_kernels_become_machine_code(name: str) -> None:
    device_code, code = compiled(getattr(gpu_programs, name)())
    assert device_code.image.startswith(ELF)
    assert device_code.arch == "sm_90"
    taken = device_code.resources["main_kernel0"]
    assert taken.registers is not None
    assert 8 <= taken.registers <= 255
    assert (taken.spill_bytes, taken.local_bytes) == (0, 0)
    assert ".entry main_kernel0(" in code.source("ptx")
    assert code.source("cuda").startswith("/* main: CUDA C++")


@needs_nvrtc
def test_accumulators_are_registers() -> None:
    """Nothing of an unrolled tile lies in local memory, and products are fused."""
    _, code = compiled(gpu_programs.tiled_matmul())
    ptx = code.source("ptx")
    assert ".local" not in ptx
    assert ptx.count("fma.rn.f32") >= 16


@needs_nvrtc
def test_shared_memory_is_what_the_buffers_take() -> None:
    device_code, _ = compiled(gpu_programs.shared_stage())
    assert device_code.resources["main_kernel0"].shared_bytes == 1280


@needs_nvrtc
def test_more_shared_memory_than_a_kernel_may_declare() -> None:
    case = staged_copy(16384, 4)
    device_code, code = compiled(case)
    (launch,) = device_code.launches
    assert launch.shared_bytes == 65536
    assert device_code.resources["main_kernel0"].shared_bytes == 65536
    assert "extern __shared__ __align__(16) unsigned char lw_arena[];" in code.source("cuda")


def test_limits_are_those_of_the_architecture() -> None:
    with pytest.raises(LowerError, match=r"takes 262144 bytes .* is 232448; make"):
        compiled(staged_copy(65536, 4))
    with pytest.raises(LowerError, match="max_shared_memory_per_block is 49152"):
        compiled(staged_copy(16384, 4), "cuda -max_shared_memory_per_block=49152")
    with pytest.raises(LowerError, match=r"takes 65536 bytes .* is 65535"):
        compiled(staged_copy(16384, 4), "cuda -arch=sm_75 -max_shared_memory_per_block=65535")


@needs_nvrtc
def test_neighbouring_lanes_move_at_once() -> None:
    _, code = compiled(staged_copy(64, 4))
    assert "lw_vector<float, 4>" in code.source("cuda")
    assert re.search(r"ld\.global\.nc\.v4\.f32", code.source("ptx"))
    assert re.search(r"st\.shared\.v4\.f32", code.source("ptx"))


def test_lanes_that_may_lie_across_a_boundary_move_one_by_one() -> None:
    """The rows of A begin at no multiple of a vector; those of the tile do."""
    source = text(staged_copy(66, 4))
    assert "(const lw_vector" not in source
    assert "A_shared + (0 * 68" in source


@needs_nvrtc
def test_what_the_compiler_refuses_is_told_with_its_first_error() -> None:
    with pytest.raises(BuildError, match=r"NVRTC refuses 'f': f\.cu\(1\): error: .*nonsense"):
        nvrtc.compile_cubin("nonsense x;", "f", "sm_90")
    with pytest.raises(BuildError, match=r"NVRTC refuses 'f': .*gpu-architecture"):
        nvrtc.compile_cubin("", "f", "sm_50")


@needs_nvrtc
def test_an_empty_log_is_written_into_nothing_that_others_have() -> None:
    """It is one byte, a zero, and CPython has one object for each value of a single byte."""
    assert nvrtc.compile_ptx('extern "C" __global__ void f() {}', "f", "sm_90")
    every = bytes(range(256))
    assert [every[n : n + 1][0] for n in range(256)] == list(range(256))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(TargetError, match=r"target cuda is not available.*pip install 'cuda-b"):
        nvrtc.compile_cubin("", "f", "sm_90")


LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'f_kernel0' for 'sm_90'
ptxas info    : Function properties for f_kernel0
ptxas         .     24 bytes stack frame, 20 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size, 49152 bytes smem, 376 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compiling entry function 'f_kernel1' for 'sm_90'
ptxas info    : Function properties for f_kernel1
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers
"""  # noqa: E501


def test_what_kernels_take_is_read_from_the_log() -> None:
    assert nvrtc.resources(LOG) == {
        "f_kernel0": KernelResources(255, 32, 49152, 24, 384),
        "f_kernel1": KernelResources(8, 0, 0, 0, None),
    }
    assert nvrtc.resources("") == {}


@needs_nvrtc
def test_a_kernel_that_takes_too_much_is_refused_before_it_runs() -> None:
    with pytest.raises(
        BuildError,
        match=r"main_kernel0 takes \d+ registers a thread, \d+ for 16 threads of a block, "
        "registers_per_block is 100; bind smaller loops",
    ):
        compiled(gpu_programs.tiled_matmul(), "cuda -registers_per_block=100")


def test_spills_beyond_a_bound_are_refused() -> None:
    f = split_host_device(lower(*_row_sum()), "cuda").kernels[0]
    taken = KernelResources(255, 32)
    check_resources(f, taken, Target("cuda").options)
    check_resources(f, taken, Target("cuda -max_spill_bytes=32").options)
    with pytest.raises(BuildError, match=r"main_kernel0 spills 32 bytes .* max_spill_bytes is 31"):
        check_resources(f, taken, Target("cuda -max_spill_bytes=31").options)


def _row_sum() -> tuple[Any, Any]:
    case = gpu_programs.row_sum()
    return case.s, case.args


@needs_nvrtc
def test_fast_math_takes_the_functions_of_the_device() -> None:
    _, exact = compiled(gpu_programs.softmax())
    _, fast = compiled(gpu_programs.softmax(), "cuda -fast_math=true")
    assert "ex2.approx.ftz.f32" in fast.source("ptx")
    assert "ex2.approx" not in exact.source("ptx")
