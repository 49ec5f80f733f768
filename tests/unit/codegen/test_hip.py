"""HIP C++: only its text can be had here. It is CUDA C++ behind a header, and NVRTC reads it."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import loopwright as lw
from loopwright.codegen.gpu.cuda import write_cuda, write_hip
from loopwright.codegen.gpu.split import split_host_device
from loopwright.errors import CodegenError, TargetError
from loopwright.inspection import emit
from loopwright.lowering import lower
from tests.unit.lowering import gpu_programs
from tests.unit.lowering.test_async_copies import pipeline

HEADER = "#include <hip/hip_runtime.h>"
NVRTC = importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings")
needs_nvrtc = pytest.mark.skipif(not NVRTC, reason="NVRTC is not here")
CASES = ["tiled_matmul", "argmax"]


def split(case: Any) -> Any:
    return split_host_device(lower(case.s, case.args), "cuda")


def accepted(text: str) -> str:
    """What NVRTC says of a text whose header is empty; empty where it takes it."""
    from cuda.bindings import nvrtc

    header, name = b"#pragma once\n", b"hip/hip_runtime.h"
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"hip.cu", 1, [header], [name])
    (status,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"])
    if status == nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return ""
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.decode()


@needs_nvrtc
@pytest.mark.parametrize("name", CASES)
def test_the_text_is_that_of_cuda_behind_its_header(name: str) -> None:
    program = split(getattr(gpu_programs, name)())
    text = write_hip(program)
    assert text.count(HEADER) == 1
    assert not accepted(text)
    assert accepted(text.replace("__global__", "__global", 1))  # the check sees mistakes
    body = text.partition("contract(off)\n")[2].strip()
    assert body in write_cuda(program).text


def test_copies_that_may_arrive_later_are_plain_ones() -> None:
    program = split_host_device(pipeline()[0], "cuda")
    assert "cp.async" in write_cuda(program).text
    text = write_hip(program)
    assert "asm" not in text
    if NVRTC:
        assert not accepted(text)


def test_tensor_cores_are_refused() -> None:
    with lw.Target("cuda -arch=sm_90"):
        s, args = lw.ops.matmul_tensor_core(64, 64, 64)
        with pytest.raises(CodegenError, match=r"hip: .* is an instruction of NVIDIA's GPUs"):
            write_hip(split_host_device(lower(s, args), "cuda"))


@needs_nvrtc
def test_it_is_one_of_the_texts_of_a_program_for_cuda() -> None:
    case = gpu_programs.tiled_matmul()
    target = lw.Target("cuda -arch=sm_90")
    module = lw.build(case.s, case.args, target)
    assert HEADER in module.get_source("hip")
    assert module.get_source() == module.get_source("cuda")
    assert HEADER in emit(case.s, case.args, target, "hip")


def test_nothing_is_built_for_it() -> None:
    for name in ("hip", "rocm"):
        with pytest.raises(TargetError, match=rf"the target {name} is not built for: .*--emit hip"):
            lw.Target(name)
