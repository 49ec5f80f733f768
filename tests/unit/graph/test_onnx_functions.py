"""Calls of functions of ONNX models that would become too much are refused at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx import from_onnx
from tests.unit.graph.values import run

onnx = pytest.importorskip("onnx")
helper = onnx.helper
DOMAIN = "my"
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]


def _call(name: str, source: str, result: str) -> onnx.NodeProto:
    return helper.make_node(name, [source], [result], domain=DOMAIN)


def _function(name: str, nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
    return helper.make_function(DOMAIN, name, ["x"], ["y"], nodes, OPSETS)


def _nested(depth: int, times: int) -> onnx.ModelProto:
    """Functions of which each calls the next some times; the last one adds 1."""
    one = helper.make_node("Constant", [], ["one"], value_float=1.0)
    functions = [_function(f"f{depth}", [one, helper.make_node("Add", ["x", "one"], ["y"])])]
    for k in range(depth):
        names = ["x", *(f"x{n}" for n in range(1, times)), "y"]
        pairs = pairwise(names)
        functions.append(_function(f"f{k}", [_call(f"f{k + 1}", a, b) for a, b in pairs]))
    return _model(functions, [_call("f0", "a", "b")])


def _model(functions: list[onnx.FunctionProto], nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "ab"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    return helper.make_model(graph, functions=functions, opset_imports=OPSETS)


@pytest.mark.parametrize(("depth", "times"), [(0, 2), (4, 2), (3, 3), (63, 1)])
def test_nested_functions_are_converted(depth: int, times: int) -> None:
    (b,) = run(from_onnx(_nested(depth, times)), np.zeros(2, "float32"))
    np.testing.assert_array_equal(b, times**depth)


@pytest.mark.parametrize(("depth", "times"), [(30, 2), (30, 3), (60, 2), (20, 2)])
def test_too_many_nodes_are_refused_before_any_is_converted(depth: int, times: int) -> None:
    model = _nested(depth, times)
    with pytest.raises(GraphError, match=r"become \d+ nodes, more than 50000; .* 'f0'"):
        from_onnx(model)


def test_too_many_calls_inside_of_one_another_are_refused() -> None:
    with pytest.raises(GraphError, match="more than 64 calls of functions stand inside"):
        from_onnx(_nested(2000, 1))


def test_calls_inside_of_graphs_of_nodes_count() -> None:
    nested = _nested(25, 2)
    infos = [helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, [2])]
    branch = helper.make_graph([_call("f0", "a", "c")], "then", [], infos)
    yes = helper.make_node("Constant", [], ["yes"], value=onnx.numpy_helper.from_array(np.True_))
    choice = helper.make_node("If", ["yes"], ["b"], then_branch=branch, else_branch=branch)
    with pytest.raises(GraphError, match="more than 50000"):
        from_onnx(_model(list(nested.functions), [yes, choice]))


def test_functions_that_call_themselves_are_refused_where_they_are_needed() -> None:
    f = _function("f", [_call("g", "x", "y")])
    g = _function("g", [_call("f", "x", "z"), _call("f", "z", "y")])
    with pytest.raises(GraphError, match=r"a function that calls itself: (f > g > f|g > f > g)"):
        from_onnx(_model([f, g], [_call("f", "a", "b")]))
    unused = _model([f, g], [helper.make_node("Relu", ["a"], ["b"])])
    assert len(from_onnx(unused)["main"].params) == 1


def test_functions_of_one_name_in_two_domains_may_call_each_other() -> None:
    opsets = [*OPSETS, helper.make_opsetid("other", 1)]
    inner = helper.make_function(
        "other", "F", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], opsets
    )
    call = helper.make_node("F", ["x"], ["y"], domain="other")
    outer = helper.make_function(DOMAIN, "F", ["x"], ["y"], [call], opsets)
    model = _model([outer, inner], [_call("F", "a", "b")])
    model.opset_import.append(opsets[-1])
    (b,) = run(from_onnx(model), np.ones(2, "float32"))
    np.testing.assert_array_equal(b, -1)
