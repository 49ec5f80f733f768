"""CommonSubexprElim: an expression that occurs several times is computed once, by a let."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, IfThenElse, Var
from loopwright.ir.node import StructuralKey
from loopwright.ir.stmt import Func, Let, Seq, Stmt, Store
from loopwright.ir.visitor import map_statements
from loopwright.lowering.context import func_pass
from loopwright.lowering.passes.purity import is_cheap, loaded


@func_pass(opt_level=3, name="CommonSubexprElim")
def common_subexpr_elim(f: Func) -> Func:
    """Bind expressions that occur several times in a run of stores.

    A run is one store, or several that follow each other. Sums of loops are left alone, since code
    generators share addresses. An expression that reads memory is shared only where no store of the
    run writes what it reads, and one that occurs only in branches of a choice stays there.

    Before::

        B[i] = exp(A[i]) + 1.0 / exp(A[i])

    After::

        cse = exp(A[i])
        B[i] = cse + 1.0 / cse

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: te.exp(A[i] * 2) + te.sqrt(A[i] * 2), name="B")
        >>> s = te.create_schedule(B.op)
        >>> f = lw.lower(s, [A, B])
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
    return f.with_body(_go(f.body))


def _go(s: Stmt) -> Stmt:
    if isinstance(s, Store):
        return _bind([s])
    if not isinstance(s, Seq):
        return map_statements(s, _go)
    out: list[Stmt] = []
    run: list[Store] = []
    for x in s.stmts:
        if isinstance(x, Store):
            run.append(x)
            continue
        out += [_bind(run)] if run else []
        run = []
        out.append(_go(x))
    out += [_bind(run)] if run else []
    same = len(out) == len(s.stmts) and all(a is b for a, b in zip(out, s.stmts, strict=True))
    if same:
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
            self._visit_children(e, always)
        self.count[key] = 1  # children first: a let may use those before it

    def _visit_children(self, e: Expr, always: bool) -> None:
        for c in e.children():
            assert isinstance(c, Expr)
            self.visit(c, always)

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
