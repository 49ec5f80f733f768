"""Simplify: what each rule gives, what must stay, and that the meaning is the same to the bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import (
    Binary,
    Cast,
    Expr,
    IfThenElse,
    Select,
    Unary,
    Var,
    binary,
    cast,
    const,
)
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.printer import print_expr, print_stmt
from loopwright.ir.stmt import For, Func, If, Let, Stmt, Store
from loopwright.lowering.passes.simplify import simplify

A, B = Buffer("A", (64,), "float32"), Buffer("B", (64,), "float32")
X = Buffer("X", (64,), "int32")
i, j, k = Var("i"), Var("j"), Var("k")
a = Load(A, (i,), "float32")
x = Load(X, (i,), "int32")
ZERO, ONE = const(0.0, "float32"), const(1.0, "float32")


def simplified(s: Stmt) -> str:
    return print_stmt(simplify(Func("f", (A, B, X), (False, True, True), s)).body)


def value(e: Expr) -> str:
    """An expression over i < 8, j < 8 after the pass, as text."""
    out = {"float32": B, "int32": X}[e.dtype]
    inner = Store(out, (binary("+", binary("*", i, 8), j),), e)
    text = simplified(For(i, 8, "serial", For(j, 8, "serial", inner)))
    return text.rpartition(" = ")[2]


def raw(op: str, p: Expr, q: Expr, dtype: str | None = None) -> Binary:
    return Binary(op, p, q, dtype or p.dtype)


def less(p: Any, q: Any) -> Expr:
    return Select(binary("<", p, q), ONE, a, "float32")


def integer(n: int) -> Expr:
    return const(n, "int32")


@pytest.mark.parametrize(
    ("e", "text"),
    [
        # affine forms
        (raw("//", binary("+", binary("*", i, 4), 3), integer(4)), "i"),
        (raw("%", binary("+", binary("*", i, 8), j), integer(8)), "j"),
        (raw("-", binary("+", i, j), i), "j"),
        (raw("+", raw("+", i, integer(1)), raw("-", j, integer(1))), "i + j"),
        (raw("+", raw("+", i, integer(1)), integer(1)), "i + 2"),
        (raw("*", raw("+", i, integer(0)), integer(1)), "i"),
        (raw("//", i, integer(8)), "0"),
        (raw("%", i, integer(3)), "i % 3"),
        (raw("//", binary("+", binary("*", i, 4), 9), integer(8)), "(i * 4 + 1) // 8 + 1"),
        # data is no affine form
        (raw("+", x, integer(0)), "X[i]"),
        (raw("*", x, integer(0)), "0"),
        (raw("*", integer(1), x), "X[i]"),
        (raw("tmod", x, integer(1)), "0"),
        (raw("//", x, integer(1)), "X[i]"),
        (raw("-", x, x), "X[i] - X[i]"),
        (Unary("-", Unary("-", x, "int32"), "int32"), "X[i]"),
        (Unary("~", Unary("~", x, "int32"), "int32"), "X[i]"),
        (Cast(x, "int32"), "X[i]"),
        # min, max and comparisons by intervals
        (binary("min", i, 7), "i"),
        (binary("max", i, binary("+", i, 1)), "i + 1"),
        (binary("min", i, 6), "min(i, 6)"),
        (less(i, 8), "1.0"),
        (less(binary("+", i, j), binary("+", j, 8)), "1.0"),
        (less(i, 0), "A[i]"),
        (less(i, 7), "select(i < 7, 1.0, A[i])"),
        (less(x, 7), "select(X[i] < 7, 1.0, A[i])"),
        (Select(binary("==", i, 9), ONE, a, "float32"), "A[i]"),
        (Select(binary("!=", i, i), ONE, a, "float32"), "A[i]"),
        (Select(binary(">=", i, 0), ONE, a, "float32"), "1.0"),
        (Select(raw("and", binary("<", i, 8), binary("<", i, 3)), ONE, a, "float32"),
         "select(i < 3, 1.0, A[i])"),
        (Select(raw("or", binary("<", i, 3), binary("<", i, 8)), ONE, a, "float32"), "1.0"),
        (Select(raw("and", binary("<", i, 3), binary("<", i, 3)), ONE, a, "float32"),
         "select(i < 3, 1.0, A[i])"),
        # choices
        (Select(binary("<", i, 3), a, a, "float32"), "A[i]"),
        (IfThenElse(binary("<", x, 3), a, a, "float32"), "A[i]"),
        (IfThenElse(binary("<", i, 3), IfThenElse(binary("<", i, 3), a, ONE, "float32"), ZERO,
                    "float32"), "(A[i] if i < 3 else 0.0)"),
        (IfThenElse(binary("<", i, 3), ZERO, IfThenElse(binary("<", i, 3), a, ONE, "float32"),
                    "float32"), "(0.0 if i < 3 else 1.0)"),
        # floats: exact for every value
        (raw("*", a, ONE), "A[i]"),
        (raw("*", ONE, a), "A[i]"),
        (raw("/", a, ONE), "A[i]"),
        (raw("-", a, ZERO), "A[i]"),
        (raw("+", a, const(-0.0, "float32")), "A[i]"),
        (raw("+", const(-0.0, "float32"), a), "A[i]"),
        (Unary("-", Unary("-", a, "float32"), "float32"), "A[i]"),
        (raw("max", a, a), "A[i]"),
        (raw("+", ONE, const(2.0, "float32")), "3.0"),
    ],
)  # fmt: skip
def test_rules(e: Expr, text: str) -> None:
    assert value(e) == text


@pytest.mark.parametrize(
    "e",
    [
        raw("+", a, ZERO),  # -0 + 0 is 0
        raw("+", ZERO, a),
        raw("-", a, const(-0.0, "float32")),
        raw("*", a, ZERO),  # NaN, infinity, -0
        raw("-", a, a),
        raw("/", a, a),
        raw("-", ZERO, a),
        raw("+", raw("+", a, ONE), ONE),  # not associative
        Select(raw("==", a, a, "bool"), ONE, ZERO, "float32"),  # false for NaN
        raw("//", raw("*", x, integer(4)), integer(4)),  # may wrap
        Select(raw("<", raw("+", x, integer(1)), x, "bool"), ONE, ZERO, "float32"),
        Cast(Cast(x, "int8"), "int32"),
    ],
)
def test_what_must_stay(e: Expr) -> None:
    assert value(e) == print_expr(e)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_rules_keep_every_bit(dtype: str) -> None:
    values = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 1e-45, 5e-324]
    n = len(values)
    p, q = Buffer("P", (n,), dtype), Buffer("Q", (n,), dtype)
    v = Load(p, (i,), dtype)
    for op in ("+", "-", "*", "/", "min", "max"):
        for c in values:
            for e in (raw(op, v, const(c, dtype)), raw(op, const(c, dtype), v)):
                f = Func("f", (p, q), (False, True), For(i, n, "serial", Store(q, (i,), e)))
                got, want = np.zeros(n, dtype), np.zeros(n, dtype)
                interpret(f, [np.array(values, dtype), want])
                interpret(simplify(f), [np.array(values, dtype), got])
                nan = np.isnan(want)
                np.testing.assert_array_equal(np.isnan(got), nan)
                assert got[~nan].tobytes() == want[~nan].tobytes(), e


def put(e: Expr = ONE, at: Any = i) -> Store:
    return Store(B, (at,), e)


def test_a_decided_branch_is_taken() -> None:
    def loop(cond: Expr, other: Stmt | None = None) -> str:
        return simplified(For(i, 8, "serial", If(cond, put(), other)))

    assert loop(binary("<", i, 8)) == "for i in range(8):\n  B[i] = 1.0"
    assert loop(binary("<", i, 0), put(ZERO)) == "for i in range(8):\n  B[i] = 0.0"
    assert loop(binary("<", i, 0)) == "for i in range(8):\n  pass"
    assert loop(binary("<", i, 7)) == "for i in range(8):\n  if i < 7:\n    B[i] = 1.0"


def test_what_holds_around_a_statement_holds_in_it() -> None:
    inner = If(binary("<", i, 3), put(), put(ZERO))
    cond = raw("and", binary("<", i, 3), binary(">", i, 1))
    assert simplified(For(i, 8, "serial", If(cond, inner))) == (
        "for i in range(8):\n  if i < 3 and i > 1:\n    B[i] = 1.0"
    )
    assert simplified(For(i, 8, "serial", If(binary("<", i, 3), put(), inner))) == (
        "for i in range(8):\n  if i < 3:\n    B[i] = 1.0\n  else:\n    B[i] = 0.0"
    )


def test_a_condition_on_memory_may_change() -> None:
    cond = binary("<", x, 3)
    s = For(i, 8, "serial", If(cond, If(cond, put())))
    assert simplified(s) == print_stmt(s)


def test_both_sides_of_a_select_are_evaluated() -> None:
    """Inside a select the guard of a load stays: the select itself guards nothing."""
    guarded = IfThenElse(binary("<", i, 3), a, ZERO, "float32")
    e = Select(binary("<", i, 3), guarded, ONE, "float32")
    assert value(e) == print_expr(e)


def test_names_of_literals_and_of_other_names_go() -> None:
    s = For(i, 8, "serial", Let(k, i, put(a, binary("+", k, 1))))
    assert simplified(s) == "for i in range(8):\n  B[i + 1] = A[i]"
    s = For(i, 8, "serial", Let(k, raw("-", i, i), put(a, raw("+", raw("*", k, integer(4)), i))))
    assert simplified(s) == "for i in range(8):\n  B[i] = A[i]"


def test_a_loop_of_one_iteration_is_no_loop() -> None:
    assert simplified(For(i, 1, "serial", put(a))) == "B[0] = A[0]"
    assert "threadIdx.x" in simplified(For(i, 1, "thread", put(a), (), "threadIdx.x"))


def test_copies_of_a_nest_that_differ_in_a_name() -> None:
    """Two lets of one variable, one of them a literal: neither value leaks into the other."""
    first = Let(k, integer(3), put(a, binary("+", k, 1)))
    second = Let(k, binary("//", i, 2), put(a, binary("+", k, 1)))
    s = For(i, 8, "serial", If(binary("<", i, 4), first, second))
    assert simplified(s).splitlines()[2:] == [
        "    B[4] = A[i]",
        "  else:",
        "    k = i // 2",
        "    B[k + 1] = A[i]",
    ]


def test_copies_of_a_nest_that_differ_in_an_extent() -> None:
    from loopwright.ir.stmt import Seq

    e = less(j, 4)
    s = Seq((For(j, 4, "serial", put(e, j)), For(j, 8, "serial", put(e, j))))
    text = simplified(For(i, 2, "serial", s))
    assert "B[j] = 1.0" in text
    assert "select(j < 4, 1.0, A[i])" in text


def test_nothing_to_do_gives_the_same_function() -> None:
    s = For(i, 8, "serial", put(binary("*", a, a), binary("+", binary("*", i, 2), 1)))
    f = Func("f", (A, B), (False, True), s)
    assert simplify(f) is f


def test_wide_indices_keep_their_dtype() -> None:
    wide = raw("+", cast(i, "int64"), const(0, "int64"))
    assert simplified(For(i, 8, "serial", put(a, wide))).endswith("B[int64(i)] = A[i]")
