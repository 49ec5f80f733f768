"""`CallPacked` as C: DLPack tensors on the stack, and a call of ``lw_call_packed``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from loopwright import dtypes
from loopwright.codegen.c.prelude import Prelude
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr
from loopwright.ir.instructions import DOT_PRODUCTS, DotProduct
from loopwright.ir.stmt import CallPacked
from loopwright.runtime import packed_calls

if TYPE_CHECKING:
    from loopwright.codegen.c.statements import CFamilyWriter


DECLARED = f"""
/* A row-major array: DLPack's DLTensor. */
typedef struct {{
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
}} lw_tensor;
typedef union {{
  int64_t integer;
  double number;
  const char *text;
  lw_tensor *tensor;
}} lw_value;
/* Calls a function that the process knows by name; sets values[count] to 0 when it has run. */
void {packed_calls.CALL}(const char *name, lw_value *values, const int32_t *kinds, int32_t count);
"""


def write_call(w: CFamilyWriter, s: CallPacked) -> None:
    """Call a packed function, and leave the function with a code where it has not run."""
    kinds, values = [], []
    with w.block(""):
        for k, arg in enumerate(s.args):
            kind, value = _value(w, arg, k)
            kinds.append(str(kind))
            values.append(value)
        values.append(f"{{.integer = {packed_calls.INTERRUPTED}}}")
        w.put(f"lw_value lw_values[] = {{{', '.join(values)}}};")
        w.put(f"static const int32_t lw_kinds[] = {{{', '.join(kinds) or '0'}}};")
        w.put(f"{packed_calls.CALL}({_text(s.name)}, lw_values, lw_kinds, {len(s.args)});")
        went = f"lw_values[{len(s.args)}].integer"
        w.put(f"if ({went}) return (int32_t){went};")


def _value(w: CFamilyWriter, arg: Buffer | Expr | str, k: int) -> tuple[int, str]:
    """Kind of an argument, and its initializer."""
    if isinstance(arg, str):
        return packed_calls.TEXT, f"{{.text = {_text(arg)}}}"
    if isinstance(arg, Buffer):
        _tensor(w, arg, k)
        kind = packed_calls.INPUT if arg in w.inputs else packed_calls.TENSOR
        return kind, f"{{.tensor = &lw_tensor{k}}}"
    text = w.expr(arg).text
    if dtypes.is_float(arg.dtype):
        return packed_calls.FLOAT, f"{{.number = {text}}}"
    word = f"{{.integer = (int64_t)({text})}}"
    if arg.dtype == "bool":
        return packed_calls.BOOL, word
    return packed_calls.UINT if dtypes.is_unsigned(arg.dtype) else packed_calls.INT, word


def _tensor(w: CFamilyWriter, b: Buffer, k: int) -> None:
    extents = ", ".join(w.count(n).text for n in b.shape) or "0"
    w.put(f"int64_t lw_shape{k}[] = {{{extents}}};")
    dtype = f"{packed_calls.type_code(b.dtype)}, {packed_calls.type_bits(b.dtype)}, 1"
    w.put(
        f"lw_tensor lw_tensor{k} = {{(void *){w.name(b)}, 1, 0, {len(b.shape)}, {dtype}, "
        f"lw_shape{k}, 0, 0}};"
    )


def _text(text: str) -> str:
    return '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"'


# ---------------------------------------------------------------- instructions
#
# `IntrinsicCall` as C: intrinsics of the compiler, where the target's CPU has the instruction.
# Products of bytes of one sign are explained in `loopwright.codegen.llvm.instructions`.

#: Type, prefix of functions and suffix of loads and stores of a vector by its lanes of int32.
_VECTORS = {
    4: ("__m128i", "_mm", "si128"),
    8: ("__m256i", "_mm256", "si256"),
    16: ("__m512i", "_mm512", "si512"),
}
_POINTERS = {"bfloat16": "uint16_t", "float32": "float"}


def instruction(
    prelude: Prelude, name: str, dot_lanes: Mapping[str, int], by_pairs: bool
) -> str | None:
    """The helper that runs an instruction on pointers to operands; None: the CPU has none.

    ``dot_lanes`` and ``by_pairs`` are `dot_lanes` and `has_dots_by_pairs` of a `Target`.
    """
    dot = DOT_PRODUCTS.get(name)
    native = 0 if dot is None else min(dot.lanes, dot_lanes[dot.result])
    if dot is None or not native:
        return None
    if "immintrin.h" not in prelude:
        prelude.put("immintrin.h", "#include <immintrin.h>")
    helper = f"lw_{name}"
    if helper not in prelude:
        prelude.put(helper, _helper(helper, dot, native, by_pairs))
    return helper


def _helper(name: str, dot: DotProduct, native: int, by_pairs: bool) -> str:
    ty, mm, whole = _VECTORS[native]
    c, a, b = (_POINTERS.get(t, f"{t}_t") for t in (dot.result, dot.data, dot.kernel))
    lines = [
        f"static inline void {name}({c} *c, const {a} *a, const {b} *b) {{",
        "  int32_t group;",
        "  __builtin_memcpy(&group, a, 4);",
        f"  const {ty} x = {mm}_set1_epi32(group);",
    ]
    added = _added_by_pairs if by_pairs and dot.result == "int32" else _added
    for first in range(0, dot.lanes, native):
        kernel = f"{mm}_loadu_{whole}((const {ty} *)(b + {dot.group * first}))"
        lines += ["  {", f"    const {ty} y = {kernel};", *added(dot, native, first), "  }"]
    return "\n".join([*lines, "}"])


def _added(dot: DotProduct, native: int, first: int) -> list[str]:
    """Lines that add the products of ``x`` and ``y`` to the sums from a lane on."""
    ty, mm, whole = _VECTORS[native]
    if dot.result == "float32":
        at, pair = f"c + {first}", ty.replace("i", "bh")
        sums = f"{mm}_dpbf16_ps({mm}_loadu_ps({at}), ({pair})x, ({pair})y)"
        return [f"    {mm}_storeu_ps({at}, {sums});"]
    at = f"({ty} *)(c + {first})"
    old, highest = f"{mm}_loadu_{whole}({at})", f"{mm}_set1_epi32(INT32_C(-0x7f7f7f80))"
    x, y, more = "x", "y", ""
    if dot.data == dot.kernel == "int8":
        more, x = f"{highest}, y", f"{mm}_xor_{whole}(x, {highest})"
    elif dot.data == dot.kernel:
        more, y = f"x, {highest}", f"{mm}_xor_{whole}(y, {highest})"
    elif dot.data == "int8":
        x, y = y, x
    lines = []
    if more:
        lines.append(f"    const {ty} more = {mm}_dpbusd_epi32({mm}_setzero_{whole}(), {more});")
        old = f"{mm}_sub_epi32({old}, more)"
    return [*lines, f"    {mm}_storeu_{whole}({at}, {mm}_dpbusd_epi32({old}, {x}, {y}));"]


def _added_by_pairs(dot: DotProduct, native: int, first: int) -> list[str]:
    """Lines as of `_added`, by two products of pairs of numbers of 16 bits."""
    ty, mm, whole = _VECTORS[native]
    at = f"({ty} *)(c + {first})"
    lines = []
    for name, dtype in (("x", dot.data), ("y", dot.kernel)):
        shift = f"{mm}_sra" if dtype == "int8" else f"{mm}_srl"
        even = f"{shift}i_epi16({mm}_slli_epi16({name}, 8), 8)"
        lines += [
            f"    const {ty} {name}_even = {even};",
            f"    const {ty} {name}_odd = {shift}i_epi16({name}, 8);",
        ]
    even, odd = (f"{mm}_madd_epi16(x_{n}, y_{n})" for n in ("even", "odd"))
    total = f"{mm}_add_epi32({mm}_loadu_{whole}({at}), {mm}_add_epi32({even}, {odd}))"
    return [*lines, f"    {mm}_storeu_{whole}({at}, {total});"]
