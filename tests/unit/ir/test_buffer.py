"""Buffers and loads."""

from __future__ import annotations

import pytest

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var
from loopwright.ir.sizes import SizeVar


def test_buffers() -> None:
    b = Buffer("B", (2, 3), "float64")
    assert (b.size, b.nbytes, b.scope) == (6, 48, "global")
    assert Buffer("s", (), "bool").size == 1
    assert Buffer("B", (2, 3), "float64") != b
    i = Var("i")
    assert Load(b, (i, i), "float64") == Load(b, (i, i), "float64")


def test_a_shape_that_depends_on_sizes_has_no_numbers() -> None:
    n = SizeVar("n")
    b = Buffer("B", (n, 3), "float32")
    assert b.symbolic
    assert repr(b) == "Buffer(B: float32[n, 3] global)"
    with pytest.raises(AssertionError, match="depends on sizes"):
        _ = b.nbytes
