"""Walking over expressions, and substituting variables."""

from __future__ import annotations

from loopwright.ir.expr import Binary, Const, Var
from loopwright.ir.visitor import contains, free_vars, nodes, substitute


def test_substitute_shares_what_it_leaves() -> None:
    x, y, z = Var("x"), Var("y"), Var("z")
    e = (x + 1) * (y + 2)
    made = substitute(e, {y: z})
    assert made == (x + 1) * (z + 2)
    assert made.a is e.a  # type: ignore[attr-defined]
    assert substitute(e, {z: x}) is e
    assert substitute(e, {}) is e


def test_nodes_come_parents_first() -> None:
    x, y = Var("x"), Var("y")
    e = (x + y) * y
    assert list(nodes(e)) == [e, x + y, x, y, y]
    assert free_vars(e) == {x, y}


def test_contains_looks_at_the_node_and_below() -> None:
    e = Var("x") + Var("y")
    assert contains(e, Binary)
    assert contains(e, (Const, Var))
    assert not contains(e, Const)
