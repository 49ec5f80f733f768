"""Combiners."""

from __future__ import annotations

from loopwright.ir.expr import Var, const
from loopwright.ir.reduction import Combiner, Reduce, Tuple, outputs_of


def test_combine() -> None:
    a, b = Var("a", "float32"), Var("b", "float32")
    c = Combiner("sum", (a,), (b,), (a + b,), (const(0.0, "float32"),))
    x = Var("x", "float32")
    assert c.combine([x], [x * 2]) == (x + x * 2,)


def test_combine_tuples() -> None:
    """Entries are replaced at once: what one output becomes does not leak into another."""
    a, b, c, d = (Var(n) for n in "abcd")
    zero = const(0, "int32")
    swap = Combiner("swap", (a, b), (c, d), (a + d, b + c), (zero, zero))
    assert swap.combine([b, a], [d, c]) == (b + c, a + d)


def test_where_a_reduction_starts() -> None:
    a, b, x = Var("a"), Var("b"), Var("x")
    c = Combiner("sum", (a,), (b,), (a + b,), (const(0, "int32"),))
    assert Reduce(c, (x,), (), None, None, "int32").start == (const(0, "int32"),)
    assert Reduce(c, (x,), (), None, (x,), "int32").start == (x,)


def test_outputs_of_a_body() -> None:
    a, b = Var("a"), Var("b", "float32")
    c = Combiner("c", (a, b), (a, b), (a, b), (a, b))
    assert outputs_of(a) == (a,)
    assert outputs_of(Tuple((a, b), "int32")) == (a, b)
    assert outputs_of(Reduce(c, (a, b), (), None, None, "int32")) == (a, b)
