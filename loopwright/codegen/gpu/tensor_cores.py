"""Instructions of a warp on the registers of one lane, and asynchronous copies, as CUDA C++ with
inline PTX.

A register of 32 bits holds two elements of 16, joined and parted by shifts, which the compiler
removes between instructions. Elements of tf32 are rounded for each instruction; the compiler does
it once for an element of several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopwright.codegen.c.prelude import Prelude
from loopwright.ir.warp_instructions import SHORT

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
    """The helper that runs an instruction; None where its plain form is to be written.

    It takes pointers to the lane's registers, and for ldmatrix one to the row that the lane gives.
    Instructions are named as in `loopwright.ir.warp_instructions`.
    """
    if name.startswith("mma_m16n8k8_tf32"):
        needed = {"lw_tf32": _ROUND, "lw_mma_m16n8k8_tf32": _mma_tf32()}
    elif name.startswith("mma_"):
        dtype = next(short for short in SHORT.values() if f"_{short}{short}f32" in name)
        needed = {"lw_pair": _PAIR, f"lw_mma_m16n8k16_{dtype}": _mma_16_bits(dtype)}
    elif name.startswith("ldmatrix_x4_"):
        suffix = "_trans" if "_trans_" in name else ""
        needed = {f"lw_ldmatrix_x4{suffix}": _ldmatrix(suffix)}
    else:
        return None
    return _last(prelude, needed)


def _last(prelude: Prelude, helpers: Mapping[str, str]) -> str:
    """The last of some helpers, which needs those before it."""
    for name, text in helpers.items():
        if name not in prelude:
            prelude.put(name, text)
    return [*helpers][-1]


def copy_async(prelude: Prelude) -> str:
    """The helper that begins a copy of 4, 8 or 16 bytes from global to shared memory; it copies at
    once where the architecture has no such instruction."""
    return _last(prelude, {"lw_piece": _PIECE, "lw_copy_async": _COPY})


def commit_async(prelude: Prelude) -> str:
    """The helper that makes a group of the copies begun before."""
    return _last(prelude, {"lw_commit_async": _COMMIT})


def wait_async(prelude: Prelude) -> str:
    """The helper that waits for all groups but the last ones."""
    return _last(prelude, {"lw_wait_async": _WAIT})


_PIECE = "template <int BYTES> struct __align__(BYTES) lw_piece { char bytes[BYTES]; };"
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


def _mma_16_bits(dtype: str) -> str:
    pairs = [f"lw_pair({x} + {2 * i})" for x, n in (("a", 4), ("b", 2)) for i in range(n)]
    return _mma("m16n8k16", dtype, "unsigned short", pairs)


def _mma_tf32() -> str:
    rounded = [f"lw_tf32({x}[{i}])" for x, n in (("a", 4), ("b", 2)) for i in range(n)]
    return _mma("m16n8k8", "tf32", "float", rounded)


def _mma(shape: str, dtype: str, element: str, registers: Sequence[str]) -> str:
    """The helper of an mma whose operands are four registers and two."""
    sums = ", ".join(f'"+f"(c[{i}])' for i in range(4))
    given = ", ".join(f'"r"({x})' for x in registers)
    return f"""{_HEAD} lw_mma_{shape}_{dtype}(
    float *c, const {element} *a, const {element} *b) {{
  asm volatile(
      "mma.sync.aligned.{shape}.row.col.f32.{dtype}.{dtype}.f32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : {sums}
      : {given});
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
