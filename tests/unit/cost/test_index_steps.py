"""Indices as sums of steps, and those that are none."""

from __future__ import annotations

import pytest

from loopwright.cost.symbolic.index_steps import Move, SteppedIndex, index_of
from loopwright.ir.expr import Binary, Const, Expr, Var

AXIS, GATHERED = Var("i"), Var("gathered")
AXES = {AXIS: SteppedIndex(0, (Move((0, "i"), 1, 12),))}


@pytest.mark.parametrize("op", ["//", "%"])
def test_quotients_and_remainders_are_steps_where_both_sides_are_known(op: str) -> None:
    def divided(a: Expr, b: Expr) -> SteppedIndex | None:
        return index_of(Binary(op, a, b, "int32"), AXES)

    index = divided(AXIS, Const(4, "int32"))
    assert index is not None
    assert [(m.loop, m.step) for m in index.moves] == [((0, "i"), 1)]
    assert [m.count for m in index.moves] == [3 if op == "//" else 4]
    assert divided(GATHERED, Const(4, "int32")) is None
    assert divided(AXIS, GATHERED) is None
    assert divided(AXIS, Const(-4, "int32")) is None
