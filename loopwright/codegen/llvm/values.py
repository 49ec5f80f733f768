"""Values of LLVM IR: their text, dtype and lanes; types and literals in LLVM's spelling."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from loopwright import dtypes

#: Values of 16-bit floats are kept as the float32 that equals them.
_REGISTERS = {
    "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double", "bool": "i1",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Value:
    """A computed value: its text (a register or a literal), element dtype and number of lanes."""

    ref: str
    dtype: str
    lanes: int = 1


def llvm_type(dtype: str, lanes: int = 1) -> str:
    base = _REGISTERS.get(dtype)
    if base is None:
        base = f"i{dtypes.bits(dtype)}"
    return base if lanes == 1 else f"<{lanes} x {base}>"


#: Conditions that are known; such a value has one lane.
TRUE, FALSE = "true", "false"


def literal(value: float, dtype: str) -> str:
    """A literal in LLVM's spelling; floats as the bits of a double."""
    if dtype == "bool":
        return TRUE if value else FALSE
    if not dtypes.is_float(dtype):
        return str(int(value))
    bits = struct.unpack("<Q", struct.pack("<d", float(value)))[0]
    return f"0x{bits:016X}"
