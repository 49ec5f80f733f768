"""RemoveNoOp: what does nothing is dropped."""

from __future__ import annotations

from typing import Any

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Const, Expr, Unary, Var
from loopwright.ir.stmt import Allocate, For, Func, If, Let, Prefetch, Seq, Stmt, Store, seq
from loopwright.ir.visitor import Mutator
from loopwright.lowering.context import func_pass

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
    """
    return f.with_body(_Remover().visit(f.body))


class _Remover(Mutator):
    """Bottom-up, in one walk; ``used`` holds the names seen so far."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[Var | Buffer] = set()

    def visit_Var(self, e: Var) -> Var:
        self.used.add(e)
        return e

    def use(self, n: Any) -> None:
        """Count the names in an extent."""
        if isinstance(n, Expr):
            self.visit(n)

    def visit_Load(self, e: Load) -> Any:
        self.used.add(e.buffer)
        return self.generic_visit(e)

    def visit_Store(self, s: Store) -> Stmt:
        value = s.value
        if isinstance(value, Load) and value.buffer is s.buffer and value.indices == s.indices:
            return _NOTHING
        self.used.add(s.buffer)
        return self.generic_visit(s)

    def visit_Prefetch(self, s: Prefetch) -> Stmt:
        self.used.add(s.buffer)
        return self.generic_visit(s)

    def visit_Seq(self, s: Seq) -> Stmt:
        made = self.generic_visit(s)
        flat = not any(isinstance(x, Seq) for x in made.stmts) and len(made.stmts) != 1
        return made if flat else seq(*made.stmts)

    def visit_For(self, s: For) -> Stmt:
        if s.extent == 0:
            return _NOTHING
        made = self.visit(s.body)
        if made == _NOTHING:
            return _NOTHING
        self.use(s.extent)
        return s.map_children(lambda c: made if c is s.body else c)

    def visit_Let(self, s: Let) -> Stmt:
        body = self.visit(s.body)
        if s.var not in self.used:
            return body
        self.visit(s.value)
        return s if body is s.body else Let(s.var, s.value, body)

    def visit_Allocate(self, s: Allocate) -> Stmt:
        made = self.generic_visit(s)
        if s.buffer not in self.used:
            return made.body
        for n in s.buffer.shape:
            self.use(n)
        return made

    def visit_If(self, s: If) -> Stmt:
        if isinstance(s.cond, Const):
            taken = s.then if s.cond.value else s.orelse
            return _NOTHING if taken is None else self.visit(taken)
        then = self.visit(s.then)
        other = None if s.orelse is None else self.visit(s.orelse)
        if other == _NOTHING:
            other = None
        if then == _NOTHING:
            if other is None:
                return _NOTHING
            self.visit(s.cond)
            return If(Unary("not", s.cond, "bool"), other)
        self.visit(s.cond)
        return s if then is s.then and other is s.orelse else If(s.cond, then, other)
