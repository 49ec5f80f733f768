"""CUDA C++, which NVRTC compiles, and HIP C++: the source of a function's kernels."""

# Products and sums are contracted only where the text says ``fma``, so that results are those of
# every other target.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from loopwright import dtypes
from loopwright.codegen.c.expressions import Dialect, Prelude
from loopwright.codegen.c.statements import RESERVED
from loopwright.codegen.code import C_FUNCTIONS, MATH_FUNCTIONS
from loopwright.codegen.gpu.split import SplitKernel, SplitProgram
from loopwright.codegen.gpu.writer import ALIGNMENT, KernelWriter, VectorStore, write_kernels
from loopwright.errors import CodegenError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var
from loopwright.ir.instructions import INSTRUCTIONS, SHORT, ldmatrix_row, moved
from loopwright.ir.stmt import AsyncWait, Barrier, IntrinsicCall, Stmt, Store
from loopwright.version import __version__

# ---------------------------------------------------------------- instructions of a warp
#
# Instructions of a warp on the registers of one lane, and asynchronous copies, as CUDA C++ with
# inline PTX.
#
# A register of 32 bits holds two elements of 16, joined and parted by shifts, which the compiler
# removes between instructions. Elements of tf32 are rounded for each instruction; the compiler does
# it once for an element of several.

_HEAD = "static __device__ __forceinline__ void"
_PAIR = """static __device__ __forceinline__ unsigned int lw_pair(const unsigned short *x) {
  return (unsigned int)x[0] | ((unsigned int)x[1] << 16);
}"""
# Not volatile: equal elements are rounded once.
_ROUND = """static __device__ __forceinline__ unsigned int lw_tf32(float x) {
  unsigned int r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}"""


def warp_instruction(prelude: Prelude, name: str) -> str | None:
    """The helper that runs an instruction; None where its plain form is to be written."""
    # It takes pointers to the lane's registers, and for ldmatrix one to the row that the lane
    # gives.
    if name.startswith("mma_m16n8k8_tf32"):
        rounded = [f"lw_tf32({x}[{i}])" for x, n in (("a", 4), ("b", 2)) for i in range(n)]
        mma = _mma("m16n8k8", "tf32", "float", rounded)
        needed = {"lw_tf32": _ROUND, "lw_mma_m16n8k8_tf32": mma}
    elif name.startswith("mma_"):
        dtype = next(short for short in SHORT.values() if f"_{short}{short}f32" in name)
        pairs = [f"lw_pair({x} + {2 * i})" for x, n in (("a", 4), ("b", 2)) for i in range(n)]
        mma = _mma("m16n8k16", dtype, "unsigned short", pairs)
        needed = {"lw_pair": _PAIR, f"lw_mma_m16n8k16_{dtype}": mma}
    elif name.startswith("ldmatrix_x4_"):
        suffix = "_trans" if "_trans_" in name else ""
        needed = {f"lw_ldmatrix_x4{suffix}": _ldmatrix(suffix)}
    else:
        return None
    return _last(prelude, needed)


def _last(prelude: Prelude, helpers: Mapping[str, str]) -> str:
    for name, text in helpers.items():
        prelude.put(name, text)
    return [*helpers][-1]


_PIECE = "template <int BYTES> struct __align__(BYTES) lw_piece { char bytes[BYTES]; };"
# Begins a copy of 4, 8 or 16 bytes from global to shared memory; it copies at once where the
# architecture has no such instruction.
_COPY = """template <int BYTES>
static __device__ __forceinline__ void lw_copy_async(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  const unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
  if (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                 :: "r"(at), "l"(from), "n"(BYTES) : "memory");
  }
#else
  *(lw_piece<BYTES> *)to = *(const lw_piece<BYTES> *)from;
#endif
}"""
_COMMIT = """static __device__ __forceinline__ void lw_commit_async() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}"""
_WAIT = """template <int PENDING> static __device__ __forceinline__ void lw_wait_async() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
#endif
}"""


def _mma(shape: str, dtype: str, element: str, registers: Sequence[str]) -> str:
    sums = ", ".join(f'"+f"(c[{i}])' for i in range(4))
    operands = ", ".join(f'"r"({x})' for x in registers)
    return f"""{_HEAD} lw_mma_{shape}_{dtype}(
    float *c, const {element} *a, const {element} *b) {{
  asm volatile(
      "mma.sync.aligned.{shape}.row.col.f32.{dtype}.{dtype}.f32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : {sums}
      : {operands});
}}"""


def _ldmatrix(suffix: str) -> str:
    ptx = f"ldmatrix.sync.aligned.m8n8.x4{suffix.replace('_', '.')}.shared.b16"
    halves = "\n".join(
        f"  f[{2 * i}] = (unsigned short)r{i}; f[{2 * i + 1}] = (unsigned short)(r{i} >> 16);"
        for i in range(4)
    )
    return f"""{_HEAD} lw_ldmatrix_x4{suffix}(unsigned short *f, const unsigned short *row) {{
  unsigned int r0, r1, r2, r3;
  asm volatile(
      "{ptx} {{%0, %1, %2, %3}}, [%4];"
      : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
      : "r"((unsigned int)__cvta_generic_to_shared(row))
      : "memory");
{halves}
}}"""


