"""Barriers out of conditions: every thread comes to each of them, whatever the condition.

Under conditions that all threads of a block agree on they are legal, but compilers that run the
threads one after the other take them apart badly: PoCL 3.1 never ends on one in a condition inside
of two loops. So conditions move inwards, around what stands between barriers.
"""

from __future__ import annotations

from loopwright.codegen.program_queries import touches_memory
from loopwright.ir.expr import Const, Expr, IfThenElse, Unary
from loopwright.ir.stmt import Allocate, Barrier, For, If, Let, Seq, Stmt, View, seq
from loopwright.ir.traversal import contains
from loopwright.ir.visitor import map_statements


def with_unconditional_barriers(s: Stmt) -> Stmt:
    """A statement whose barriers stand under no conditions, but for those that read memory.

    Before::

        if i < 7:
          S[t] = A[t, i]
          barrier(shared)
          B[t, i] = S[7 - t]

    After::

        if i < 7:
          S[t] = A[t, i]
        barrier(shared)
        if i < 7:
          B[t, i] = S[7 - t]
    """
    s = map_statements(s, with_unconditional_barriers)
    if not isinstance(s, If) or not contains(s, Barrier) or touches_memory(s.cond):
        return s
    parts = [_under(s.cond, s.then)]
    if s.orelse is not None:
        parts.append(_under(Unary("not", s.cond, "bool"), s.orelse))
    return seq(*parts)


def _under(cond: Expr, s: Stmt) -> Stmt:
    """A statement with a condition around all of its parts but barriers."""
    if not contains(s, Barrier):
        return If(cond, s)
    match s:
        case Barrier():
            return s
        case Seq(stmts=stmts):
            return _sequence(cond, stmts)
        case Let(var=v, value=e, body=body) if touches_memory(e):
            # Where the condition does not hold, the value is not read.
            safe = IfThenElse(cond, e, Const(0, e.dtype), e.dtype)
            return Let(v, safe, _under(cond, body))
        case For() | Let() | Allocate() | View():
            return map_statements(s, lambda c: _under(cond, c))
    return If(cond, s)


def _sequence(cond: Expr, stmts: tuple[Stmt, ...]) -> Stmt:
    """Statements in order; those that follow one another without a barrier share a condition."""
    out: list[Stmt] = []
    together: list[Stmt] = []
    for x in (*stmts, None):
        if x is not None and not contains(x, Barrier):
            together.append(x)
            continue
        if together:
            out.append(If(cond, seq(*together)))
            together = []
        if x is not None:
            out.append(_under(cond, x))
    return seq(*out)
