"""ONNX models mean here what onnx's own reference implementation says, each opset by its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopwright import graph
from loopwright.errors import GraphError
from loopwright.graph.ir.visitor import called
from loopwright.graph.transform.pipeline import before_layouts, prepared
from tests.unit.graph.values import Array, run

onnx = pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from loopwright.graph.frontend.onnx import UnboundInputsError, converter, from_onnx  # noqa: E402
from tests.unit.graph.onnx_nodes import compared, info, model_of  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype("float32")
Y = RNG.standard_normal((3, 1)).astype("float32")
IMAGE = RNG.standard_normal((1, 2, 5, 6)).astype("float32")
WEIGHT = RNG.standard_normal((4, 2, 3, 3)).astype("float32")
GRID = RNG.uniform(-1.6, 1.6, (1, 3, 4, 2)).astype("float32")
BYTES = RNG.integers(0, 256, (3, 4), "uint8")


def _ints(*values: int) -> Array:
    return np.array(values, "int64")


#: Operator, opset, inputs, which of them are known, attributes.
NODES: list[tuple[str, int, list[Array], list[int], dict[str, Any]]] = [
    ("Add", 13, [X, Y], [], {}),
    ("Mod", 13, [_ints(-7, 7, 5), _ints(3, -3, 5)], [], {}),
    ("Mod", 13, [_ints(-7, 7, 5), _ints(3, -3, 5)], [], {"fmod": 1}),
    ("Max", 13, [X, Y, -X], [], {}),
    ("Mean", 13, [X, Y], [], {}),
    ("Pow", 15, [_ints(1, 2, 3), np.float32([2, 0.5, 3])], [], {}),
    ("Cast", 13, [X * 10], [], {"to": TensorProto.INT32}),
    ("Clip", 11, [X, np.float32(-0.5), np.float32(0.5)], [], {}),
    ("Celu", 12, [X], [], {"alpha": 2.0}),
    ("Selu", 6, [X], [], {}),
    ("Shrink", 9, [X], [], {"lambd": 0.5, "bias": 0.25}),
    ("HardSwish", 14, [X], [], {}),
    ("Mish", 18, [X], [], {}),
    ("Gelu", 20, [X], [], {"approximate": "tanh"}),
    ("IsInf", 10, [np.float32([1, np.inf, -np.inf, np.nan])], [], {"detect_negative": 0}),
    ("BitShift", 11, [BYTES, BYTES % 8], [], {"direction": "RIGHT"}),
    ("Gemm", 13, [X[0], X[1], Y], [], {"alpha": 0.5, "beta": 2.0, "transB": 1}),
    ("Einsum", 12, [X, X], [], {"equation": "bij,bkj->bik"}),
    ("ReduceSum", 11, [X], [], {"axes": [0, 2], "keepdims": 0}),
    ("ReduceSum", 13, [X, _ints(-1)], [1], {}),
    ("ReduceLogSumExp", 18, [X, _ints(1)], [1], {"keepdims": 0}),
    ("ReduceL2", 18, [X], [], {}),
    ("ArgMax", 13, [np.round(X)], [], {"axis": 1, "select_last_index": 1}),
    ("CumSum", 14, [X, _ints(1)[0]], [1], {"reverse": 1}),
    ("TopK", 11, [X, _ints(2)], [1], {"axis": 1, "largest": 0}),
    ("Reshape", 14, [X, _ints(0, -1, 2)], [1], {}),
    ("Unsqueeze", 11, [X], [], {"axes": [0, 3]}),
    ("Unsqueeze", 13, [X, _ints(0, -1)], [1], {}),
    ("Squeeze", 13, [Y, _ints(1)], [1], {}),
    ("Tile", 13, [X, _ints(1, 2, 3)], [1], {}),
    ("Expand", 13, [Y, _ints(2, 1, 4)], [1], {}),
    ("Slice", 13, [X, _ints(-1, 0), _ints(-9, 2), _ints(2, 1), _ints(-2, 1)], [1, 2, 3, 4], {}),
    ("Pad", 13, [X, _ints(0, 1, 0, 1, 0, 2), np.float32(7)], [1, 2], {}),
    ("Pad", 13, [X, _ints(0, 1, 2, 0, 2, 3)], [1], {"mode": "reflect"}),
    ("Pad", 13, [X, _ints(0, 1, 2, 1, 0, 1)], [1], {"mode": "edge"}),
    ("DepthToSpace", 13, [IMAGE.reshape(1, 4, 3, 5)], [], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", 13, [IMAGE[:, :, :4]], [], {"blocksize": 2}),
    ("GatherND", 13, [X, np.array([[0, 1], [1, 2]])], [], {}),
    ("ScatterElements", 16, [X, np.array([[[2, 0, 2]]]), X[:1, :1, :3]], [], {"axis": 1}),
    ("ScatterND", 16, [X, np.array([[1], [0]]), X], [], {"reduction": "add"}),
    ("OneHot", 11, [_ints(0, 2, -1), np.array(4), np.float32([2, 3])], [1], {}),
    ("Trilu", 14, [X, _ints(1)[0]], [1], {"upper": 0}),
    ("Resize", 13, [IMAGE, np.float32([]), np.float32([1, 1, 2, 0.5])], [1, 2], {}),
    ("Resize", 13, [IMAGE, np.float32([]), np.float32([1, 1, 1.5, 2])], [1, 2],
     {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    ("Resize", 13, [IMAGE, np.float32([]), np.float32([1, 1, 0.6, 2])], [1, 2], {"mode": "cubic"}),
    ("Resize", 13, [BYTES, np.float32([]), np.float32([1.5, 0.8])], [1, 2], {"mode": "cubic"}),
    ("Conv", 11, [IMAGE, WEIGHT], [], {"strides": [2, 1], "auto_pad": "SAME_LOWER"}),
    ("ConvTranspose", 11, [IMAGE, WEIGHT[:2]], [], {"strides": [2, 2], "output_padding": [1, 0]}),
    ("MaxPool", 12, [IMAGE], [], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", 19, [IMAGE], [], {"kernel_shape": [2, 3], "pads": [1, 1, 0, 0],
                                      "dilations": [2, 1], "count_include_pad": 1}),
    ("InstanceNormalization", 6, [IMAGE, X[0, 0, :2], X[1, 1, :2]], [], {}),
    ("LRN", 13, [X[:, :2, :2, None].repeat(2, 3)], [], {"size": 3}),
    ("GroupNormalization", 21, [IMAGE, X[0, 0, :2], X[1, 1, :2]], [], {"num_groups": 1}),
    ("QuantizeLinear", 13, [X, np.float32(0.02), np.uint8(128)], [], {}),
    ("DequantizeLinear", 19, [BYTES, np.float32([0.1, 0.2, 0.3]), BYTES[:, 0]], [], {"axis": 0}),
    ("MatMulInteger", 10, [BYTES, BYTES.T, np.uint8(12), np.uint8(3)], [], {}),
    ("LSTM", 14, [X, *(RNG.standard_normal(s).astype("float32")
                       for s in ((1, 8, 4), (1, 8, 2), (1, 16)))], [], {"hidden_size": 2}),
    ("GridSample", 20, [IMAGE, GRID], [], {}),
    ("GridSample", 20, [IMAGE, GRID], [], {"mode": "cubic", "padding_mode": "reflection"}),
    ("GridSample", 20, [IMAGE, GRID], [], {"padding_mode": "reflection", "align_corners": 1}),
    ("GridSample", 20, [IMAGE, GRID], [], {"mode": "nearest", "padding_mode": "reflection"}),
    ("DFT", 19, [X[..., None]], [], {"axis": 1, "onesided": 1}),
    ("DFT", 20, [IMAGE[0, :, :, :2], _ints(7)[0], _ints(1)[0]], [1, 2], {"inverse": 1}),
    ("STFT", 17, [X.reshape(2, 12, 1), _ints(3)[0], X[0, 0]], [1], {}),
    ("Col2Im", 18, [X.repeat(4, 1).reshape(2, 12, 4), _ints(5, 6), _ints(2, 3)], [1, 2],
     {"strides": [2, 3], "pads": [0, 0, 0, 0]}),
]  # fmt: skip


@pytest.mark.parametrize("node", NODES, ids=lambda n: f"{n[0]}-{n[1]}")
def test_nodes_mean_what_onnx_says(node: tuple[Any, ...]) -> None:
    operator, opset, inputs, known, attrs = node
    outputs = {"TopK": 2, "LSTM": 1}.get(operator, 1)
    model = model_of(operator, inputs, opset, outputs, **attrs)
    compared(model, inputs, {n: inputs[n] for n in known}, None)


def _softmax(x: Array, axes: tuple[int, ...]) -> Array:
    e = np.exp(x - x.max(axes, keepdims=True))
    return np.asarray(e / e.sum(axes, keepdims=True))


OLDER: list[tuple[str, int, list[Array], dict[str, Any], Array]] = [
    ("Softmax", 11, [X], {}, _softmax(X, (1, 2))),
    ("Softmax", 13, [X], {}, _softmax(X, (2,))),
    ("LogSoftmax", 11, [X], {"axis": 2}, np.log(_softmax(X, (2,)))),
    ("Clip", 6, [X], {"min": -0.25}, np.maximum(X, np.float32(-0.25))),
    ("Pad", 6, [X], {"pads": [0, 0, 1, 0, 2, 0]}, np.pad(X, ((0, 0), (0, 2), (1, 0)))),
    ("Slice", 9, [X], {"starts": [1], "ends": [3], "axes": [1]}, X[:, 1:3]),
    ("Squeeze", 11, [Y], {"axes": [-1]}, Y[:, 0]),
    ("Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 1.0]}, IMAGE.repeat(2, 2)),
    ("Dropout", 7, [X], {"ratio": 0.5}, X),
]


@pytest.mark.parametrize("node", OLDER, ids=lambda n: f"{n[0]}-{n[1]}")
def test_older_opsets_have_their_own_meaning(node: tuple[Any, ...]) -> None:
    operator, opset, inputs, attrs, wanted = node
    compared(model_of(operator, inputs, opset, **attrs), inputs, {}, [wanted])


FUNCTIONS: list[tuple[str, int, list[Array], list[int], dict[str, Any]]] = [
    ("CenterCropPad", 18, [X, _ints(2, 5, 2)], [1], {}),
    ("SoftmaxCrossEntropyLoss", 13, [X, np.array([[0, 1, 2, 0], [2, 2, 1, 0]])], [], {}),
    ("Attention", 23, [IMAGE, IMAGE, IMAGE], [], {"is_causal": 1}),
]


@pytest.mark.parametrize("node", FUNCTIONS, ids=lambda n: n[0])
def test_operators_without_a_converter_are_what_onnx_makes_of_them(node: tuple[Any, ...]) -> None:
    operator, opset, inputs, known, attrs = node
    assert operator not in graph.frontend.onnx.known_operators()
    model = model_of(operator, inputs, opset, **attrs)
    compared(model, inputs, {n: inputs[n] for n in known}, None)


def _graph(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[str], **more: Any) -> Any:
    infos = [info(n, None) for n in outputs]
    return helper.make_graph(list(nodes), "g", list(inputs), infos, **more)


def _of(g: Any, opset: int = 17, **more: Any) -> Any:
    opsets = [helper.make_opsetid("", opset), *more.pop("opsets", ())]
    return helper.make_model(g, opset_imports=opsets, ir_version=8, **more)


def test_arithmetic_of_shapes_is_done_when_a_model_is_imported() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"], axis=0),
        helper.make_node("Concat", ["batch", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(_ints(0), "zero"),
        numpy_helper.from_array(_ints(-1), "rest"),
    ]
    module = from_onnx(_of(_graph(nodes, [info("x", X)], ["y"], initializer=weights)))
    calls = [called(e) for e in graph.post_order(module["main"]) if called(e)]
    assert calls == ["reshape"]
    np.testing.assert_array_equal(run(module, X)[0], X.reshape(2, -1))


def test_branches_and_loops_that_are_known_are_unrolled() -> None:
    twice = _graph([helper.make_node("Add", ["x", "x"], ["t"])], [], ["t"])
    same = _graph([helper.make_node("Identity", ["x"], ["e"])], [], ["e"])
    step = _graph(
        [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("Mul", ["v", "v"], ["w"]),
            helper.make_node("Identity", ["w"], ["kept"]),
        ],
        [info("n", _ints(0)[0]), info("go", np.bool_(True)), info("v", X)],
        ["goes", "w", "kept"],
    )
    nodes = [
        helper.make_node("If", ["flag"], ["a"], then_branch=twice, else_branch=same),
        helper.make_node("Loop", ["count", "", "a"], ["b", "all"], body=step),
    ]
    infos = [info("x", X), info("flag", np.array(True)), info("count", _ints(0)[0])]
    model = _of(_graph(nodes, infos, ["b", "all"]))
    known = {"flag": np.array(True), "count": np.array(2)}
    found = run(from_onnx(model, constants=known), X)
    for a, b in zip(found, [(2 * X) ** 4, np.stack([(2 * X) ** 2, (2 * X) ** 4])], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    with pytest.raises(UnboundInputsError, match=r"If 'a' .*depends on 'flag'"):
        from_onnx(model, fallback=False)


def test_functions_of_the_model_itself_are_expanded() -> None:
    scaled = helper.make_function(
        "own",
        "Scaled",
        ["x"],
        ["y"],
        [
            helper.make_node("Constant", [], ["factor"], value_float=3.0),
            helper.make_node("Mul", ["x", "factor"], ["y"]),
        ],
        [helper.make_opsetid("", 17)],
    )
    node = helper.make_node("Scaled", ["x"], ["y"], domain="own")
    model = _of(
        _graph([node], [info("x", X)], ["y"]),
        functions=[scaled],
        opsets=[helper.make_opsetid("own", 1)],
    )
    np.testing.assert_allclose(run(from_onnx(model), X)[0], X * 3, rtol=1e-6)


def test_a_converter_of_ones_own_is_used() -> None:
    @converter("own::Twice")
    def twice(node: Any) -> graph.Expr:
        made: graph.Expr = node.call("add", node[0], node[0])
        return made

    node = helper.make_node("Twice", ["x"], ["y"], domain="own")
    model = _of(_graph([node], [info("x", X)], ["y"]), opsets=[helper.make_opsetid("own", 1)])
    np.testing.assert_allclose(run(from_onnx(model), X)[0], X * 2, rtol=1e-6)


def test_numbers_beyond_a_dtype_and_tuples_are_refused_where_a_tensor_is_needed() -> None:
    @converter("own::Big")
    def big(node: Any) -> graph.Expr:
        made: graph.Expr = node.call("add", node[0], 300)
        return made

    @converter("own::Whole")
    def whole(node: Any) -> graph.Expr:
        node.dtype(graph.Tuple((node[0],)))
        return node[0]  # type: ignore[no-any-return]

    x = np.zeros(3, "int8")
    opsets = [helper.make_opsetid("own", 1)]
    models = [
        _of(_graph([helper.make_node(n, ["x"], ["y"], domain="own")], [info("x", x)], ["y"]),
            opsets=opsets)
        for n in ("Big", "Whole")
    ]  # fmt: skip
    with pytest.raises(OverflowError, match="300"):
        from_onnx(models[0])
    assert "it reads (int8[3],), where a tensor is needed" in _refused(models[1])


def test_names_of_extents_become_size_variables_and_shapes_may_be_given() -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    model = _of(_graph([helper.make_node("Relu", ["x"], ["y"])], [info], ["y"]))
    declared = from_onnx(model)["main"].params[0].type
    assert str(declared) == "float32[batch, 4]"
    module = from_onnx(model, shape={"x": (3, 4)})
    assert module["main"].params[0].type == graph.TensorType((3, 4))


def _refused(model: Any, **given: Any) -> str:
    with pytest.raises(GraphError) as caught:
        from_onnx(model, **given, fallback=False)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(("opset", "dtype"), [(7, "float32"), (10, "bool")])
def test_the_mask_of_a_dropout_is_a_truth_from_opset_10_on(opset: int, dtype: str) -> None:
    compared(model_of("Dropout", [X], opset, 2, ratio=0.5), [X], {}, [X, np.ones(X.shape, dtype)])


@pytest.mark.parametrize("operator", ["Squeeze", "Unsqueeze"])
def test_axes_are_no_input_of_older_opsets(operator: str) -> None:
    assert operator in _refused(model_of(operator, [X, _ints(1)], 11))


def test_all_nodes_that_cannot_be_converted_are_told_at_once() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="behind"),
        helper.make_node("Resize", ["x", "", "scales"], ["c"], name="second", mode="other"),
        helper.make_node("Unheard", ["x"], ["d"], name="third"),
    ]
    weights = [numpy_helper.from_array(np.float32([1, 2, 2]), "scales")]
    g = _graph(nodes, [info("x", X)], ["b", "c", "d"], initializer=weights)
    text = _refused(_of(g))
    assert text.startswith("3 nodes cannot be converted: ")
    for part in ("NonZero 'first'", "Resize 'second' (its mode is 'other'", "Unheard 'third'"):
        assert part in text
    assert "behind" not in text


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    relu = _graph([helper.make_node("Relu", ["x"], ["y"])], [info("x", X)], ["y"])
    assert "there is no file" in _refused(str(tmp_path / "missing.onnx"))
    assert "no ONNX model" in _refused(b"something else")
    assert "no ONNX model" in _refused(b"")
    stored = _of(relu).SerializeToString()
    assert "no ONNX model" in _refused(stored[: len(stored) // 2])
    assert "opset 5; 6 to 28 are supported" in _refused(_of(relu, 5))
    assert "opset 99" in _refused(_of(relu, 99))
    assert "no input 'X'; it has x" in _refused(_of(relu), shape={"X": (1,)})
    assert "got a constant of float64" in _refused(_of(relu), constants={"x": np.zeros((2, 3, 4))})
    cycle = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    assert "reads 'b', which no node before it makes" in _refused(
        _of(_graph(cycle, [info("x", X)], ["b"]))
    )
    text = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    assert "input 'x': unknown dtype" in _refused(
        _of(_graph([helper.make_node("Identity", ["x"], ["y"])], [text], ["y"]))
    )
    bare = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    assert "has no shape; give it" in _refused(
        _of(_graph([helper.make_node("Relu", ["x"], ["y"])], [bare], ["y"]))
    )


def test_external_data_are_read_from_the_folder_of_the_model_alone(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(X[0], "w")
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = _of(_graph([node], [info("x", X)], ["y"], initializer=[weight]))
    path = tmp_path / "inner" / "model.onnx"
    path.parent.mkdir()
    onnx.save(model, str(path), save_as_external_data=True, location="data.bin", size_threshold=0)
    np.testing.assert_allclose(run(from_onnx(path), X)[0], X + X[0], rtol=1e-6)
    moved = onnx.load(str(path), load_external_data=False)
    (path.parent / "data.bin").rename(tmp_path / "data.bin")
    moved.graph.initializer[0].external_data[0].value = "../data.bin"
    path.write_bytes(moved.SerializeToString())
    assert "no ONNX model" in _refused(path)


def _compiled(module: graph.IRModule, *inputs: Array) -> list[Array]:
    return graph.compile(module, "llvm -num-threads=1")(*inputs)


@pytest.mark.parametrize(
    "computed",
    # Kernels of whole models are compiled in test_tasks and test_models, too.
    [lambda module, *inputs: run(before_layouts(module), *inputs),
     pytest.param(_compiled, marks=pytest.mark.slow)],
    ids=["numpy", "compiled"],
)  # fmt: skip
def test_resnet18_computes_what_onnx_computes(computed: Callable[..., list[Array]]) -> None:
    from benchmarks.onnx_models import inputs_of, resnet18

    model = resnet18(size=32, width=4, classes=10)
    given = inputs_of(model)
    module = from_onnx(model)
    wanted = ReferenceEvaluator(model).run(None, given)[0]
    np.testing.assert_allclose(computed(module, given["image"])[0], wanted, rtol=1e-3, atol=1e-4)
    assert len(prepared(module).kernels) < len(model.graph.node) / 2


def test_models_that_are_built_compute_what_onnx_computes_in_either_layout() -> None:
    from benchmarks.onnx_built import bert, mobilenet_v2
    from benchmarks.onnx_models import inputs_of

    for model in (bert(layers=1, tokens=4, width=8, heads=2), mobilenet_v2(size=32, classes=10)):
        given = inputs_of(model)
        wanted = ReferenceEvaluator(model).run(None, given)[0]
        module = from_onnx(model)
        for made in (module, graph.transform.ConvertLayout(module)):
            found = run(made, *given.values())[0]
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
