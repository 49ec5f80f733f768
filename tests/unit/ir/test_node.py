"""Nodes: immutable, compared by structure, keys by identity, rewritten with sharing."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Const, Expr, Select, Var, const
from loopwright.ir.node import StructuralKey, distinct, same
from loopwright.ir.stmt import For, Seq, Store
from loopwright.schedule.state import Sampled


def tree(x: Expr, y: Expr) -> Binary:
    return Binary("+", Binary("*", x, y, "int32"), const(3, "int32"), "int32")


def test_fields_cannot_be_assigned() -> None:
    e = const(3, "int32")
    with pytest.raises(AttributeError, match=r"Const\.value cannot be assigned"):
        e.value = 4  # type: ignore[misc]
    assert e.value == 3


def test_no_field_can_be_added() -> None:
    with pytest.raises(AttributeError):
        const(3, "int32").note = "x"  # type: ignore[attr-defined]


def test_optimised_python_pays_nothing_for_immutability() -> None:
    code = (
        "from loopwright.ir.expr import const\n"
        "e = const(3, 'int32'); e.value = 4; print(e.value, type(e).__setattr__)"
    )
    done = subprocess.run(
        [sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("4 <slot wrapper '__setattr__' of 'object'")


def test_structure_counts_and_variables_are_themselves() -> None:
    x, y = Var("x"), Var("y")
    assert same(tree(x, y), tree(x, y))
    assert StructuralKey(tree(x, y)) == StructuralKey(tree(x, y))
    assert len({StructuralKey((x, tree(x, y))), StructuralKey((x, tree(x, y)))}) == 1
    for other in (tree(y, x), tree(x, Var("y")), x, 3, (tree(x, y),)):
        assert not same(tree(x, y), other)
    assert not same(Var("x"), Var("x"))
    first, *_ = nodes = [tree(x, y), x, tree(x, y), y, x]
    assert list(map(id, distinct(nodes))) == [id(first), id(x), id(y)]


def test_nodes_of_different_classes_and_constants_of_different_bits_differ() -> None:
    x = Var("x", "bool")
    assert not same(Binary("and", x, x, "bool"), Select(x, x, x, "bool"))
    assert not same(const(1, "int32"), const(1, "int64"))
    assert not same(const(1, "int32"), 1)
    assert same((x, 4), (x, Sampled(4)))
    assert not same(Sampled(4), 5)
    assert not same(const(0.0, "float32"), const(-0.0, "float32"))
    assert same(const(math.nan, "float32"), const(math.nan, "float32"))
    nans = {StructuralKey(const(math.nan, "float32")) for _ in range(3)}
    assert len(nans) == 1


def test_expressions_are_keys_by_identity_and_statements_by_structure() -> None:
    x = Var("x")
    a, b = tree(x, x), tree(x, x)
    assert {a: 1, b: 2}[a] == 1
    assert len({a, b, a}) == 2
    assert hash(a) == object.__hash__(a)
    loops = [For(x, 4, "serial", Seq(())) for _ in range(2)]
    assert loops[0] == loops[1]
    assert len(set(loops)) == 1


def test_equality_without_an_operand_is_that_of_python() -> None:
    x = Var("x")
    assert not any(x == other for other in (None, "x", (x,), [x]))
    assert [x, "x", None].index(None) == 2


def test_hash_is_computed_once() -> None:
    calls = []

    class Counted(str):
        def __hash__(self) -> int:
            calls.append(self)
            return super().__hash__()

    e = Const(Counted("v"), "int32")
    assert StructuralKey(e) == StructuralKey(e)
    assert len(calls) == 1


def test_shared_dag_hashes_in_linear_time() -> None:
    """A chain in which each node uses the last one twice has 2**200 paths."""
    e: Expr = Var("x")
    for _ in range(200):
        e = Binary("+", e, e, "int32")
        StructuralKey(e)
    assert same(e, Binary("+", e.a, e.b, "int32"))  # type: ignore[attr-defined]


def test_map_children_keeps_what_did_not_change() -> None:
    x, y = Var("x"), Var("y")
    e = tree(x, y)
    assert e.map_children(lambda c: c) is e

    made = e.map_children(lambda c: y if isinstance(c, Const) else c)
    assert made == Binary("+", e.a, y, "int32")
    assert made.a is e.a


def test_map_children_goes_into_tuples_and_keeps_them() -> None:
    b = Buffer("b", (4, 4), "float32")
    i, j, k = Var("i"), Var("j"), Var("k")
    load = Load(b, (i, j), "float32")
    assert load.map_children(lambda c: c) is load
    made = load.map_children(lambda c: k if c is j else c)
    assert made.indices == (i, k)
    assert made.buffer is b

    store = Store(b, (i, j), load)
    assert store.children() == [i, j, load]
    same = store.map_children(lambda c: c)
    assert same is store


def test_children_skip_what_is_no_node() -> None:
    x = Var("x")
    loop = For(x, 4, "serial", Seq(()), (("auto_unroll_max_step", 4),))
    assert loop.children() == [x, Seq(())]
    assert const(3, "int32").children() == []


def test_defaults_and_keywords() -> None:
    loop = For(Var("i"), 4, "serial", body=Seq(()))
    assert (loop.pragmas, loop.tag) == ((), "")
