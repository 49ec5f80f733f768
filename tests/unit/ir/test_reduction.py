"""Combiners."""

from __future__ import annotations

from loopwright.ir.expr import Var, const
from loopwright.ir.reduction import Combiner


def test_combine() -> None:
    a, b = Var("a", "float32"), Var("b", "float32")
    c = Combiner("sum", a, b, a + b, const(0.0, "float32"))
    x = Var("x", "float32")
    assert c.combine(x, x * 2) == x + x * 2
