"""HIP C++: the text of a function's kernels for AMD's GPUs, which nothing here compiles or runs. It
is CUDA C++ with another header, plain copies for asynchronous ones, and no products of tensor
cores. Kernels and limits are those of the target ``cuda``."""

from __future__ import annotations

from dataclasses import replace

from loopwright.codegen.gpu.cuda import CUDA_CPP, CudaWriter, write_kernels
from loopwright.codegen.gpu.split import SplitProgram
from loopwright.codegen.gpu.tensor_cores import warp_instruction
from loopwright.codegen.gpu.writer import KernelWriter
from loopwright.errors import CodegenError
from loopwright.ir.stmt import AsyncWait, IntrinsicCall, Stmt

HIP_CPP = replace(CUDA_CPP, name="hip")
# Its compilers contract products and sums where they can, and results shall be those of others.
_HEAD = "#include <hip/hip_runtime.h>\n#pragma clang fp contract(off)\n"


class HipWriter(CudaWriter):
    def instruction(self, s: IntrinsicCall) -> bool:
        """Refuse instructions of NVIDIA's machines, write others in their plain form."""
        if warp_instruction(self.prelude, s.name) is not None:
            raise CodegenError(
                f"hip: {s.name} is an instruction of NVIDIA's GPUs; leave out tensorize"
            )
        return False

    def async_group(self, body: Stmt) -> None:
        """Write the copies as plain ones, which arrive at once."""
        KernelWriter.async_group(self, body)

    def async_wait(self, s: AsyncWait) -> None: ...


def write_hip(program: SplitProgram) -> str:
    return write_kernels(program, HIP_CPP, HipWriter, "HIP C++", _HEAD).text
