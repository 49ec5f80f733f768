"""TVM's ``tir`` names over `loopwright.te`: expressions, and statements written by hand.

Code of other languages (``call_extern``) cannot be called, and asking for it says what to write
instead. Packed functions are called from functions written by hand, `prim_func`, without a trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopwright.compat.facade import Table, install

_FOREIGN = (
    "code of other languages cannot be called from a kernel, since a trace has to be complete; "
    "write the statements with tir.ir_builder, call an instruction with te.call_intrin, or a "
    "function that the process knows by name with tir.call_packed"
)
_NUMBER = "write tir.const(value, dtype); extents of shapes are Python's integers here"
_PASSES = "passes stand in loopwright.transform, and are functions of Func"

_TABLES = {
    "": Table(
        "",
        {
            "loopwright.compat.tir": "Cast call_intrin call_packed call_pure_extern decl_buffer "
            "prim_func stmt_seq",
            "loopwright.ir.expr": "Expr IterVar PrimExpr=Expr Var",
            "loopwright.ir.stmt": "Stmt",
            "loopwright.te": """
                Select=select abs all any atan bitwise_and bitwise_not bitwise_or bitwise_xor ceil
                comm_reducer const cos cosh div erf exp exp2 floor floordiv floormod fmod
                if_then_else indexdiv indexmod isfinite isinf isnan log log1p log2 log10 max
                max_value min min_value nearbyint pow power reinterpret round rsqrt shift_left
                shift_right sigmoid sin sinh sqrt sum tan tanh trunc truncdiv truncmod
            """,
        },
        {
            "FloatImm": _NUMBER,
            "IntImm": _NUMBER,
            "Schedule": "schedules are those of te.create_schedule",
            "analysis": "str(loopwright.lower(s, args)) is the loop nest",
            "call_extern": _FOREIGN,
            "call_llvm_intrin": _FOREIGN,
            "call_llvm_pure_intrin": _FOREIGN,
            "stmt_functor": _PASSES,
            "transform": _PASSES,
        },
    ),
    "ir_builder": Table(
        "TVM's ``tir.ir_builder``: statements written by hand, with TVM's forms of loops and "
        "stores.",
        {"loopwright.compat.tir": "BufferVar IRBuilder create=create_builder"},
    ),
}

install(__name__, _TABLES)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
