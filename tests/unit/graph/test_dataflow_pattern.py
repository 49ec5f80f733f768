"""Patterns match what they say, and rules rewrite what patterns match."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import graph
from loopwright.errors import GraphError
from loopwright.graph import op
from loopwright.graph.dataflow_pattern import (
    DFPattern,
    Rule,
    is_constant,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    rewrite,
    wildcard,
)

X, Y = graph.var("x", (2, 3)), graph.var("y", (2, 3))
MODULE = graph.IRModule.from_expr(op.add(X, Y))


def _matches(pattern: DFPattern, e: graph.Expr) -> bool:
    return pattern.match(e, graph.IRModule.from_expr(e)) is not None


def test_leaves() -> None:
    assert _matches(wildcard(), X)
    assert _matches(is_var(), X)
    assert _matches(is_var("x"), X)
    assert not _matches(is_var("y"), X)
    assert not _matches(is_var(), graph.const(1.0))
    assert _matches(is_constant(), graph.const(1.0))
    assert not _matches(is_constant(lambda a: bool((a == 2).all())), graph.const(1.0))
    assert not _matches(is_constant(), X)


def test_calls_by_operator_inputs_and_attributes() -> None:
    soft = op.nn.softmax(X)
    assert _matches(is_op("nn.softmax")(wildcard()), soft)
    assert _matches(is_op("nn.softmax", "tanh")(...), soft)
    assert is_op("nn.softmax", "tanh")(...).roots() == {"nn.softmax", "tanh"}
    assert not _matches(is_op("tanh")(wildcard()), soft)
    assert not _matches(is_op("nn.softmax")(wildcard(), wildcard()), soft)
    # Attributes that were left out have their defaults.
    assert _matches(is_op("nn.softmax")(wildcard()).has_attr(axis=-1), soft)
    assert not _matches(is_op("nn.softmax")(wildcard()).has_attr(axis=0), soft)
    assert not _matches(is_op("nn.softmax")(wildcard()).has_attr(other=0), soft)


def test_inputs_of_sums_match_in_both_orders_and_those_of_differences_do_not() -> None:
    c = is_constant()
    assert _matches(wildcard() + c, op.add(1.0, X))
    assert _matches(wildcard() * c, op.multiply(1.0, X))
    assert not _matches(wildcard() - c, op.subtract(1.0, X))
    assert not _matches(wildcard() / c, op.divide(1.0, X))


def test_one_part_in_two_places_is_one_expression() -> None:
    x = wildcard()
    assert _matches(x + x, op.add(X, X))
    assert not _matches(x + x, op.add(X, Y))
    # What matched in a try that failed counts no more.
    either = (is_op("tanh")(x) + x) | (x + wildcard())
    found = either.match(op.add(X, op.tanh(Y)))
    assert found is not None
    assert found[x] in (X, found.root.args[1])  # type: ignore[attr-defined]


def test_alternatives_and_options() -> None:
    x = wildcard()
    bias = is_constant()
    biased = is_op("nn.dense")(x, wildcard()).optional(lambda p: p + bias)
    dense = op.nn.dense(X, np.ones((4, 3), "float32"))
    found = biased.match(op.add(dense, 1.0))
    assert found is not None
    assert bias in found
    found = biased.match(dense)
    assert found is not None
    assert bias not in found
    assert found[x] is X


def test_tuples_and_their_parts() -> None:
    x = wildcard()
    pair = graph.Tuple((X, Y))
    assert _matches(is_tuple([is_var("x"), x]), pair)
    assert not _matches(is_tuple([x]), pair)
    assert _matches(is_tuple(), pair)
    assert _matches(is_tuple_get_item(is_tuple(), 1), graph.TupleGetItem(pair, 1))
    assert not _matches(is_tuple_get_item(is_tuple(), 0), graph.TupleGetItem(pair, 1))


def test_types() -> None:
    sum_ = op.add(X, Y)
    assert _matches(wildcard().has_dtype("float32").has_shape((2, 3)), sum_)
    assert not _matches(wildcard().has_dtype("int8"), sum_)
    assert not _matches(wildcard().has_shape((3, 2)), sum_)
    with pytest.raises(GraphError, match="give `match` the module"):
        wildcard().has_dtype("int8").match(sum_)


def test_an_operator_that_is_none_is_told() -> None:
    with pytest.raises(GraphError, match=r"did you mean 'nn\.relu'"):
        is_op("nn.rel")


@given(st.lists(st.sampled_from(["relu", "tanh"]), max_size=12))
def test_rules_are_applied_until_none_matches(names: list[str]) -> None:
    e: graph.Expr = X
    for name in names:
        e = op.nn.relu(e) if name == "relu" else op.tanh(e)
    x = wildcard()
    rule = Rule(is_op("nn.relu")(is_op("nn.relu")(x)), lambda m: op.nn.relu(m[x]))
    made = rewrite([rule], graph.IRModule.from_expr(e))
    left = [n.op.name for n in graph.post_order(made["main"]) if isinstance(n, graph.Call)]  # type: ignore[attr-defined]
    wanted = [f"nn.{n}" if n == "relu" else n for n in names]
    wanted = [n for i, n in enumerate(wanted) if n != "nn.relu" or wanted[i - 1 : i] != ["nn.relu"]]
    assert left == wanted


def test_a_rule_that_changes_the_type_or_never_ends_is_refused() -> None:
    x = wildcard()
    other = Rule(is_op("add")(x, wildcard()), lambda m: op.sum(m[x]))
    with pytest.raises(GraphError, match=r"a rule makes float32\[\] of float32\[2, 3\]: add"):
        rewrite([other], MODULE)
    turned = Rule(is_op("add")(x, wildcard()), lambda m: op.add(*reversed(m.root.args)))  # type: ignore[attr-defined]
    with pytest.raises(GraphError, match="without end at add"):
        rewrite([turned], MODULE)


def test_what_no_rule_matches_is_the_module_itself() -> None:
    rule = Rule(is_op("tanh")(...), lambda m: m.root)
    assert rewrite([rule], MODULE) is MODULE
