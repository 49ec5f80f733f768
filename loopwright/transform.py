"""`loopwright.transform`: passes and their context for users, under TVM's names.

Custom passes are functions from `Func` to `Func`; `Mutator` and its kin help to write them.
"""

from __future__ import annotations

from loopwright.ir.expr import Expr
from loopwright.ir.stmt import Func, Stmt
from loopwright.ir.visitor import Mutator, Visitor
from loopwright.lowering import (
    GpuLimits,
    Pass,
    PassContext,
    PassInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    PrintChanged,
    Sequential,
    func_pass,
    limits_of,
    pass_order,
    run_passes,
    verify_gpu_limits,
)
from loopwright.lowering import common_subexpr_elim as CommonSubexprElim
from loopwright.lowering import constant_folding as ConstantFolding
from loopwright.lowering import instrument_bound_checkers as InstrumentBoundCheckers
from loopwright.lowering import loop_invariant_code_motion as LoopInvariantCodeMotion
from loopwright.lowering import remove_no_op as RemoveNoOp
from loopwright.lowering import simplify as Simplify
from loopwright.lowering import skip_vectorize as SkipVectorize
from loopwright.lowering import storage_rewrite as StorageRewrite
from loopwright.lowering import unroll_loop as UnrollLoop
from loopwright.lowering import vectorize_loop as VectorizeLoop

__all__ = [
    "CommonSubexprElim", "ConstantFolding", "ExprMutator", "ExprVisitor", "Func", "GpuLimits",
    "InstrumentBoundCheckers", "LoopInvariantCodeMotion", "Mutator", "Pass", "PassContext",
    "PassInstrument", "PassTimingInstrument", "PrintAfterAll", "PrintBeforeAll", "PrintChanged",
    "RemoveNoOp", "Sequential", "Simplify", "SkipVectorize", "StmtMutator", "StmtVisitor",
    "StorageRewrite", "UnrollLoop", "VectorizeLoop", "Visitor", "func_pass", "limits_of",
    "pass_order", "run_passes", "verify_gpu_limits",
]  # fmt: skip


class ExprVisitor(Visitor):
    """Visits expressions only.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: te.exp(A[i]) + te.sqrt(A[i]), name="B")
        >>> class Calls(lw.transform.ExprVisitor):
        ...     def visit_Call(self, call):
        ...         print(call.fn)
        ...
        >>> Calls().visit(B.op.body)
        exp
        sqrt
    """

    enters = Expr


class StmtVisitor(Visitor):
    """Visits statements only; their expressions are not entered.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> class Loops(lw.transform.StmtVisitor):
        ...     def visit_For(self, loop):
        ...         print(loop.var.name, loop.extent, loop.kind)
        ...         self.generic_visit(loop)
        ...
        >>> Loops().visit(lw.lower(te.create_schedule(B.op), [A, B]).body)
        i 4 serial
    """

    enters = Stmt


class ExprMutator(Mutator):
    """Rebuilds expressions only.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: te.exp(A[i]) + 1, name="B")
        >>> class Cheaper(lw.transform.ExprMutator):
        ...     def visit_Call(self, call):
        ...         return call.args[0]
        ...
        >>> print(B.op.body, "becomes", Cheaper().visit(B.op.body))
        exp(A[i]) + 1.0 becomes A[i] + 1.0
    """

    enters = Expr


class StmtMutator(Mutator):
    """Rebuilds statements only; their expressions are kept as they are.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> class Serial(lw.transform.StmtMutator):
        ...     def visit_For(self, loop):
        ...         return self.generic_visit(loop).of_kind("serial")
        ...
        >>> s = te.create_schedule(B.op)
        >>> s[B].parallel(B.op.axis[0])
        >>> print(Serial().visit(lw.lower(s, [A, B]).body))
        for i in range(4):
          B[i] = A[i] + 1.0
    """

    enters = Stmt
