"""ONNX models that contradict themselves are refused at once, in one line that names the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx import from_onnx
from loopwright.graph.frontend.onnx.files import check_elements

IMAGE = [1, 4, 6, 6]


def model(
    op: str, *inputs: Any, domain: str = "", functions: Any = (), x: Any = IMAGE, **attrs: Any
) -> Any:
    """A node over x of float32 and over arrays, which are weights."""
    weights = [numpy_helper.from_array(np.asarray(a), f"w{n}") for n, a in enumerate(inputs)]
    node = helper.make_node(op, ["x", *(w.name for w in weights)], ["y"], "n", domain=domain)
    node.attribute.extend(helper.make_attribute(n, v) for n, v in attrs.items())
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x), ("y", None))
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    imports += [helper.make_opsetid("own", 1)]
    graph = helper.make_graph([node], "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=8)


def changed(m: Any, change: Any) -> Any:
    change(m.graph.node[0])
    return m


W = np.zeros((4, 4, 3, 3), "float32")
POOL = {"kernel_shape": [2, 2]}
RESIZE = (np.zeros(0, "float32"),)


def _reference(node: Any) -> None:
    node.attribute[0].ref_attr_name = "axis"


def _inputs_of_branches(count: int) -> Any:
    out = helper.make_tensor_value_info("o", TensorProto.FLOAT, IMAGE)
    declared = [helper.make_tensor_value_info(f"i{n}", 1, IMAGE) for n in range(count)]
    nodes = [helper.make_node("Neg", ["i0" if count else "x"], ["o"])]
    return helper.make_graph(nodes, "branch", declared, [out])


def _choice() -> Any:
    m = model("If", then_branch=_inputs_of_branches(1), else_branch=_inputs_of_branches(0))
    m.graph.initializer.append(numpy_helper.from_array(np.array(True), "flag"))
    m.graph.node[0].input[:] = ["flag"]
    return m


def _function(name: str, calls: str) -> Any:
    node = helper.make_node(calls, ["v"], ["w"], domain="own")
    return helper.make_function("own", name, ["v"], ["w"], [node], [helper.make_opsetid("own", 1)])


def _count(*numbers: float) -> Any:
    m = model("Range", *(np.float32(n) for n in numbers))
    m.graph.node[0].input[:] = ["w0", "w1", "w2"]
    return m


BROKEN: dict[str, tuple[Any, str]] = {
    "stride 0": (model("Conv", W, strides=[0, 1]), r"strides are \[?\(?0, 1.*from 1 on"),
    "stride 0 of a pool": (model("MaxPool", strides=[0, 1], **POOL), "from 1 on"),
    "dilation 0": (model("Conv", W, dilations=[0, 0]), "dilations are .* from 1 on"),
    "short pads": (model("Conv", W, pads=[1, 1, 1]), "pads are .*; give 4 numbers"),
    "long pads": (model("AveragePool", pads=[0] * 6, **POOL), "pads are .*; give 4 numbers"),
    "short pads of Pad": (model("Pad", np.array([1, 1])), "pads are .*; give 8 numbers"),
    "a window of 1": (model("MaxPool", kernel_shape=[2]), "kernel_shape are .*; give 2 numbers"),
    "norm 0": (model("LpPool", p=0, **POOL), "its p is 0; give a number from 1 on"),
    "norm 0 of all": (model("GlobalLpPool", p=0), "its p is 0; give a number from 1 on"),
    "norm 3": (model("LpNormalization", p=3), "its p is 3; give 1 or 2"),
    "no group": (model("ConvTranspose", W, group=0), "0 groups"),
    "an infinite count": (model("TopK", np.float32("inf")), "is inf; an integer is needed"),
    "no window": (model("MaxPool"), "'kernel_shape' is missing"),
    "a text": (model("MaxPool", kernel_shape="2"), "type STRING; MaxPool takes INTS"),
    "step 0": (_count(0, 5, 0), "from 0.0 to 5.0 by 0.0, which never ends"),
    "no number": (_count(0, float("nan"), 1), "which never ends"),
    "too many": (_count(0, 2.0**40, 1), "may have up to 268435456 elements"),
    "no inputs": (
        changed(model("Relu"), lambda n: n.ClearField("input")),
        "0 inputs; Relu takes 1",
    ),
    "a reference": (changed(model("Softmax", axis=1), _reference), "no function is around it"),
    "branches with inputs": (_choice(), "'branch' declares 1 inputs, and gets 0"),
    "a function that calls itself": (
        model("F", domain="own", functions=[_function("F", "F")]),
        "a function that calls itself: F > F",
    ),
    "two that call each other": (
        model("F", domain="own", functions=[_function("F", "G"), _function("G", "F")]),
        "a function that calls itself: F > G > F",
    ),
    "a scale that is no number": (
        model("Resize", *RESIZE, np.array([1, 1, float("nan"), 1], "float32")),
        r"its scales are \[1.0, 1.0, nan, 1.0\]",
    ),
    "a scale of 2**40": (
        model("Resize", *RESIZE, np.array([1, 1, 2.0**40, 1], "float32")),
        "may have up to 268435456 elements",
    ),
    "another domain": (
        model("MatMulNBits", domain="com.microsoft"),
        r"domain 'com.microsoft' are not ONNX's; register a converter: .*com.microsoft::MatMulNB",
    ),
    "a slice of two begins": (
        model("Slice", np.array([0, 0]), np.array([1])),
        "2 begins, 1 ends, 2 axes and 2 steps",
    ),
    "axis 9": (model("LayerNormalization", np.ones(6, "float32"), axis=9), "has no axis 9"),
}


@pytest.mark.parametrize("shape", [(4, 2048, 2048), (30_000, 400), (4096, 4096)])
def test_arrays_of_usual_models_are_made(shape: tuple[int, ...]) -> None:
    """A Fourier transform of 2048, the frames of five minutes, and a sparse weight."""
    check_elements(shape)


def test_a_large_mask_that_nothing_reads_is_not_made() -> None:
    node = model("Dropout", x=[32, 512, 320, 320])
    node.graph.node[0].output.append("mask")
    assert len(from_onnx(node, fallback=False)["main"].params) == 1


@pytest.mark.parametrize("name", BROKEN)
def test_broken_nodes_are_refused(name: str) -> None:
    broken, text = BROKEN[name]
    with pytest.raises(GraphError, match=text) as refused:
        from_onnx(broken, fallback=False)
    assert "\n" not in str(refused.value)


def test_external_data_are_found_beside_a_file_alone(tmp_path: Path) -> None:
    whole = model("Conv", W)
    onnx.save(
        whole, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="w"
    )
    from_onnx(tmp_path / "m.onnx")
    with pytest.raises(GraphError, match=r"weight 'w0' \(its elements are in another file \('w'\)"):
        from_onnx((tmp_path / "m.onnx").read_bytes())


def test_names_that_are_no_text_are_refused() -> None:
    whole = model("Softmax", axis=1)
    for opset in (whole.opset_import[0].version, 5):  # supported, and looked into for changes
        whole.opset_import[0].version = opset
        data = whole.SerializeToString()
        for name in (b"Softmax", b"axis"):
            with pytest.raises(GraphError, match=r"no text in UTF-8|is no ONNX model"):
                from_onnx(data.replace(name, b"\xff" + name[1:]), fallback=False)


def test_elements_that_do_not_fill_a_weight_are_refused() -> None:
    broken = model("Conv", W)
    broken.graph.initializer[0].dims[0] = 1 << 40
    with pytest.raises(GraphError, match=r"weight 'w0' \(its elements do not fill its shape"):
        from_onnx(broken)
