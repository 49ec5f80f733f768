"""Visitors and mutators, and the example pass that is written with one."""

from __future__ import annotations

from typing import Any

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Const, Expr, Var, binary, const
from loopwright.ir.stmt import For, Func, Let, Seq, Stmt, Store, map_statements
from loopwright.ir.visitor import Visitor
from loopwright.lowering.passes.simplify import constant_folding
from loopwright.transform import ExprMutator, ExprVisitor, StmtMutator, StmtVisitor

A, B = Buffer("A", (8,), "float32"), Buffer("B", (8,), "float32")
i, k = Var("i"), Var("k")
VALUE = binary("*", Load(A, (i,), "float32"), Binary("+", *[const(1.5, "float32")] * 2, "float32"))
BODY = For(i, 8, "serial", Let(k, binary("+", i, 0), Store(B, (i,), VALUE)))


class Names(Visitor):
    """Classes of nodes in the order of the walk; does not enter loads."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def visit_Load(self, e: Load) -> None:
        self.seen.append("Load!")

    def generic_visit(self, n: Any) -> None:
        self.seen.append(type(n).__name__)
        super().generic_visit(n)


def test_a_visitor_goes_where_there_is_no_method() -> None:
    names = Names()
    names.visit(BODY)
    assert names.seen == [
        "For", "Var", "Let", "Var", "Var", "Store", "Var", "Binary", "Load!", "Binary", "Const",
        "Const",
    ]  # fmt: skip


def test_visitors_of_one_kind() -> None:
    class Count(StmtVisitor):
        stores = 0

        def visit_Store(self, s: Store) -> None:
            self.stores += 1

        def visit_Load(self, e: Load) -> None:
            raise AssertionError("a statement visitor enters no expression")

    count = Count()
    count.visit(BODY)
    assert count.stores == 1

    class Consts(ExprVisitor):
        def __init__(self) -> None:
            super().__init__()
            self.values: list[float] = []

        def visit_Const(self, e: Const) -> None:
            self.values.append(e.value)

    consts = Consts()
    consts.visit(VALUE)
    assert consts.values == [1.5, 1.5]


def test_a_mutator_keeps_what_does_not_change() -> None:
    class Double(ExprMutator):
        def visit_Const(self, e: Const) -> Expr:
            return const(e.value * 2, e.dtype) if e.dtype == "float32" else e

    assert str(Double().visit(VALUE).b.a.value) == "3.0"
    assert Double().visit(i) is i
    assert ExprMutator().visit(VALUE) is VALUE

    class Renamed(StmtMutator):
        def visit_Store(self, s: Store) -> Store:
            return Store(A, s.indices, s.value)

    made = Renamed().visit(BODY)
    assert made.body.body.buffer is A
    assert made.body.body.value is VALUE
    assert StmtMutator().visit(BODY) is BODY


def test_constant_folding() -> None:
    f = constant_folding(Func("f", (A, B), (False, True), BODY))
    assert "B[i] = A[i] * 3.0" in str(f)
    assert constant_folding(f) is f


def test_map_statements_keeps_expressions() -> None:
    seen: list[Stmt] = []

    def visit(s: Stmt) -> Stmt:
        seen.append(s)
        return s

    assert map_statements(BODY, visit) is BODY
    assert seen == [BODY.body]
    assert map_statements(BODY, lambda _: Seq(())) == For(i, 8, "serial", Seq(()))
