"""CommonSubexprElim: what a statement computes several times is computed once, by a let."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, IfThenElse, Var
from loopwright.ir.stmt import Func, Let, Seq, Stmt, Store
from loopwright.lowering.context import func_pass
from loopwright.lowering.passes.purity import is_cheap, loaded


@func_pass(opt_level=3, name="CommonSubexprElim")
def common_subexpr_elim(f: Func) -> Func:
    """Bind expressions that occur several times in a run of stores.

    Sums of loops are left alone: code generators share addresses. An expression that reads memory
    is shared only where no store of the run writes what it reads, and one that occurs only in
    branches of a choice stays there.

    Before::

        B[i] = exp(A[i]) + 1.0 / exp(A[i])

    After::

        cse = exp(A[i])
        B[i] = cse + 1.0 / cse
    """
    return f.with_body(_go(f.body))


def _go(s: Any) -> Any:
    if isinstance(s, Expr):
        return s
    if isinstance(s, Store):
        return _bind([s])
    if not isinstance(s, Seq):
        return s.map_children(_go)
    made: list[Stmt] = []
    run: list[Store] = []
    for x in s.stmts:
        if isinstance(x, Store):
            run.append(x)
            continue
        made += [_bind(run)] if run else []
        run = []
        made.append(_go(x))
    made += [_bind(run)] if run else []
    same = len(made) == len(s.stmts) and all(a is b for a, b in zip(made, s.stmts, strict=True))
    if same:
        return s
    return made[0] if len(made) == 1 else Seq(tuple(made))


class _Counter:
    """How often each expression of a run occurs, children of a repeated one counted once."""

    def __init__(self, written: set[Buffer]) -> None:
        self.written = written
        self.count: dict[Expr, int] = {}
        self.always: set[Expr] = set()

    def visit(self, e: Expr, always: bool) -> None:
        if is_cheap(e):
            return
        if always:
            self.always.add(e)
        if e in self.count:
            self.count[e] += 1
            return
        if isinstance(e, IfThenElse):
            self.visit(e.cond, always)
            self.visit(e.a, False)
            self.visit(e.b, False)
        else:
            for c in e.children():
                self.visit(c, always)
        self.count[e] = 1  # children first: a let may use those before it

    def shared(self) -> list[Expr]:
        return [
            e
            for e, n in self.count.items()
            if n > 1 and e in self.always and self.written.isdisjoint(loaded(e))
        ]


def _bind(run: Sequence[Store]) -> Stmt:
    # A single store has read everything before it writes.
    counter = _Counter({s.buffer for s in run} if len(run) > 1 else set())
    for s in run:
        for e in (*s.indices, s.value):
            counter.visit(e, True)
    names = {e: Var("cse", e.dtype) for e in counter.shared()}

    def replaced(n: Any) -> Any:
        return names[n] if n in names else n.map_children(replaced)

    whole: Stmt = run[0] if len(run) == 1 else Seq(tuple(run))
    if not names:
        return whole
    whole = whole.map_children(replaced)
    for e, v in reversed(names.items()):
        whole = Let(v, e.map_children(replaced), whole)
    return whole
