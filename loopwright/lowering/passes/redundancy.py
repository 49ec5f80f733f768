"""Passes that compute an expression once: LoopInvariantCodeMotion and CommonSubexprElim."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import is_
from typing import Any

from loopwright import dtypes
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Const, Expr, IfThenElse, Unary, Var
from loopwright.ir.node import StructuralKey
from loopwright.ir.stmt import (
    Allocate,
    For,
    Func,
    If,
    IntrinsicCall,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    map_statements,
)
from loopwright.ir.visitor import free_vars, nodes
from loopwright.lowering.context import func_pass

#: Nodes of which it is known what they write.
_KNOWN = (Allocate, For, If, IntrinsicCall, Let, Prefetch, Seq, Store, Expr)


def is_cheap(e: Expr) -> bool:
    """Whether an expression is not worth a variable: a literal, a variable, or sums and multiples
    of loops, parts of addresses that code generators share anyway."""
    if isinstance(e, Const | Var):
        return True
    if not dtypes.is_int(e.dtype):
        return False
    if isinstance(e, Binary) and e.op in ("+", "-", "*"):
        return is_cheap(e.a) and is_cheap(e.b)
    return isinstance(e, Unary) and e.op == "-" and is_cheap(e.a)


def loaded(e: Expr) -> set[Buffer]:
    return {n.buffer for n in nodes(e) if isinstance(n, Load)}


def stored(s: Stmt) -> set[Buffer] | None:
    """Buffers that a statement writes or allocates; None where that is not known here."""
    below = list(nodes(s))
    if not all(isinstance(n, _KNOWN) for n in below):
        return None
    return {n.buffer for n in below if isinstance(n, Store | Allocate)}


@func_pass(opt_level=3, name="LoopInvariantCodeMotion")
def loop_invariant_code_motion(f: Func) -> Func:
    """Move expressions out of all loops on which they do not depend.

    An expression leaves a loop only if every iteration computes it; one in a branch stays there. An
    expression that reads memory leaves only if the loop does not write that buffer. Sums of loops
    stay, since they are parts of addresses.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8, 4), lambda i, j: te.exp(A[i]) * j, name="B")
        >>> f = lw.lower(te.create_schedule(B.op), [A, B])
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
    return f.with_body(_hoisted(f.body))


def _hoisted(s: Stmt) -> Stmt:
    if not isinstance(s, For) or not _is_surely_run(s):
        return map_statements(s, _hoisted)
    hoist = _Hoist(s)
    out: Stmt = s.with_body(_hoisted(hoist.stmt(s.body, frozenset({s.var}))))
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
        if is_cheap(e):
            return e
        if self.may_leave(e, inside):
            return self.names.setdefault(StructuralKey(e), Var("inv", e.dtype))
        if not isinstance(e, IfThenElse):
            return e.map_children(lambda c: self.expr(c, inside))
        cond = self.expr(e.cond, inside)
        return e if cond is e.cond else IfThenElse(cond, e.a, e.b, e.dtype)

    def may_leave(self, e: Expr, inside: frozenset[Var]) -> bool:
        if not inside.isdisjoint(free_vars(e)):
            return False
        read = loaded(e)
        return not read or (self.written is not None and self.written.isdisjoint(read))


@func_pass(opt_level=3, name="CommonSubexprElim")
def common_subexpr_elim(f: Func) -> Func:
    """Bind expressions that occur several times in a run of stores.

    A run is one store, or several that follow each other. Sums of loops are left alone, since code
    generators share addresses. An expression that reads memory is shared only where no store of the
    run writes what it reads, and one that occurs only in branches of a choice stays there.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: te.exp(A[i] * 2) + te.sqrt(A[i] * 2), name="B")
        >>> f = lw.lower(te.create_schedule(B.op), [A, B])
        >>> print(f)
        def main(A: float32[8], B: out float32[8]):
          for i in range(8):
            B[i] = exp(A[i] * 2.0) + sqrt(A[i] * 2.0)
        >>> print(lw.transform.CommonSubexprElim(f))
        def main(A: float32[8], B: out float32[8]):
          for i in range(8):
            cse = A[i] * 2.0
            B[i] = exp(cse) + sqrt(cse)
    """
    return f.with_body(_bound(f.body))


def _bound(s: Stmt) -> Stmt:
    if isinstance(s, Store):
        return _bind([s])
    if not isinstance(s, Seq):
        return map_statements(s, _bound)
    # A run is a list of stores that follow each other; any other statement ends one.
    out: list[Stmt] = []
    for _, group in groupby(s.stmts, lambda x: isinstance(x, Store)):
        xs = list(group)
        run = [x for x in xs if isinstance(x, Store)]
        out += [_bind(run)] if run else map(_bound, xs)
    if len(out) == len(s.stmts) and all(map(is_, out, s.stmts)):
        return s
    return out[0] if len(out) == 1 else Seq(tuple(out))


class _Counter:
    """Counts each expression of a run; one that occurs only inside a repeated expression counts
    once."""

    def __init__(self, written: set[Buffer]) -> None:
        self.written = written
        self.count: dict[StructuralKey, int] = {}
        self.always: set[StructuralKey] = set()

    def visit(self, e: Expr, always: bool) -> None:
        """Count an expression; ``always``: it is computed whatever choices around it take."""
        if is_cheap(e):
            return
        key = StructuralKey(e)
        if always:
            self.always.add(key)
        if key in self.count:
            self.count[key] += 1
            return
        if isinstance(e, IfThenElse):
            self.visit(e.cond, always)
            self.visit(e.a, False)
            self.visit(e.b, False)
        else:
            for c in e.children():
                assert isinstance(c, Expr)
                self.visit(c, always)
        self.count[key] = 1  # children first: a let may use those before it

    def shared(self) -> list[StructuralKey]:
        return [
            key
            for key, n in self.count.items()
            if n > 1 and key in self.always and self.written.isdisjoint(loaded(key.node))
        ]


def _bind(run: Sequence[Store]) -> Stmt:
    # A single store has read everything before it writes.
    counter = _Counter({s.buffer for s in run} if len(run) > 1 else set())
    for s in run:
        for e in (*s.indices, s.value):
            counter.visit(e, True)
    names = {key: Var("cse", key.node.dtype) for key in counter.shared()}

    # Any: an expression gives an expression and a statement a statement.
    def replaced(n: Any) -> Any:
        name = names.get(StructuralKey(n))
        return n.map_children(replaced) if name is None else name

    whole: Stmt = run[0] if len(run) == 1 else Seq(tuple(run))
    if not names:
        return whole
    whole = whole.map_children(replaced)
    for key, v in reversed(names.items()):
        whole = Let(v, key.node.map_children(replaced), whole)
    return whole
