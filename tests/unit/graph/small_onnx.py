"""Small ONNX models: one with two equal layers, and what NumPy makes of it; one that branches."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_RNG = np.random.default_rng(7)
#: Weights of its layers: two of one shape, and one of another.
LAYERS = [_RNG.standard_normal((n, 16)).astype("float32") / 4 for n in (16, 16, 8)]
BIASES = [_RNG.standard_normal(len(w)).astype("float32") for w in LAYERS]


def perceptron() -> Any:
    """``softmax(C relu(B relu(A x)))`` of x (4, 16), with a bias in each layer."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, weights, value = [], [], "x"
    for n, (w, b) in enumerate(zip(LAYERS, BIASES, strict=True)):
        weights += [numpy_helper.from_array(w, f"w{n}"), numpy_helper.from_array(b, f"b{n}")]
        nodes.append(helper.make_node("Gemm", [value, f"w{n}", f"b{n}"], [f"y{n}"], transB=1))
        value = f"y{n}"
        if n < len(LAYERS) - 1:
            nodes.append(helper.make_node("Relu", [value], [f"z{n}"]))
            value = f"z{n}"
    nodes.append(helper.make_node("Softmax", [value], ["p"], axis=-1))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])
    p = helper.make_tensor_value_info("p", TensorProto.FLOAT, [4, 8])
    g = helper.make_graph(nodes, "perceptron", [x], [p], weights)
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def layers_by_numpy(x: Array) -> list[Array]:
    """What each layer gives, the softmax last."""
    found = []
    for n, (w, b) in enumerate(zip(LAYERS, BIASES, strict=True)):
        x = x @ w.T + b
        x = np.maximum(x, 0) if n < len(LAYERS) - 1 else x
        found.append(x)
    exps = np.exp(x - x.max(-1, keepdims=True))
    return [*found, exps / exps.sum(-1, keepdims=True)]


def branching() -> Any:
    """A choice that is known in the run alone, between kernels; its branches read around them."""
    from onnx import TensorProto, helper

    info = helper.make_tensor_value_info
    branches = {}
    for name, operator in (("then_branch", "Exp"), ("else_branch", "Neg")):
        node = helper.make_node(operator, ["a"], ["r"])
        branches[name] = helper.make_graph([node], name, [], [info("r", 1, [2, 3])])
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="before"),
        helper.make_node("If", ["flag"], ["b"], name="choice", **branches),
        helper.make_node("Add", ["b", "a"], ["y"], name="behind"),
    ]
    infos = [info("x", 1, [2, 3]), info("flag", TensorProto.BOOL, [])]
    g = helper.make_graph(nodes, "g", infos, [info("y", 1, [2, 3])])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def convolutional() -> Any:
    """A convolution of an image x (1, 8, 6, 6), a rectifier and a pool."""
    from onnx import TensorProto, helper, numpy_helper

    w = np.random.default_rng(3).standard_normal((8, 8, 2, 2)).astype("float32")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 0, 0]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 6, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 3, 3])
    weights = [numpy_helper.from_array(w, "w")]
    made = helper.make_graph(nodes, "convolutional", [x], [y], weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
