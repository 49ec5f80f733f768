"""ToMixedPrecision: products of 16 bits, the rest as the lists say, and values that stay near."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import graph
from loopwright.errors import GraphError
from loopwright.graph import op
from loopwright.graph.transform import ToMixedPrecision
from tests.unit.graph.values import run

pytest.importorskip("ml_dtypes")
X = graph.var("x", (2, 4))
WEIGHT = np.linspace(-1, 1, 16, dtype="float32").reshape(4, 4)


def _reads(module: graph.IRModule) -> dict[str, set[str]]:
    """The dtypes of floats that the calls of each operator read."""
    types, found = graph.infer_types(module), {}
    for e in graph.post_order(module["main"]):
        if isinstance(e, graph.Call):
            read = {types[a].dtype for a in e.args}  # type: ignore[union-attr]
            found.setdefault(e.op.name, set()).update(read)  # type: ignore[attr-defined]
    return found


def _mixed(e: graph.Expr, **lists: list[str]) -> dict[str, set[str]]:
    """What calls read, where the values stay near and the types of results stay."""
    before = graph.IRModule.from_expr(e)
    after = ToMixedPrecision(**lists)(before)  # type: ignore[arg-type]
    assert graph.infer_types(after)[after["main"]] == graph.infer_types(before)[before["main"]]
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    for a, b in zip(run(after, x), run(before, x), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=0.03 * max(np.abs(b).max(), 1))
    return _reads(after)


def _dense(x: graph.Expr) -> graph.Expr:
    return op.nn.dense(x, WEIGHT)


def test_products_work_in_16_bits_and_what_follows_them_too() -> None:
    found = _mixed(op.nn.relu(op.add(_dense(X), np.ones(4, "float32"))))
    assert found["nn.dense"] == found["add"] == found["nn.relu"] == {"bfloat16"}
    assert found["cast"] == {"float32", "bfloat16"}


def test_what_needs_float32_gets_it() -> None:
    found = _mixed(_dense(op.nn.softmax(_dense(X))))
    assert found["nn.softmax"] == {"float32"}
    assert found["nn.dense"] == {"bfloat16"}


def test_what_follows_float32_stays_there() -> None:
    assert _mixed(op.add(X, op.nn.relu(X)))["add"] == {"float32"}
    # One of both is of float32: so is the sum.
    found = _mixed(op.add(X, _dense(X)))
    assert found["add"] == {"float32"}


def test_a_value_is_cast_once() -> None:
    module = ToMixedPrecision()(graph.IRModule.from_expr(op.add(_dense(X), _dense(op.tanh(X)))))
    twice = ToMixedPrecision()(graph.IRModule.from_expr(op.add(_dense(X), op.nn.dense(X, -WEIGHT))))
    assert str(module).count('cast(%x, dtype="bfloat16")') == 1
    assert str(twice).count('cast(%x, dtype="bfloat16")') == 1


def test_lists_can_be_changed() -> None:
    assert _mixed(op.nn.relu(_dense(X)), never=["nn.dense"])["nn.dense"] == {"float32"}
    assert _mixed(op.tanh(_dense(X)), follow=["tanh"])["tanh"] == {"bfloat16"}
    assert _mixed(op.tanh(X), always=["tanh"])["tanh"] == {"bfloat16"}


def test_factors_of_channels_are_folded_before() -> None:
    image = graph.var("x", (1, 4, 3, 3))
    conv = op.nn.conv(image, WEIGHT.reshape(4, 4, 1, 1))
    parts = [np.linspace(1, 2, 4, dtype="float32") + n for n in range(4)]
    module = ToMixedPrecision()(graph.IRModule.from_expr(op.nn.batch_norm(conv, *parts)))
    assert set(_reads(module)) == {"cast", "nn.conv", "add"}


def test_whole_numbers_and_wide_floats_stay_as_they_are() -> None:
    whole = op.matmul(graph.var("a", (2, 3), "int8"), graph.var("b", (3, 2), "int8"))
    wide = op.matmul(graph.var("a", (2, 3), "float64"), graph.var("b", (3, 2), "float64"))
    for e in (whole, wide):
        module = graph.IRModule.from_expr(e)
        assert "cast" not in _reads(ToMixedPrecision()(module))


def test_branches_and_tuples_keep_their_types() -> None:
    flag = graph.var("flag", (), "bool")
    e = graph.If(flag, _dense(X), op.nn.relu(_dense(X)))
    module = ToMixedPrecision()(graph.IRModule.from_expr(graph.Tuple((e, _dense(X)))))
    assert str(graph.infer_types(module)[module["main"].body]).count("float32[2, 4]") == 2


def test_bad_input_is_told() -> None:
    with pytest.raises(GraphError, match="bfloat16, not int8"):
        ToMixedPrecision("int8")
    with pytest.raises(GraphError, match=r"did you mean 'nn\.relu'"):
        ToMixedPrecision(never=["nn.rel"])


_STEPS = {
    "dense": _dense,
    "relu": op.nn.relu,
    "tanh": op.tanh,
    "softmax": op.nn.softmax,
    "bias": lambda e: op.add(e, np.ones(4, "float32")),
}


@given(st.lists(st.tuples(st.sampled_from([*_STEPS, "sum"]), st.integers(0, 3)), max_size=6))
@settings(max_examples=30)
def test_random_graphs_stay_near(steps: list[tuple[str, int]]) -> None:
    values: list[graph.Expr] = [X]
    for name, back in steps:
        other = values[max(0, len(values) - 1 - back)]
        made = op.add(values[-1], other) if name == "sum" else _STEPS[name](other)
        values.append(op.multiply(made, 0.5))
    found = _mixed(values[-1])
    assert found.get("nn.dense", {"bfloat16"}) == {"bfloat16"}
    assert found.get("tanh", {"float32"}) == found.get("nn.softmax", {"float32"}) == {"float32"}
