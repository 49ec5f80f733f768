"""Sequences and optional values are parts of a model while it is imported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from loopwright.errors import GraphError  # noqa: E402
from loopwright.graph.frontend.onnx import from_onnx  # noqa: E402
from tests.unit.graph.onnx_nodes import info  # noqa: E402
from tests.unit.graph.values import Array, run  # noqa: E402

X = np.arange(12, dtype="float32").reshape(4, 3)
_SEQUENCE = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))


def _computed(nodes: list[Any], sequence: list[Array] | None = None, **constants: Any) -> Any:
    """The outputs of a model that reads ``x``, or a sequence ``s``, and gives ``y``."""
    given = [info("x", X)] if sequence is None else [helper.make_value_info("s", _SEQUENCE)]
    weights = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    g = helper.make_graph(nodes, "g", given, [info("y", None)], initializer=weights)
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 18)])
    if sequence is None:
        return run(from_onnx(model), X)
    module = from_onnx(model, shape={"s": [x.shape for x in sequence]})
    return run(module, *sequence)


@pytest.mark.parametrize(
    ("split", "wanted"),
    [(None, [X[n : n + 1] for n in range(4)]), (3, [X[:3], X[3:]]), ([1, 3], [X[:1], X[1:]])],
    ids=["each", "equal", "several"],
)
def test_an_axis_is_split(split: Any, wanted: list[Array]) -> None:
    names = ["x"] if split is None else ["x", "split"]
    known = {} if split is None else {"split": np.array(split)}
    found = _computed([helper.make_node("SplitToSequence", names, ["y"], axis=0)], **known)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_parts_without_their_axis() -> None:
    node = helper.make_node("SplitToSequence", ["x"], ["y"], axis=1, keepdims=0)
    np.testing.assert_array_equal(np.array(_computed([node])), X.T)


def test_sequences_are_changed_and_put_together() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("SequenceConstruct", ["x", "n"], ["two"]),
        helper.make_node("SequenceInsert", ["two", "n", "first"], ["three"]),
        helper.make_node("SequenceErase", ["three"], ["left"]),
        helper.make_node("ConcatFromSequence", ["left"], ["y"], axis=0, new_axis=1),
    ]
    (found,) = _computed(nodes, first=np.array(0))
    np.testing.assert_array_equal(found, np.stack([-X, X]))


def test_a_sequence_that_is_given_is_its_parts() -> None:
    nodes = [
        helper.make_node("SequenceAt", ["s", "last"], ["part"]),
        helper.make_node("SequenceLength", ["s"], ["count"]),
        helper.make_node("CastLike", ["count", "part"], ["number"]),
        helper.make_node("Mul", ["part", "number"], ["y"]),
    ]
    (found,) = _computed(nodes, [X, X[:2], X[1]], last=np.array(-1))
    np.testing.assert_array_equal(found, X[1] * 3)


def test_a_function_of_each_part() -> None:
    body = helper.make_graph(
        [helper.make_node("Relu", ["a"], ["b"])], "b", [info("a", X)], [info("b", X)]
    )
    node = helper.make_node("SequenceMap", ["s"], ["y"], body=body)
    found = _computed([node], [X - 5, X])
    np.testing.assert_array_equal(np.array(found), np.stack([np.maximum(X - 5, 0), X]))


@pytest.mark.parametrize("given", [True, False])
def test_whether_there_is_a_value_is_known(given: bool) -> None:
    nodes = [
        helper.make_node("OptionalHasElement", ["x" if given else ""], ["some"]),
        helper.make_node("CastLike", ["some", "x"], ["number"]),
        helper.make_node("Mul", ["x", "number"], ["y"]),
    ]
    np.testing.assert_array_equal(_computed(nodes)[0], X * given)


def test_an_optional_input_is_given() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, X.shape)
    given = helper.make_value_info("o", helper.make_optional_type_proto(tensor))
    node = helper.make_node("OptionalGetElement", ["o"], ["y"])
    g = helper.make_graph([node], "g", [given], [info("y", None)])
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 18)])
    np.testing.assert_array_equal(run(from_onnx(model), X)[0], X)
    with pytest.raises(GraphError, match="its input 0 is missing"):
        from_onnx(model, constants={"o": None})


def test_what_is_not_known_of_a_sequence_is_refused() -> None:
    node = helper.make_node("SequenceAt", ["s", "place"], ["y"])
    given = [helper.make_value_info("s", _SEQUENCE)]
    g = helper.make_graph([node], "g", [*given, info("place", np.array(0))], [info("y", None)])
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(GraphError, match="input 's' is a sequence; give the shapes of its parts"):
        from_onnx(model)
    with pytest.raises(GraphError, match="its input 1 must be known, and depends on 'place'"):
        from_onnx(model, shape={"s": [(3,), (4,)]})
    with pytest.raises(GraphError, match="place 2 is asked of 2 parts"):
        from_onnx(model, shape={"s": [(3,), (4,)]}, constants={"place": np.array(2)})
