"""Buffers and loads."""

from __future__ import annotations

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var


def test_buffers() -> None:
    b = Buffer("B", (2, 3), "float64")
    assert (b.size, b.nbytes, b.scope) == (6, 48, "global")
    assert Buffer("s", (), "bool").size == 1
    assert Buffer("B", (2, 3), "float64") != b
    i = Var("i")
    assert Load(b, (i, i), "float64") == Load(b, (i, i), "float64")
