"""TVM's ``tir`` names over `loopwright.te`: expressions, and statements written by hand.

``tvm.tir.Select``, ``tvm.tir.const`` and the others are functions of `loopwright.te`. What calls
code of other languages (``call_extern``) is not there, and asking for it says what to write
instead. Packed functions are called from functions written by hand, `prim_func`, which have no
trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from loopwright.errors import TensorError, no_such_name
from loopwright.ir.expr import Expr, ExprLike, IterVar, Var, as_expr, cast
from loopwright.ir.stmt import Stmt
from loopwright.te import (
    abs,
    all,
    any,
    atan,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    ceil,
    comm_reducer,
    const,
    cos,
    cosh,
    div,
    erf,
    exp,
    exp2,
    floor,
    floordiv,
    floormod,
    fmod,
    if_then_else,
    indexdiv,
    indexmod,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    max,
    max_value,
    min,
    min_value,
    nearbyint,
    pow,
    power,
    reinterpret,
    round,
    rsqrt,
    shift_left,
    shift_right,
    sigmoid,
    sin,
    sinh,
    sqrt,
    sum,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from loopwright.te import select as Select
from loopwright.te.tensor import ShapeLike
from loopwright.te.tensor_intrin import OperandBuffer
from loopwright.te.tensor_intrin import decl_buffer as _decl_buffer
from loopwright.tir import ir_builder
from loopwright.tir.calls import call_intrin, call_pure_extern
from loopwright.tir.packed import call_packed, prim_func, stmt_seq

PrimExpr = Expr

#: Names of TVM that cannot be had, and what takes their place.
_FOREIGN = (
    "code of other languages cannot be called from a kernel, since a trace has to be complete; "
    "write the statements with tir.ir_builder, call an instruction with te.call_intrin, or a "
    "function that the process knows by name with tir.call_packed"
)
_NUMBER = "write tir.const(value, dtype); extents of shapes are Python's integers here"
_PASSES = "passes stand in loopwright.transform, and are functions of Func"
_INSTEAD = {
    **dict.fromkeys(("FloatImm", "IntImm"), _NUMBER),
    "Schedule": "schedules are those of te.create_schedule",
    "analysis": "str(loopwright.lower(s, args)) is the loop nest",
    "call_extern": _FOREIGN,
    "call_llvm_intrin": _FOREIGN,
    "call_llvm_pure_intrin": _FOREIGN,
    "stmt_functor": _PASSES,
    "transform": _PASSES,
}

__all__ = [
    "Cast",
    "Expr",
    "IterVar",
    "PrimExpr",
    "Select",
    "Stmt",
    "Var",
    "abs",
    "all",
    "any",
    "atan",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "call_intrin",
    "call_packed",
    "call_pure_extern",
    "ceil",
    "comm_reducer",
    "const",
    "cos",
    "cosh",
    "decl_buffer",
    "div",
    "erf",
    "exp",
    "exp2",
    "floor",
    "floordiv",
    "floormod",
    "fmod",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "ir_builder",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "max_value",
    "min",
    "min_value",
    "nearbyint",
    "pow",
    "power",
    "prim_func",
    "reinterpret",
    "round",
    "rsqrt",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "stmt_seq",
    "sum",
    "tan",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
]  # fmt: skip


def Cast(dtype: str, value: ExprLike) -> Expr:
    """A value in another dtype: ``loopwright.te.cast`` with TVM's order of arguments.

    Example:
        >>> from loopwright import te, tir
        >>> A = te.placeholder((4,), "int32", name="A")
        >>> tir.Cast("float32", A[0]).dtype
        'float32'
    """
    return cast(as_expr(value), dtype)


def decl_buffer(
    shape: ShapeLike,
    dtype: str | None = None,
    name: str = "buffer",
    data: None = None,
    strides: Sequence[int | Expr | None] | None = None,
    elem_offset: ExprLike | None = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
) -> OperandBuffer:
    """Describe an operand's place in memory: `loopwright.te.decl_buffer` with TVM's arguments.

    Args:
        shape: that of the tensor; numbers.
        dtype: that of the tensor; None is float32.
        name: printed name.
        data: None only: loopwright finds the memory.
        strides: for each dimension the elements from one index to the next: a number, or a variable
            or None where any stride will do. None, or empty: row-major without gaps.
        elem_offset: without effect, as are ``data_alignment`` and ``offset_factor``: an operand may
            begin at any element, and code assumes no alignment.
        scope: ``""`` or ``"global"``.
        data_alignment, offset_factor: see ``elem_offset``.
        buffer_type: ``""`` only; ``"auto_broadcast"`` is refused.

    Raises:
        TensorError: as of `loopwright.te.decl_buffer`; or ``data``, another scope, or a
            ``buffer_type`` is given.

    Example:
        >>> from loopwright import te, tir
        >>> b = tir.decl_buffer((4, 8), "float32", "B", offset_factor=1, strides=[te.var("s"), 1])
        >>> b.strides
        (None, 1)
    """
    given = {"data": data is not None, "buffer_type": buffer_type != ""}
    given["scope"] = scope not in ("", "global")
    for argument, is_given in given.items():
        if is_given:
            raise TensorError(
                f"decl_buffer {name!r}: {argument}= is not supported; leave it out (operands lie "
                "in the memory that the schedule gives their tensors)"
            )
    return _decl_buffer(shape, dtype or "float32", name, strides or None)


def __getattr__(name: str) -> NoReturn:
    raise no_such_name("loopwright.tir", name, _INSTEAD)
