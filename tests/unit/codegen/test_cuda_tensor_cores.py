"""Tensor cores in CUDA C++: the PTX that is asked for, cubins, and what the kernels take."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from loopwright.codegen.backends import LoweredProgram, compile_program
from loopwright.codegen.gpu import nvrtc
from loopwright.codegen.gpu.cuda import CudaSource, write_cuda
from loopwright.codegen.gpu.opencl import write_opencl
from loopwright.codegen.gpu.split import split_host_device
from loopwright.errors import CodegenError
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from loopwright.runtime.artifacts.device_code import DeviceCode, KernelResources
from loopwright.target import Target
from tests.unit.lowering import gpu_programs
from tests.unit.lowering.programs import Case
from tests.unit.lowering.tensor_core_programs import tensor_core_matmul

NVRTC = importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings")
needs_nvrtc = pytest.mark.skipif(not NVRTC, reason=f"NVRTC is not here: {nvrtc.INSTALL}")
#: A block of eight warps over tiles that are worth it.
LARGE: dict[str, Any] = {
    "m": 4096, "n": 4096, "k": 4096, "block": (128, 128, 32), "warps": (2, 4), "stages": 3,
    "scope": "shared.dyn",
}  # fmt: skip


def source(case: Case) -> CudaSource:
    return write_cuda(split_host_device(lower(case.s, case.args), "cuda"))


def taken(text: str, arch: str) -> KernelResources:
    return nvrtc.resources(nvrtc.compile_cubin(text, "main", arch).log)["main_kernel0"]


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    "options",
    [{}, {"transposed": True, "dtype": "bfloat16"}, {"ldmatrix": False}],
    ids=["ldmatrix", "bfloat16", "loads"],
)
def test_fragments_are_registers(arch: str, options: dict[str, Any]) -> None:
    have = taken(source(tensor_core_matmul(**options)).text, arch)
    assert (have.spill_bytes, have.local_bytes) == (0, 0)
    assert have.registers is not None
    assert have.registers < 96
    # Rows of 16 and 32 elements (of 16 twice where B is transposed) with gaps of 8.
    rows = 32 * 24 + (32 * 24 if options.get("transposed") else 16 * 40)
    assert have.shared_bytes == 2 * rows


@needs_nvrtc
def test_what_is_asked_of_ptx() -> None:
    text = source(tensor_core_matmul(k=16)).text
    ptx = nvrtc.compile_ptx(text, "main", "sm_80")
    assert ptx.count("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") == 4
    assert ptx.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 1
    assert ptx.count("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") == 2
    assert ".local" not in ptx
    others = [x for x in ptx.splitlines() if "f16" in x and "mma.sync" not in x]
    assert not others, "elements that are moved keep their bits"


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_products_of_tf32(arch: str) -> None:
    """Every element is rounded, at most once for each instruction; fragments are registers."""
    text = source(tensor_core_matmul(k=16, dtype="tf32")).text
    ptx = nvrtc.compile_ptx(text, "main", arch)
    assert ptx.count("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32") == 2 * 4
    assert 2 * (4 + 4 * 2) <= ptx.count("cvt.rna.tf32.f32") <= 2 * 4 * (4 + 2)
    assert ".local" not in ptx
    have = taken(text, arch)
    assert (have.spill_bytes, have.local_bytes) == (0, 0)


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_large_product_of_eight_warps(arch: str) -> None:
    made = source(tensor_core_matmul(**LARGE))
    assert made.shared_bytes["main_kernel0"] == 3 * 2 * (128 * 40 + 32 * 136)
    have = taken(made.text, arch)
    assert (have.spill_bytes, have.local_bytes) == (0, 0)
    assert have.registers is not None
    assert have.registers * 256 <= 65536


@needs_nvrtc
def test_pipelines_copy_asynchronously() -> None:
    """Sixteen bytes a copy; two stages in front of the loop, one in it; from sm_80 on."""
    text = source(tensor_core_matmul(k=256, stages=3)).text
    assert text.count("lw_copy_async<16>(") == 3 * 2
    assert text.count("lw_commit_async();") == 3
    assert text.count("lw_wait_async<1>();") == 1
    ptx = nvrtc.compile_ptx(text, "main", "sm_80")
    assert "cp.async.cg.shared.global" in ptx
    assert "cp.async.wait_group 1;" in ptx
    have = taken(text, "sm_90")
    assert (have.spill_bytes, have.local_bytes) == (0, 0)


@needs_nvrtc
def test_scalars_are_copied_asynchronously_where_the_architecture_can() -> None:
    text = source(gpu_programs.tiled_matmul(k=64, stages=3)).text
    assert "lw_copy_async<4>(" in text
    assert "cp.async.ca.shared.global" in nvrtc.compile_ptx(text, "main", "sm_80")
    assert "cp.async" not in nvrtc.compile_ptx(text, "main", "sm_75")
    assert taken(text, "sm_75").spill_bytes == 0


@needs_nvrtc
def test_an_artifact_for_a_device() -> None:
    """The launch asks for the shared memory that the kernel does not declare."""
    case = tensor_core_matmul(**LARGE)
    program = LoweredProgram(lower(case.s, case.args), case.s)
    code = compile_program(program, Target("cuda -arch=sm_80"))
    device_code = DeviceCode.from_bytes(code.objects, len(case.args))
    (launch,) = device_code.launches
    assert launch.shared_bytes == 3 * 2 * (128 * 40 + 32 * 136)
    assert (launch.grid, launch.block) == ((32, 32, 1), (32, 4, 2))
    assert device_code.arch == "sm_80"


def test_dynamic_shared_memory_is_one_array() -> None:
    """Buffers of scope shared.dyn share an array, at multiples of 16 bytes; others are declared."""
    case = gpu_programs.tiled_matmul(scope="shared.dyn", k=24)
    made = source(case)
    assert made.text.count("extern __shared__ __align__(16) unsigned char lw_arena[];") == 1
    assert "A_shared_dyn = (float *)(lw_arena + 0);" in made.text
    assert "B_shared_dyn = (float *)(lw_arena + 512);" in made.text
    assert made.shared_bytes == {"main_kernel0": 1024}
    declared = source(gpu_programs.tiled_matmul(k=24))
    assert declared.shared_bytes == {"main_kernel0": 0}
    assert "lw_arena" not in declared.text


def test_other_languages_refuse_what_lanes_exchange() -> None:
    case = tensor_core_matmul()
    with pytest.raises(CodegenError, match="is exchanged between the lanes of a warp, which instr"):
        write_opencl(split_host_device(lower(case.s, case.args), "opencl"))
    with (
        PassContext(disabled_pass=["LowerWarpMemory"]),
        pytest.raises(CodegenError, match="leave the passes of phase 0 enabled"),
    ):
        source(tensor_core_matmul())
