"""LoopInvariantCodeMotion: what is the same in every iteration is computed before the loop."""

from __future__ import annotations

from typing import Any

from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, IfThenElse, Var
from loopwright.ir.stmt import Allocate, For, Func, If, Let, Seq, Stmt, Store
from loopwright.ir.traversal import free_vars
from loopwright.lowering.context import func_pass
from loopwright.lowering.passes.purity import is_cheap, loaded, stored


@func_pass(opt_level=3, name="LoopInvariantCodeMotion")
def loop_invariant_code_motion(f: Func) -> Func:
    """Move expressions out of the loops on which they do not depend, as far as they can go.

    An expression leaves a loop only if every iteration computes it: it stays in the branch that
    guards it. One that reads memory leaves only if the loop does not write that buffer. Sums of
    loops stay: they are addresses.

    Before::

        for i in range(n):
          for j in range(m):
            C[i, j] = exp(A[i]) * B[j]

    After::

        for i in range(n):
          inv = exp(A[i])
          for j in range(m):
            C[i, j] = inv * B[j]
    """
    return f.with_body(_go(f.body))


def _go(s: Any) -> Any:
    if isinstance(s, Expr) or not isinstance(s, Stmt):
        return s
    if not isinstance(s, For):
        return s.map_children(_go)
    if s.kind == "thread" or not isinstance(s.extent, int):
        return s.map_children(_go)
    hoist = _Hoist(s)
    body = _go(hoist.stmt(s.body, frozenset({s.var})))
    made: Stmt = s.map_children(lambda c: body if c is s.body else c)
    for e, v in reversed(hoist.names.items()):
        made = Let(v, e, made)
    return made


class _Hoist:
    """Replaces what can leave one loop by variables; ``inside`` are names that the loop defines."""

    def __init__(self, loop: For) -> None:
        self.names: dict[Expr, Var] = {}
        self.written: set[Buffer] | None = stored(loop.body)

    def stmt(self, s: Any, inside: frozenset[Var]) -> Any:
        """A statement that runs in every iteration, at least once."""
        match s:
            case For() if s.kind != "thread" and isinstance(s.extent, int):
                body = self.stmt(s.body, inside | {s.var})
                return s.map_children(lambda c: body if c is s.body else c)
            case Let(var=v, value=e, body=b):
                value, body = self.expr(e, inside), self.stmt(b, inside | {v})
                return s if value is e and body is b else Let(v, value, body)
            case If(cond=c, then=then, orelse=other):
                cond = self.expr(c, inside)
                return s if cond is c else If(cond, then, other)
            case Seq() | Allocate():
                return s.map_children(lambda c: self.stmt(c, inside))
            case Store():
                return s.map_children(lambda e: self.expr(e, inside))
        return s

    def expr(self, e: Any, inside: frozenset[Var]) -> Any:
        if is_cheap(e):
            return e
        if self.may_leave(e, inside):
            return self.names.setdefault(e, Var("inv", e.dtype))
        if not isinstance(e, IfThenElse):
            return e.map_children(lambda c: self.expr(c, inside))
        cond = self.expr(e.cond, inside)
        return e if cond is e.cond else IfThenElse(cond, e.a, e.b, e.dtype)

    def may_leave(self, e: Expr, inside: frozenset[Var]) -> bool:
        if not inside.isdisjoint(free_vars(e)):
            return False
        read = loaded(e)
        return not read or (self.written is not None and self.written.isdisjoint(read))