# ---------------------------------------------------------------- kernels

#: Most bytes of shared memory that a kernel may declare; more is requested at launch.
STATIC_SHARED = 49152
#: The array of all shared memory that is requested at launch.
_ARENA = "lw_arena"

CUDA_CPP = Dialect(
    "cuda",
    {
        "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
        "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int",
        "uint64": "unsigned long long",
    },
    helper="static __device__ __forceinline__",
    inlined="static __device__ __forceinline__",
    rare="static __device__",
    literals={"int64": "{}LL", "uint32": "{}u", "uint64": "{}ULL"},
    infinity={
        "float32": "__int_as_float(0x7f800000)",
        "float64": "__longlong_as_double(0x7ff0000000000000LL)",
    },
    nan={
        "float32": "__int_as_float(0x7fc00000)",
        "float64": "__longlong_as_double(0x7ff8000000000000LL)",
    },
    unlikely="{}",
    limits_by_name=False,
    wraps=False,
)  # fmt: skip
_WORDS = (
    "alignas alignof and and_eq bitand bitor catch char16_t char32_t class compl concept",
    "const_cast consteval constexpr constinit decltype delete dynamic_cast explicit export",
    "friend mutable namespace new noexcept not not_eq nullptr operator or or_eq private",
    "protected public requires reinterpret_cast static_assert static_cast template this",
    "thread_local throw try typeid typename using virtual wchar_t xor xor_eq threadIdx blockIdx",
    "blockDim gridDim warpSize fma sqrt fabs floor ceil trunc rint fmod fmaf sqrtf fabsf floorf",
    "ceilf truncf rintf fmodf",
)
#: Words that variables may not be called.
_TAKEN = frozenset([*RESERVED, *C_FUNCTIONS, *(word for words in _WORDS for word in words.split())])
_VECTOR = "template <typename T, int N> struct __align__(sizeof(T) * N) lw_vector { T lane[N]; };"
#: Functions that CUDA has in a fast and less exact form.
_FAST = MATH_FUNCTIONS - {"expm1", "log1p", "fmod"} | {"rsqrt"}


