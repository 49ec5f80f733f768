"""Random valid ONNX models: a chain of nodes, some with subgraphs, functions and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuzzing.random.expr import Draw

#: A node over ``x`` (1, 4, 6, 6) of float32: its operator, further inputs as arrays, attributes.
_Part = tuple[str, Sequence[Any], dict[str, Any]]


def _integers(*numbers: int) -> Any:
    return np.array(numbers, "int64")


def _ones(*shape: int) -> Any:
    return np.full(shape, 0.5, "float32")


#: Nodes whose result has the shape of ``x``, so that any order of them is a model.
_SAME: tuple[_Part, ...] = (
    *((name, [], {}) for name in ("Relu", "Tanh", "Identity", "HardSwish", "Mish")),
    *((name, [_ones(4, 1, 1)], {}) for name in ("Add", "Mul", "Pow", "PRelu", "Sub")),
    ("Conv", [_ones(4, 4, 3, 3), _ones(4)], {"pads": [1, 1, 1, 1], "strides": [1, 1]}),
    ("Conv", [_ones(4, 2, 1, 1)], {"group": 2, "kernel_shape": [1, 1], "dilations": [1, 1]}),
    ("ConvTranspose", [_ones(4, 4, 3, 3)], {"pads": [1, 1, 1, 1], "output_padding": [0, 0]}),
    ("MaxPool", [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 0}),
    ("AveragePool", [], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
    ("LpPool", [], {"kernel_shape": [1, 1], "p": 2}),
    ("Softmax", [], {"axis": 1}),
    ("LayerNormalization", [_ones(6)], {"axis": -1}),
    ("BatchNormalization", [_ones(4)] * 4, {"epsilon": 1e-5}),
    ("InstanceNormalization", [_ones(4)] * 2, {}),
    ("LRN", [], {"size": 3}),
    ("Clip", [np.float32(0), np.float32(6)], {}),
    ("Reshape", [_integers(1, 4, -1, 6)], {"allowzero": 0}),
    ("Expand", [_integers(1, 4, 6, 6)], {}),
    ("Pad", [_integers(0, 0, 0, 0, 0, 0, 0, 0), np.float32(1)], {"mode": "constant"}),
    ("Slice", [_integers(0), _integers(9), _integers(2), _integers(1)], {}),
    ("Tile", [_integers(1, 1, 1, 1)], {}),
    ("Transpose", [], {"perm": [0, 1, 3, 2]}),
    ("Gather", [_integers(0, 1, 2, 3)], {"axis": 1}),
    ("CumSum", [np.array(1, "int32")], {"exclusive": 1}),
    ("ReduceMax", [_integers(2)], {"keepdims": 1}),
    ("Trilu", [np.array(0, "int64")], {"upper": 0}),
    ("MatMul", [_ones(6, 6)], {}),
    ("Cast", [], {"to": 1}),
    (
        "Resize",
        [None, np.array([1, 1, 1, 1], "float32")],
        {"mode": "linear", "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.5},
    ),
)


def random_model(d: Draw) -> Any:
    """A valid model of up to five nodes over ``x`` (1, 4, 6, 6) of float32."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    weights: list[Any] = []
    value = "x"
    for _ in range(d.integer(1, 5)):
        name, arrays, attributes = d.pick(_SAME)
        names = []
        for array in arrays:
            names.append("" if array is None else f"w{len(weights)}")
            if array is not None:
                weights.append(numpy_helper.from_array(np.asarray(array), names[-1]))
        made = f"y{len(nodes)}"
        nodes.append(
            helper.make_node(name, [value, *names], [made], f"n{len(nodes)}", **attributes)
        )
        if name == "ReduceMax":
            nodes.append(helper.make_node("Add", [made, value], [f"{made}.wide"]))
            made += ".wide"
        value = made
    functions, imports = [], [helper.make_opsetid("", 18)]
    extra = d.pick((None, None, None, None, _branch, _loop, _range, _split, _quantized, _function))
    if extra is _function:
        functions.append(_twice())
        imports.append(helper.make_opsetid("own", 1))
    if extra is not None:
        value = extra(nodes, weights, value)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 6])
    y = helper.make_tensor_value_info(value, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=8)


def _info(name: str, kind: int = 1, shape: Sequence[int] | None = None) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, kind, shape)


def _weight(weights: list[Any], array: Any) -> str:
    from onnx import numpy_helper

    weights.append(numpy_helper.from_array(np.asarray(array), f"w{len(weights)}"))
    return str(weights[-1].name)


def _branch(nodes: list[Any], weights: list[Any], value: str) -> str:
    from onnx import helper

    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, [value], [f"of_{name}"])], name, [], [_info(f"of_{name}")]
        )
        for name, op in (("then", "Exp"), ("else", "Neg"))
    }
    flag = _weight(weights, True)
    nodes.append(helper.make_node("If", [flag], ["chosen"], "choice", **branches))
    return "chosen"


def _loop(nodes: list[Any], weights: list[Any], value: str) -> str:
    from onnx import helper

    steps = [
        helper.make_node("Add", ["carried", value], ["next"]),
        helper.make_node("Identity", ["go"], ["again"]),
    ]
    inputs = [_info("i", 7, []), _info("go", 9, []), _info("carried")]
    body = helper.make_graph(steps, "body", inputs, [_info("again", 9, []), _info("next")])
    times, go = _weight(weights, np.array(2, "int64")), _weight(weights, True)
    nodes.append(helper.make_node("Loop", [times, go, value], ["looped"], "loop", body=body))
    return "looped"


def _range(nodes: list[Any], weights: list[Any], value: str) -> str:
    from onnx import helper

    ends = [_weight(weights, np.array(n, "float32")) for n in (0, 6, 1)]
    nodes.append(helper.make_node("Range", ends, ["places"], "range"))
    nodes.append(helper.make_node("Add", [value, "places"], ["moved"]))
    return "moved"


def _split(nodes: list[Any], weights: list[Any], value: str) -> str:
    from onnx import helper

    sizes = _weight(weights, _integers(1, 3))
    nodes.append(helper.make_node("Split", [value, sizes], ["a", "b"], "split", axis=1))
    nodes.append(helper.make_node("Concat", ["b", "a"], ["joined"], "join", axis=1))
    return "joined"


def _quantized(nodes: list[Any], weights: list[Any], value: str) -> str:
    from onnx import helper

    scale, zero = _weight(weights, np.float32(0.1)), _weight(weights, np.uint8(7))
    nodes.append(helper.make_node("QuantizeLinear", [value, scale, zero], ["q"], "quantize"))
    nodes.append(helper.make_node("DequantizeLinear", ["q", scale, zero], ["dq"], "back"))
    return "dq"


def _function(nodes: list[Any], weights: list[Any], value: str) -> str:
    from onnx import helper

    node = helper.make_node("Twice", [value], ["twice"], "call", domain="own", slope=0.5)
    nodes.append(node)
    return "twice"


def _twice() -> Any:
    """A function with an attribute, which a node of it refers to."""
    from onnx import AttributeProto, helper

    leaky = helper.make_node("LeakyRelu", ["v"], ["l"])
    leaky.attribute.append(
        AttributeProto(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT)
    )
    nodes = [leaky, helper.make_node("Add", ["l", "l"], ["w"])]
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_function("own", "Twice", ["v"], ["w"], nodes, imports, ["slope"])
