"""RemoveNoOp: what goes, and what looks idle and is not."""

from __future__ import annotations

import pytest

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var, binary, const
from loopwright.ir.printer import print_stmt
from loopwright.ir.stmt import Allocate, For, Func, If, Let, Seq, Stmt, Store
from loopwright.lowering.passes.simplify import remove_no_op

A, B = Buffer("A", (8,), "float32"), Buffer("B", (8,), "float32")
T = Buffer("T", (8,), "float32", "local")
i, k = Var("i"), Var("k")
NOTHING, TRUE, FALSE = Seq(()), const(True, "bool"), const(False, "bool")
COND = binary("<", i, 3)


def put(value: float = 1.0) -> Store:
    return Store(B, (i,), const(value, "float32"))


def loop(body: Stmt, extent: int = 8) -> Stmt:
    return For(i, extent, "serial", body)


@pytest.mark.parametrize(
    ("s", "text"),
    [
        (loop(NOTHING), "pass"),
        (loop(put(), 0), "pass"),
        (loop(For(k, 4, "parallel", NOTHING)), "pass"),
        (loop(If(TRUE, put(), put(2.0))), "for i in range(8):\n  B[i] = 1.0"),
        (loop(If(FALSE, put(), put(2.0))), "for i in range(8):\n  B[i] = 2.0"),
        (loop(If(FALSE, put())), "pass"),
        (loop(If(COND, NOTHING, NOTHING)), "pass"),
        (loop(If(COND, put(), NOTHING)), "for i in range(8):\n  if i < 3:\n    B[i] = 1.0"),
        (loop(If(COND, NOTHING, put())), "for i in range(8):\n  if not (i < 3):\n    B[i] = 1.0"),
        (loop(Store(A, (i,), Load(A, (i,), "float32"))), "pass"),
        (loop(Let(k, i, put())), "for i in range(8):\n  B[i] = 1.0"),
        (loop(Seq((NOTHING, put(), Seq((NOTHING,))))), "for i in range(8):\n  B[i] = 1.0"),
        (Allocate(T, loop(put())), "for i in range(8):\n  B[i] = 1.0"),
    ],
)
def test_removed(s: Stmt, text: str) -> None:
    assert print_stmt(remove_no_op(Func("f", (A, B), (False, True), s)).body) == text


KEPT = {
    "the same place of another buffer": loop(Store(B, (i,), Load(A, (i,), "float32"))),
    "another place": loop(Store(A, (i,), Load(A, (binary("-", 7, i),), "float32"))),
    "a name used in an index": loop(Let(k, i, Store(B, (k,), const(1.0, "float32")))),
    "a buffer that is only read": Allocate(T, loop(Store(B, (i,), Load(T, (i,), "float32")))),
    "a condition that is not known": loop(If(COND, put(), put(2.0))),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    f = Func("f", (A, B), (False, True), KEPT[name])
    assert remove_no_op(f) is f


def test_a_name_of_a_name() -> None:
    inner = Store(B, (k,), const(1.0, "float32"))
    a = Var("a")
    used = loop(Let(a, binary("+", i, 1), Let(k, binary("-", a, 1), inner)))
    f = Func("f", (B,), (True,), used)
    assert remove_no_op(f) is f
    idle = loop(Let(a, binary("+", i, 1), Let(k, binary("-", a, 1), put())))
    assert print_stmt(remove_no_op(Func("f", (B,), (True,), idle)).body) == print_stmt(loop(put()))
