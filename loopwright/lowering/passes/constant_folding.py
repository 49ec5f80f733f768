"""ConstantFolding: computes operations on literals; the example of how a pass is written, a mutator
that folds (`loopwright.ir.fold`), bottom-up, nodes whose operands have become literals. The
pipeline does not list it, since `Simplify` does this and more."""

from __future__ import annotations

from typing import Any

from loopwright.ir.expr import Expr
from loopwright.ir.fold import fold
from loopwright.ir.node import Node
from loopwright.ir.stmt import Func
from loopwright.ir.visitor import Mutator
from loopwright.lowering.context import func_pass


class ConstantFolder(Mutator):
    def generic_visit(self, n: Node) -> Any:
        rebuilt = super().generic_visit(n)
        return fold(rebuilt) if isinstance(rebuilt, Expr) else rebuilt


@func_pass(opt_level=2, name="ConstantFolding")
def constant_folding(f: Func) -> Func:
    """Compute what depends on literals only, in the dtype and with the rounding of run time.

    Before ``B[i] = A[i] * (2.0 + 3.0)``, after ``B[i] = A[i] * 5.0``.

    Example:
        >>> A = te.placeholder((8,), "int32", name="A")
        >>> B = te.compute((8,), lambda i: A[i] + te.max(te.const(2), 3), name="B")
        >>> s = te.create_schedule(B.op)
        >>> with lw.PassContext(opt_level=0):
        ...     f = lw.lower(s, [A, B])
        ...
        >>> print(f)
        def main(A: int32[8], B: out int32[8]):
          for i in range(8):
            B[i] = A[i] + 3
        >>> print(lw.transform.ConstantFolding(f))
        def main(A: int32[8], B: out int32[8]):
          for i in range(8):
            B[i] = A[i] + 3
    """
    return f.with_body(ConstantFolder().visit(f.body))
