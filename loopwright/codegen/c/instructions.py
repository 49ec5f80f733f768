"""`IntrinsicCall` as C: intrinsics of the compiler, where the target's CPU has the instruction."""

from __future__ import annotations

from loopwright.codegen.c.prelude import Prelude

#: Lanes of the instruction for dot products of bytes.
_DOTS = {f"dot_{lanes}x4_u8s8s32": lanes for lanes in (4, 8, 16)}
#: Type, prefix of functions and suffix of loads and stores of a vector by its lanes of int32.
_VECTORS = {
    4: ("__m128i", "_mm", "si128"),
    8: ("__m256i", "_mm256", "si256"),
    16: ("__m512i", "_mm512", "si512"),
}


def instruction(prelude: Prelude, name: str, dot_lanes: int) -> str | None:
    """The helper that does what an instruction does to pointers to its operands.

    Args:
        prelude: of the file.
        name: of the instruction, as in `loopwright.ir.instructions`.
        dot_lanes: most lanes of the CPU's dot product of bytes; 0 where it has none.

    Returns:
        The helper's name, or None where the CPU has no such instruction.
    """
    lanes = _DOTS.get(name, 0)
    native = min(lanes, dot_lanes)
    if not native:
        return None
    if "immintrin.h" not in prelude:
        prelude.put("immintrin.h", "#include <immintrin.h>")
    helper = f"lw_{name}"
    if helper not in prelude:
        prelude.put(helper, _dot(helper, lanes, native))
    return helper


def _dot(helper: str, lanes: int, native: int) -> str:
    ty, mm, whole = _VECTORS[native]
    lines = [
        f"static inline void {helper}(int32_t *c, const uint8_t *a, const int8_t *b) {{",
        "  int32_t four;",
        "  __builtin_memcpy(&four, a, 4);",
        f"  const {ty} x = {mm}_set1_epi32(four);",
    ]
    for first in range(0, lanes, native):
        at, bytes_b = f"({ty} *)(c + {first})", f"(const {ty} *)(b + {4 * first})"
        sums = f"{mm}_dpbusd_epi32({mm}_loadu_{whole}({at}), x, {mm}_loadu_{whole}({bytes_b}))"
        lines.append(f"  {mm}_storeu_{whole}({at}, {sums});")
    return "\n".join([*lines, "}"])
