"""OpenCL C 1.2: the source of a function's kernels, which the device's driver compiles."""

# Products and sums are contracted only where the text says ``fma``, so that results are those of
# every other target. Devices without float64 refuse kernels that use it.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopwright.codegen.c.expressions import Dialect, Prelude
from loopwright.codegen.c.statements import RESERVED
from loopwright.codegen.code import C_FUNCTIONS
from loopwright.codegen.gpu.split import AXES, SplitProgram, with_unconditional_barriers
from loopwright.codegen.gpu.writer import ALIGNMENT, LANES, KernelWriter, write_kernels
from loopwright.ir.buffer import Buffer
from loopwright.ir.stmt import Barrier
from loopwright.version import __version__

OPENCL_C = Dialect(
    "opencl",
    {
        "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar",
        "uint16": "ushort", "uint32": "uint", "uint64": "ulong",
    },
    inlined="static inline",
    rare="static",
    literals={"int64": "{}L", "uint32": "{}u", "uint64": "{}UL"},
    infinity={"float32": "INFINITY", "float64": "INFINITY"},
    nan={"float32": "NAN", "float64": "NAN"},
    float_suffix="",
    unlikely="{}",
    limits_by_name=False,
    wraps=False,
)  # fmt: skip
_SCALARS = (
    "char", "short", "int", "long", "uchar", "ushort", "uint", "ulong", "half", "float", "double",
    "bool",
)  # fmt: skip
_WORDS = (
    "kernel global local constant private generic read_only write_only read_write pipe uniform",
    "event_t sampler_t size_t ptrdiff_t intptr_t uintptr_t NAN INFINITY MAXFLOAT HUGE_VAL",
    "fma sqrt fabs floor ceil trunc rint fmod barrier get_group_id get_local_id",
)
#: Words that variables may not be called.
_TAKEN = frozenset(
    [
        *RESERVED, *C_FUNCTIONS, *_SCALARS, *(word for words in _WORDS for word in words.split()),
        *(f"{t}{n}" for t in _SCALARS for n in LANES), *(f"{t}3" for t in _SCALARS),
        *(f"v{what}{n}" for what in ("load", "store") for n in LANES),
    ]
)  # fmt: skip


class OpenClWriter(KernelWriter):
    global_space = "__global"
    shared_space = "__local"
    aligned_vectors = False

    def head(self, parameters: Sequence[str]) -> str:
        sizes = ", ".join(map(str, self.kernel.extents("threadIdx")))
        attribute = f"__attribute__((reqd_work_group_size({sizes})))"
        return f"__kernel {attribute}\nvoid {self.kernel.name}({', '.join(parameters)})"

    def axis(self, tag: str) -> str:
        which, axis = tag.split(".")
        function = "get_group_id" if which == "blockIdx" else "get_local_id"
        return f"{function}({AXES.index(axis)})"

    def share(self) -> None:
        for b in self.kernel.shared:
            self.spaces[b] = self.shared_space
            self.buffers[b] = None
            self.put(f"__local {self.aligned(self.array(b), ALIGNMENT)};")

    def aligned(self, declaration: str, alignment: int) -> str:
        return f"{declaration} __attribute__((aligned({alignment})))"

    def barrier(self, s: Barrier) -> None:
        fence = "CLK_LOCAL_MEM_FENCE"
        if s.scope != "shared" or any(b.scope != "global" for b in self.kernel.parameters):
            fence += " | CLK_GLOBAL_MEM_FENCE"
        self.put(f"barrier({fence});")

    def _vector(self, b: Buffer, lanes: int) -> str:
        return f"{self.prelude.dialect.memory_type(b.dtype)}{lanes}"

    def vector_load(self, b: Buffer, lanes: int, offset: str, name: str) -> None:
        """Declare a vector and load it; it need not be aligned."""
        at = f"{self.name(b)} + ({offset})"
        self.put(f"const {self._vector(b, lanes)} {name} = vload{lanes}(0, {at});")

    def vector_store(self, b: Buffer, lanes: int, offset: str, values: Sequence[str]) -> None:
        made = f"({self._vector(b, lanes)})({', '.join(values)})"
        self.put(f"vstore{lanes}({made}, 0, {self.name(b)} + ({offset}));")

    def component(self, vector: str, lane: int) -> str:
        return f"{vector}.s{lane:x}"


def write_opencl(program: SplitProgram) -> str:
    prelude = Prelude(True, OPENCL_C)
    kernels = [replace(k, body=with_unconditional_barriers(k.body)) for k in program.kernels]
    code = write_kernels(program, prelude, [OpenClWriter(prelude, k, _TAKEN) for k in kernels])
    head = f"/* {program.func.name}: OpenCL C made by loopwright {__version__}. */\n"
    if "double" in code:
        head += "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
    return f"{head}#pragma OPENCL FP_CONTRACT OFF\n\n{code}"