class CudaWriter(KernelWriter):
    restrict = "__restrict__"
    #: Whether copies to shared memory may arrive later.
    asynchronous = False

    def __init__(self, prelude: Prelude, kernel: SplitKernel, taken: frozenset[str]) -> None:
        super().__init__(prelude, kernel, taken)
        declared = [b for b in kernel.shared if b.scope != "shared.dyn"]
        too_large = sum(_rounded(b.nbytes) for b in declared) > STATIC_SHARED
        #: Buffers in shared memory that the kernel declares.
        self.static = frozenset(() if too_large else declared)
        dynamic = [b for b in kernel.shared if b not in self.static]
        #: Shared memory that is requested at launch.
        self.shared_bytes = sum(_rounded(b.nbytes) for b in dynamic)

    def head(self, parameters: Sequence[str]) -> str:
        bounds = f"__launch_bounds__({self.kernel.thread_count})"
        given = ", ".join(parameters)
        return f'extern "C" __global__ void {bounds} {self.kernel.name}({given})'

    def axis(self, tag: str) -> str:
        return tag

    def share(self) -> None:
        """Declare small buffers; others are pieces of what the launch gives."""
        if self.shared_bytes:
            self.put(f"extern __shared__ __align__({ALIGNMENT}) unsigned char {_ARENA}[];")
        offset = 0
        for b in self.kernel.shared:
            self.spaces[b] = ""
            self.buffers[b] = None
            if b not in self.static:
                ty = self.pointer_type(b)
                self.put(f"{ty}{self.restrict} {self.name(b)} = ({ty})({_ARENA} + {offset});")
                offset += _rounded(b.nbytes)
            else:
                self.put(f"__shared__ {self.aligned(self.array(b), ALIGNMENT)};")

    def aligned(self, declaration: str, alignment: int) -> str:
        return f"__align__({alignment}) {declaration}"

    def barrier(self, s: Barrier) -> None:
        self.put("__syncthreads();")

    def instruction(self, s: IntrinsicCall) -> bool:
        helper = warp_instruction(self.prelude, s.name)
        if helper is None:
            return False
        lane = next(x.var for x in self.kernel.threads if x.tag == "threadIdx.x")
        pointers = []
        for x, want in zip(s.operands, INSTRUCTIONS[s.name].operands, strict=True):
            at = moved(x, ldmatrix_row(s.name, lane)) if want.fragment is None else x.indices
            pointers.append(f"{self.name(x.buffer)} + ({self.flat(x.buffer, at).text})")
        self.put(f"{helper}({', '.join(pointers)});")
        return True

    def async_group(self, body: Stmt) -> None:
        """Begin copies that become a group; other stores are done at once."""
        self.asynchronous = True
        super().async_group(body)
        self.asynchronous = False
        self.put(f"{self.prelude.put('lw_commit_async', _COMMIT)}();")

    def async_wait(self, s: AsyncWait) -> None:
        self.put(f"{self.prelude.put('lw_wait_async', _WAIT)}<{s.pending}>();")

    def copied_later(self, s: Store, lanes: int) -> bool:
        """Begin a copy of neighbours; False: it is none of 4, 8 or 16 bytes into shared memory."""
        size = lanes * dtypes.nbytes(s.buffer.dtype)
        match s.value:
            case Load(buffer=b, indices=indices) if (
                self.asynchronous
                and size in (4, 8, 16)
                and (b.scope, b.dtype) == ("global", s.buffer.dtype)
                and s.buffer.is_shared
            ):
                to, at = self.flat(s.buffer, s.indices).text, self.flat(b, indices).text
                places = f"{self.name(s.buffer)} + ({to}), {self.name(b)} + ({at})"
                helper = _last(self.prelude, {"lw_piece": _PIECE, "lw_copy_async": _COPY})
                self.put(f"{helper}<{size}>({places});")
                return True
        return False

    def _store(self, b: Buffer, idx: tuple[Expr, ...], v: Expr) -> None:
        if not self.copied_later(Store(b, idx, v), 1):
            super()._store(b, idx, v)

    def _vector_statement(self, x: VectorStore, lane: Var, lanes: int) -> None:
        self._lanes[lane] = 0
        whole = x.is_vector and bool(x.loads)
        begun = whole and self.copied_later(x.store, lanes)
        self._lanes.pop(lane)
        if not begun:
            super()._vector_statement(x, lane, lanes)

    def _vector(self, b: Buffer, lanes: int) -> str:
        self.prelude.put("lw_vector", _VECTOR)
        return f"lw_vector<{self.prelude.dialect.memory_type(b.dtype)}, {lanes}>"

    def vector_load(self, b: Buffer, lanes: int, offset: str, name: str) -> None:
        ty = self._vector(b, lanes)
        self.put(f"const {ty} {name} = *(const {ty} *)({self.name(b)} + ({offset}));")

    def vector_store(self, b: Buffer, lanes: int, offset: str, values: Sequence[str]) -> None:
        ty, element = self._vector(b, lanes), self.prelude.dialect.memory_type(b.dtype)
        made = ", ".join(f"({element})({v})" for v in values)
        self.put(f"*({ty} *)({self.name(b)} + ({offset})) = {ty}{{{{{made}}}}};")

    def component(self, vector: str, lane: int) -> str:
        return f"{vector}.lane[{lane}]"


def _rounded(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class CudaSource:
    text: str
    #: Shared memory that each kernel requests at launch.
    shared_bytes: dict[str, int]


def write_cuda(program: SplitProgram, fast_math: bool = False) -> CudaSource:
    """The source of a split function; ``fast_math`` takes the device's own functions of floats,
    some of them less exact."""
    return _write(program, CUDA_CPP, CudaWriter, "CUDA C++", fast_math=fast_math)


def _write(
    program: SplitProgram,
    dialect: Dialect,
    writer: type[CudaWriter],
    language: str,
    beginning: str = "",
    fast_math: bool = False,
) -> CudaSource:
    prelude = Prelude(True, dialect)
    if fast_math:
        prelude.foreign = _FAST
    writers = [writer(prelude, k, _TAKEN) for k in program.kernels]
    code = write_kernels(program, prelude, writers)
    head = f"/* {program.func.name}: {language} made by loopwright {__version__}. */\n{beginning}"
    return CudaSource(f"{head}\n{code}", {w.kernel.name: w.shared_bytes for w in writers})


# ---------------------------------------------------------------- HIP
#
# HIP C++: the text of a function's kernels for AMD's GPUs, which nothing here compiles or runs. It
# is CUDA C++ with another header, plain copies for asynchronous ones, and no products of tensor
# cores. Kernels and limits are those of the target ``cuda``.

HIP_CPP = replace(CUDA_CPP, name="hip")
# Its compilers contract products and sums where they can, and results shall be those of others.
_HIP_HEAD = "#include <hip/hip_runtime.h>\n#pragma clang fp contract(off)\n"


class HipWriter(CudaWriter):
    def instruction(self, s: IntrinsicCall) -> bool:
        """Refuse instructions of NVIDIA's machines, write others in their plain form."""
        if warp_instruction(self.prelude, s.name) is not None:
            raise CodegenError(
                f"hip: {s.name} is an instruction of NVIDIA's GPUs; leave out tensorize"
            )
        return False

    def async_group(self, body: Stmt) -> None:
        KernelWriter.async_group(self, body)

    def async_wait(self, s: AsyncWait) -> None: ...


def write_hip(program: SplitProgram) -> str:
    return _write(program, HIP_CPP, HipWriter, "HIP C++", _HIP_HEAD).text
