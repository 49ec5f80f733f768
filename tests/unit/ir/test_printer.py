"""The loop IR as text: precedence, names, every node."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Select,
    Unary,
    Var,
    binary,
    const,
)
from loopwright.ir.node import node
from loopwright.ir.printer import print_expr
from loopwright.ir.stmt import Allocate, For, Func, If, Let, Seq, Stmt, Store, seq

IX, JX = Var("i"), Var("j")
X = Var("x", "float32")
A = Buffer("A", (4, 4), "float32")


@pytest.mark.parametrize(
    ("e", "text"),
    [
        ((IX + JX) * 2, "(i + j) * 2"),
        (IX + JX * 2, "i + j * 2"),
        (IX - (JX - 1), "i - (j - 1)"),
        (IX - JX - 1, "i - j - 1"),
        ((IX + 1) // 2 % 3, "(i + 1) // 2 % 3"),
        (IX % (JX * 2), "i % (j * 2)"),
        (-(IX + 1), "-(i + 1)"),
        (binary("max", IX, JX + 1), "max(i, j + 1)"),
        (binary("tdiv", IX, 2), "tdiv(i, 2)"),
        (IX < JX + 1, "i < j + 1"),
        (Binary("<", Binary("<", IX, JX, "bool"), IX, "bool"), "(i < j) < i"),
        (Binary("<", IX, Binary("<", JX, IX, "bool"), "bool"), "i < (j < i)"),
        (
            Binary("and", IX < 1, Binary("or", JX < 1, JX > 2, "bool"), "bool"),
            "i < 1 and (j < 1 or j > 2)",
        ),
        (Unary("not", IX < 1, "bool"), "not (i < 1)"),
        (Const(1.5, "float32"), "1.5"),
        (Const(1.5, "float64"), "float64(1.5)"),
        (Const(-3, "int8"), "int8(-3)"),
        (Const(True, "bool"), "True"),
        (Cast(IX + 1, "float32"), "float32(i + 1)"),
        (Select(IX < 1, X, X * 2, "float32"), "select(i < 1, x, x * 2.0)"),
        (IfThenElse(IX < 1, X, Const(0.0, "float32"), "float32"), "(x if i < 1 else 0.0)"),
        (Call("pow", (X, X + 1), "float32"), "pow(x, x + 1.0)"),
        ((IX & 3) << JX + 1 | 5 ^ JX, "(i & 3) << j + 1 | 5 ^ j"),
        ((IX | 3) & ~JX, "(i | 3) & ~j"),
        (~(IX >> 1), "~(i >> 1)"),
        ((IX & 3) < (JX | 1), "i & 3 < j | 1"),
        (Call("fma", (X, X, X), "float32"), "fma(x, x, x)"),
        (Call("reinterpret", (X,), "int32"), "reinterpret(int32, x)"),
        (Load(A, (IX, JX + 1), "float32"), "A[i, j + 1]"),
    ],
)
def test_expressions(e: Expr, text: str) -> None:
    assert print_expr(e) == text


small = st.integers(-3, 3)


def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    ops = st.sampled_from(["+", "-", "*", "//", "%", "<", "and", "or", "&", "|", "^"])

    def make(op: str, a: Expr, b: Expr) -> Expr:
        return Binary(op, a, b, "int32")

    return st.one_of(
        st.builds(make, ops, inner, inner), inner.map(lambda a: Unary("-", a, "int32"))
    )


@given(st.recursive(st.sampled_from([IX, JX]), grow, max_leaves=10), small, small)
def test_python_reads_the_text_as_the_tree(e: Expr, i: int, j: int) -> None:
    """Parentheses are right: Python's own parser gives the same value."""

    def value(n: Expr) -> object:
        match n:
            case Var():
                return {IX: i, JX: j}[n]
            case Unary(a=a):
                return -value(a)  # type: ignore[operator]
            case Binary(op=op, a=a, b=b):
                return eval(f"x {op} y", {"x": value(a), "y": value(b)})
        raise AssertionError(n)

    try:
        want = value(e)
    except ZeroDivisionError:
        return
    try:
        got = eval(print_expr(e), {"i": i, "j": j})
    except ZeroDivisionError:
        return
    assert got == want


def test_names_are_unique() -> None:
    a, b, c = Var("i"), Var("i"), Var("i_1")
    assert print_expr(a + b + c + a) == "i + i_1 + i_1_1 + i"


def test_a_function() -> None:
    out, t = Buffer("C", (4,), "float32"), Buffer("t", (2,), "int8", "local")
    k = Var("k")
    body = Allocate(
        t,
        seq(
            For(
                IX,
                4,
                "parallel",
                Let(
                    k,
                    IX // 2,
                    If(
                        k < 1,
                        Store(out, (IX,), Load(A, (k, IX), "float32")),
                        Store(out, (IX,), Const(0.0, "float32")),
                    ),
                ),
                (("auto_unroll_max_step", 4),),
            ),
            For(JX, 2, "thread", Store(t, (JX,), const(1, "int8")), (), "threadIdx.x"),
            For(JX, 2, "vectorized", For(IX, 2, "serial", Seq(()))),
        ),
    )
    assert str(Func("f", (A, out), (False, True), body)) == (
        "def f(A: float32[4, 4], C: out float32[4]):\n"
        "  t = alloc(int8[2], local)\n"
        "  # auto_unroll_max_step = 4\n"
        "  for i in parallel(4):\n"
        "    k = i // 2\n"
        "    if k < 1:\n"
        "      C[i] = A[k, i]\n"
        "    else:\n"
        "      C[i] = 0.0\n"
        "  for j in threadIdx.x(2):\n"
        "    t[j] = int8(1)\n"
        "  for j in vectorized(2):\n"
        "    for i in range(2):\n"
        "      pass"
    )


def test_an_empty_function() -> None:
    assert str(Func("f", (), (), Seq(()))) == "def f():\n  pass"


def test_a_statement_of_an_extension_is_shown_by_its_class() -> None:
    @node
    class Fence(Stmt):
        level: int

    assert repr(Fence(1)) == "<Fence>"
    assert str(Func("f", (), (), For(IX, 2, "serial", Fence(1)))).splitlines()[1:] == [
        "  for i in range(2):",
        "    <Fence>",
    ]


def test_nodes_have_their_text_whatever_module_is_imported_first() -> None:
    code = "from loopwright.ir.node import Node; print(repr(Node()))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "<Node>\n"
