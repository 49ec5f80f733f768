"""HIP C++: the text of a function's kernels for AMD's GPUs, which nothing here compiles or runs.

HIP is CUDA C++ with another header. What CUDA has as instructions of its machines is left out:
asynchronous copies are plain ones, and products of tensor cores are refused. Kernels and limits are
those of the target ``cuda``.
"""

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
    """Writes one kernel in HIP C++."""

    def instruction(self, s: IntrinsicCall) -> bool:
        """Instructions of NVIDIA's machines are refused, others written in their plain form."""
        if warp_instruction(self.prelude, s.name) is not None:
            raise CodegenError(
                f"hip: {s.name} is an instruction of NVIDIA's GPUs; leave out tensorize"
            )
        return False

    def async_group(self, body: Stmt) -> None:
        """Copies that might arrive later arrive at once."""
        KernelWriter.async_group(self, body)

    def async_wait(self, s: AsyncWait) -> None:
        """All copies are there."""


def write_hip(program: SplitProgram) -> str:
    """The text of a split function.

    Raises:
        CodegenError: a kernel holds something that devices, or those of AMD, cannot do.
    """
    return write_kernels(program, HIP_CPP, HipWriter, "HIP C++", _HEAD).text
