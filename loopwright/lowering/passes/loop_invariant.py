"""LoopInvariantCodeMotion: an expression that no iteration changes is computed before the loop."""

from __future__ import annotations

from typing import Any

from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, IfThenElse, Var
from loopwright.ir.node import StructuralKey
from loopwright.ir.stmt import Allocate, For, Func, If, Let, Seq, Stmt, Store
from loopwright.ir.traversal import free_vars
from loopwright.ir.visitor import map_statements
from loopwright.lowering.context import func_pass
from loopwright.lowering.passes.purity import is_cheap, loaded, stored


@func_pass(opt_level=3, name="LoopInvariantCodeMotion")
def loop_invariant_code_motion(f: Func) -> Func:
    """Move expressions out of all loops on which they do not depend.

    An expression leaves a loop only if every iteration computes it; one in a branch stays there. An
    expression that reads memory leaves only if the loop does not write that buffer. Sums of loops
    stay, since they are parts of addresses.

    Before::

        for i in range(n):
          for j in range(m):
            C[i, j] = exp(A[i]) * B[j]

    After::

        for i in range(n):
          inv = exp(A[i])
          for j in range(m):
            C[i, j] = inv * B[j]

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8, 4), lambda i, j: te.exp(A[i]) * j, name="B")
        >>> s = te.create_schedule(B.op)
        >>> f = lw.lower(s, [A, B])
        >>> print(f)
        def main(A: float32[8], B: out float32[8, 4]):
          for i in range(8):
            for j in range(4):
              B[i, j] = exp(A[i]) * float32(j)
        >>> print(lw.transform.LoopInvariantCodeMotion(f))
        def main(A: float32[8], B: out float32[8, 4]):
          for i in range(8):
            inv = exp(A[i])
            for j in range(4):
              B[i, j] = inv * float32(j)
    """
    return f.with_body(_go(f.body))


def _go(s: Stmt) -> Stmt:
    if not isinstance(s, For) or not _is_surely_run(s):
        return map_statements(s, _go)
    hoist = _Hoist(s)
    out: Stmt = s.with_body(_go(hoist.stmt(s.body, frozenset({s.var}))))
    for key, v in reversed(hoist.names.items()):
        out = Let(v, key.node, out)
    return out


def _is_surely_run(s: For) -> bool:
    return s.kind != "thread" and isinstance(s.extent, int)


class _Hoist:
    """Replaces expressions that can leave one loop by variables; ``inside`` are always the
    variables defined between the loop and the place at hand."""

    def __init__(self, loop: For) -> None:
        #: The expressions, with their variables.
        self.names: dict[StructuralKey, Var] = {}
        #: Buffers that the loop writes; None where that is not known.
        self.written: set[Buffer] | None = stored(loop.body)

    def stmt(self, s: Stmt, inside: frozenset[Var]) -> Stmt:
        """A statement that runs in every iteration, at least once."""
        match s:
            case For() if _is_surely_run(s):
                return s.with_body(self.stmt(s.body, inside | {s.var}))
            case Let(var=v, value=e, body=b):
                value, body = self.expr(e, inside), self.stmt(b, inside | {v})
                return s if value is e and body is b else Let(v, value, body)
            case If(cond=c, then=then, orelse=other):
                cond = self.expr(c, inside)
                return s if cond is c else If(cond, then, other)
            case Seq() | Allocate():
                return map_statements(s, lambda c: self.stmt(c, inside))
            case Store():
                return s.map_children(lambda e: self.expr(e, inside))
        return s  # nothing is moved out of other statements

    # Any: a child of an expression or a store is an expression.
    def expr(self, e: Any, inside: frozenset[Var]) -> Any:
        """An expression that every iteration computes."""
        if is_cheap(e):
            return e
        if self.may_leave(e, inside):
            return self.names.setdefault(StructuralKey(e), Var("inv", e.dtype))
        if not isinstance(e, IfThenElse):
            return e.map_children(lambda c: self.expr(c, inside))
        cond = self.expr(e.cond, inside)
        return e if cond is e.cond else IfThenElse(cond, e.a, e.b, e.dtype)

    def may_leave(self, e: Expr, inside: frozenset[Var]) -> bool:
        """Whether an expression is the same in all iterations."""
        if not inside.isdisjoint(free_vars(e)):
            return False
        read = loaded(e)
        return not read or (self.written is not None and self.written.isdisjoint(read))
