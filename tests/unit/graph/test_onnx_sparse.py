"""Weights and constants of ONNX models that are stored without their zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx import from_onnx
from tests.unit.graph.values import run

onnx = pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')

X = np.arange(6, dtype="float32").reshape(2, 3)
#: 0 but for two elements, and their places in order and by coordinates.
WEIGHT = np.array([[0, 2, 0], [0, 0, -1]], "float32")
PLACES: dict[str, Any] = {"in order": [1, 5], "by coordinates": [[0, 1], [1, 2]]}


def sparse(values: Sequence[float], indices: Any, dims: Sequence[int]) -> Any:
    of_values = onnx.numpy_helper.from_array(np.array(values, "float32"), "w")
    of_indices = onnx.numpy_helper.from_array(np.array(indices, "int64"), "places")
    return onnx.helper.make_sparse_tensor(of_values, of_indices, dims)


def weighted(tensor: Any) -> Any:
    """x + w, where w is a weight of the model."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, X.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        sparse_initializer=[tensor],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("indices", PLACES.values(), ids=PLACES)
def test_weights_without_their_zeros(indices: Any) -> None:
    (y,) = run(from_onnx(weighted(sparse([2, -1], indices, WEIGHT.shape))), X)
    np.testing.assert_array_equal(y, X + WEIGHT)


def test_constants_without_their_zeros() -> None:
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    value = sparse([2, -1], PLACES["in order"], WEIGHT.shape)
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["w"], sparse_value=value),
            helper.make_node("Add", ["x", "w"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", kind, X.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    (y,) = run(from_onnx(helper.make_model(graph, ir_version=10)), X)
    np.testing.assert_array_equal(y, X + WEIGHT)


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (([2, -1], [1], (2, 3)), "has 2 values and 1 indices"),
        (([2], [6], (2, 3)), r"an index of the sparse tensor is not in its shape \[2, 3\]"),
        (([2], [-1], (2, 3)), "is not in its shape"),
        (([2], [[0, 3]], (2, 3)), "is not in its shape"),
        (([2], [[0, 1, 0]], (2, 3)), "has other coordinates"),
        (([2], [0], (-2, 3)), r"has the shape \[-2, 3\]"),
        (([2], [0], (1 << 20, 1 << 20)), "may have up to 268435456 elements"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tensor: tuple[Any, ...], text: str) -> None:
    with pytest.raises(GraphError, match=text):
        from_onnx(weighted(sparse(*tensor)))
