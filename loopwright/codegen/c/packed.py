"""`CallPacked` as C: DLPack tensors on the stack, and a call of ``lw_call_packed``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright import dtypes
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr
from loopwright.ir.stmt import CallPacked
from loopwright.runtime import packed_calls as calls

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
void {calls.CALL}(const char *name, lw_value *values, const int32_t *kinds, int32_t count);
"""


def write_call(w: CFamilyWriter, s: CallPacked) -> None:
    """Call a packed function, and leave the function with a code where it has not run."""
    kinds, values = [], []
    with w.block(""):
        for k, arg in enumerate(s.args):
            kind, value = _value(w, arg, k)
            kinds.append(str(kind))
            values.append(value)
        values.append(f"{{.integer = {calls.INTERRUPTED}}}")
        w.put(f"lw_value lw_values[] = {{{', '.join(values)}}};")
        w.put(f"static const int32_t lw_kinds[] = {{{', '.join(kinds) or '0'}}};")
        w.put(f"{calls.CALL}({_text(s.name)}, lw_values, lw_kinds, {len(s.args)});")
        went = f"lw_values[{len(s.args)}].integer"
        w.put(f"if ({went}) return (int32_t){went};")


def _value(w: CFamilyWriter, arg: Buffer | Expr | str, k: int) -> tuple[int, str]:
    """Kind of an argument, and its initializer."""
    if isinstance(arg, str):
        return calls.TEXT, f"{{.text = {_text(arg)}}}"
    if isinstance(arg, Buffer):
        _tensor(w, arg, k)
        kind = calls.INPUT if arg in w.inputs else calls.TENSOR
        return kind, f"{{.tensor = &lw_tensor{k}}}"
    text = w.expr(arg).text
    if dtypes.is_float(arg.dtype):
        return calls.FLOAT, f"{{.number = {text}}}"
    word = f"{{.integer = (int64_t)({text})}}"
    if arg.dtype == "bool":
        return calls.BOOL, word
    return calls.UINT if dtypes.is_unsigned(arg.dtype) else calls.INT, word


def _tensor(w: CFamilyWriter, b: Buffer, k: int) -> None:
    extents = ", ".join(w.count(n).text for n in b.shape) or "0"
    w.put(f"int64_t lw_shape{k}[] = {{{extents}}};")
    dtype = f"{calls.type_code(b.dtype)}, {calls.type_bits(b.dtype)}, 1"
    w.put(
        f"lw_tensor lw_tensor{k} = {{(void *){w.name(b)}, 1, 0, {len(b.shape)}, {dtype}, "
        f"lw_shape{k}, 0, 0}};"
    )


def _text(text: str) -> str:
    return '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"'
