"""RemoveNoOp: drops statements that do nothing."""

from __future__ import annotations

from typing import TypeVar

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Const, Dim, Expr, Unary, Var
from loopwright.ir.node import Node, same
from loopwright.ir.stmt import (
    Allocate,
    CallPacked,
    For,
    Func,
    If,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    seq,
)
from loopwright.ir.visitor import Mutator
from loopwright.lowering.context import func_pass

N = TypeVar("N", bound=Node)
_NOTHING = Seq(())


@func_pass(opt_level=1, name="RemoveNoOp")
def remove_no_op(f: Func) -> Func:
    """Drop empty loops and branches, decided conditions, unused names and idle stores.

    Before::

        T = alloc(float32[8], local)
        for i in range(4):
          k = i + 1
          if False:
            B[i] = 0.0
          A[i] = A[i]
        B[0] = 1.0

    After::

        B[0] = 1.0

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> f = lw.lower(s, [A, B])
        >>> print(lw.transform.RemoveNoOp(f) is f)
        True
    """
    return f.with_body(_Remover().visit(f.body))


class _Remover(Mutator):
    def __init__(self) -> None:
        super().__init__()
        #: Variables and buffers that were read or written so far.
        self.used: set[Var | Buffer] = set()

    def visit_Var(self, e: Var) -> Var:
        self.used.add(e)
        return e

    def use(self, n: Dim) -> None:
        """Note the variables in an extent as used."""
        if isinstance(n, Expr):
            self.visit(n)

    def visit_Load(self, e: Load) -> Load:
        self.used.add(e.buffer)
        return self.rebuilt(e)

    def visit_Store(self, s: Store) -> Stmt:
        value = s.value
        if isinstance(value, Load) and value.buffer is s.buffer and same(value.indices, s.indices):
            return _NOTHING
        self.used.add(s.buffer)
        return self.rebuilt(s)

    def visit_Prefetch(self, s: Prefetch) -> Stmt:
        self.used.add(s.buffer)
        return self.rebuilt(s)

    def visit_CallPacked(self, s: CallPacked) -> Stmt:
        self.used.update(s.buffers)
        return self.rebuilt(s)

    def visit_Seq(self, s: Seq) -> Stmt:
        s = self.rebuilt(s)
        flat = not any(isinstance(x, Seq) for x in s.stmts) and len(s.stmts) != 1
        return s if flat else seq(*s.stmts)

    def visit_For(self, s: For) -> Stmt:
        if isinstance(s.extent, int) and s.extent == 0:
            return _NOTHING
        body: Stmt = self.visit(s.body)
        if body == _NOTHING:
            return _NOTHING
        self.use(s.extent)
        return s.with_body(body)

    def visit_Let(self, s: Let) -> Stmt:
        body: Stmt = self.visit(s.body)
        if s.var not in self.used:
            return body
        self.visit(s.value)
        return s if body is s.body else Let(s.var, s.value, body)

    def visit_Allocate(self, s: Allocate) -> Stmt:
        rebuilt = self.rebuilt(s)
        if s.buffer not in self.used:
            return rebuilt.body
        for n in s.buffer.shape:
            self.use(n)
        return rebuilt

    def visit_If(self, s: If) -> Stmt:
        if isinstance(s.cond, Const):
            return self.rest(s.then if s.cond.value else s.orelse) or _NOTHING
        then, other = self.rest(s.then), self.rest(s.orelse)
        if then is None and other is None:
            return _NOTHING
        self.visit(s.cond)
        if then is None:
            assert other is not None
            return If(Unary("not", s.cond, "bool"), other)
        return s if then is s.then and other is s.orelse else If(s.cond, then, other)

    def rest(self, branch: Stmt | None) -> Stmt | None:
        """The rest of a branch; None if nothing is left."""
        rebuilt: Stmt | None = None if branch is None else self.visit(branch)
        return None if rebuilt == _NOTHING else rebuilt

    def rebuilt(self, n: N) -> N:
        out: N = self.generic_visit(n)
        return out
