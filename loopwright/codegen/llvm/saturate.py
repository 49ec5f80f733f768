"""Vectors of floats to whole numbers of 8 to 32 bits, cut to their limits.

LLVM's own conversion (``llvm.fptosi.sat``) takes such vectors apart on x86: four instructions and
more for each element. What is cut first, by comparisons of whole vectors, has one instruction for
all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loopwright import dtypes
from loopwright.codegen.llvm.values import Value, llvm_type

if TYPE_CHECKING:
    from loopwright.codegen.llvm.ops import Operations


def is_cut_first(source: str, to: str, lanes: int) -> bool:
    """Whether `saturated` converts so; a register of uint32 has no such instruction."""
    if lanes == 1 or not dtypes.is_float(source) or dtypes.is_float(to):
        return False
    return to != "bool" and dtypes.bits(to) <= 32 and to != "uint32"


def saturated(ops: Operations, v: Value, to: str) -> Value:
    """The nearest whole number towards 0, the nearest limit of the dtype beyond it, 0 of NaN."""
    limits = np.iinfo(to)
    least, most = float(limits.min), _within(limits.max, v.dtype)
    # A comparison with NaN is false, which gives the least number.
    held = ops.select(ops.compare(">", v, ops.const(least, v)), v, ops.const(least, v))
    held = ops.select(ops.compare("<", held, ops.const(most, v)), held, ops.const(most, v))
    source, wide = llvm_type(v.dtype, v.lanes), llvm_type("int32", v.lanes)
    found = Value(ops.emit(f"fptosi {source} {held.ref} to {wide}"), "int32", v.lanes)
    if most < limits.max:  # the float after this one is beyond the limit
        beyond = ops.compare(">", v, ops.const(most, v))
        found = ops.select(beyond, ops.const(limits.max, found), found)
    if least:
        unordered = Value(ops.emit(f"fcmp uno {source} {v.ref}, {v.ref}"), "bool", v.lanes)
        found = ops.select(unordered, ops.const(0, found), found)
    if to == "int32":
        return found
    narrow = llvm_type(to, v.lanes)
    return Value(ops.emit(f"trunc {wide} {found.ref} to {narrow}"), to, v.lanes)


def _within(limit: int, dtype: str) -> float:
    """The largest number of a dtype of floats that is not above a limit."""
    kind = np.dtype(dtype).type
    nearest = kind(limit)
    return float(nearest if int(nearest) <= limit else np.nextafter(nearest, kind(0)))
