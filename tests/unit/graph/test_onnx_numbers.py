"""Operators of ONNX at the edges of their numbers: what the specification and ONNX Runtime say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')
from onnx import AttributeProto, TensorProto, helper

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx import from_onnx
from tests.unit.graph.onnx_nodes import compared, info, model_of
from tests.unit.graph.values import Array, run

INF, NAN = np.inf, np.nan


def checked(opset: int, *nodes: tuple[Any, ...]) -> None:
    """Assert what several nodes give, as one model: operator, inputs, results, attributes."""
    protos, infos, results, given, wanted = [], [], [], [], []
    for number, (operator, inputs, outputs, *attrs) in enumerate(nodes):
        names = [f"x{number}_{n}" for n in range(len(inputs))]
        made = [f"y{number}_{n}" for n in range(len(outputs))]
        node = helper.make_node(operator, names, made)
        for name, value in (attrs[0] if attrs else {}).items():
            empty = AttributeProto.INTS if value == [] else None
            node.attribute.append(helper.make_attribute(name, value, attr_type=empty))
        protos.append(node)
        infos += [info(n, x) for n, x in zip(names, inputs, strict=True)]
        results += [info(n, None) for n in made]
        given += inputs
        wanted += outputs
    g = helper.make_graph(protos, "g", infos, results)
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    for n, (a, b) in enumerate(zip(run(from_onnx(model), *given), wanted, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), results[n].name
        np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=results[n].name)
        assert (np.signbit(a) == np.signbit(b))[a == 0].all(), results[n].name


def f4(*numbers: float) -> Array:
    return np.array(numbers, "float32")


def i4(*numbers: int) -> Array:
    return np.array(numbers, "int32")


REDUCTIONS = [
    ("ReduceL1", 15.0), ("ReduceL2", 55**0.5), ("ReduceLogSum", np.log(15)),
    ("ReduceLogSumExp", np.log(np.exp(np.arange(6)).sum())), ("ReduceMax", 5.0),
    ("ReduceMean", 2.5), ("ReduceMin", 0.0), ("ReduceProd", 0.0), ("ReduceSum", 15.0),
    ("ReduceSumSquare", 55.0),
]  # fmt: skip


@pytest.mark.parametrize("opset", [6, 11, 12, 16])
def test_no_axes_as_an_attribute_are_all_axes(opset: int) -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    kinds = [r for r in REDUCTIONS if opset < 13 or r[0] != "ReduceSum"]
    whole = [(op, [x], [np.array(y, "float32")], {"axes": [], "keepdims": 0}) for op, y in kinds]
    kept = [(op, [x], [np.full((1, 1), y, "float32")], {"axes": []}) for op, y in kinds]
    checked(opset, *whole, *kept)


def test_reductions_of_whole_numbers_are_whole() -> None:
    checked(
        18,
        ("ReduceMean", [i4(7, -8)], [i4(0)]),
        ("ReduceMean", [np.array([-7, -8, -8], "int64")], [np.array([-7])]),
        ("ReduceMean", [np.array([250, 251, 253], "uint32")], [np.array([251], "uint32")]),
        ("ReduceL2", [i4(3, 5)], [i4(5)]),
        ("ReduceL2", [np.array([2**31, 2**31], "int64")], [np.array([int(2**31.5)])]),
        ("ReduceLogSum", [i4(3, 5)], [i4(2)]),
        ("ReduceLogSumExp", [i4(3, 5)], [i4(5)]),
        ("ReduceLogSumExp", [i4(1000, 1000)], [i4(1000)]),
        ("ReduceL1", [i4(3, -5)], [i4(8)]),
        ("ReduceSumSquare", [i4(3, -5)], [i4(34)]),
        ("ReduceMax", [np.array([-128, -127], "int8")], [np.array([-127], "int8")]),
        ("ReduceMin", [np.array([255, 254], "uint8")], [np.array([254], "uint8")]),
    )


def test_logarithms_of_sums_of_infinities() -> None:
    x = np.array([[INF, 1], [-INF, -INF], [INF, -INF], [1, NAN], [-INF, 2]], "float32")
    y = f4(INF, -INF, INF, NAN, 2)
    attrs = {"axes": [1], "keepdims": 0}
    checked(13, ("ReduceLogSumExp", [x], [y], attrs))
    wide = {"axes": [0, 1], "keepdims": 1}
    checked(13, ("ReduceLogSumExp", [x[:3]], [np.full((1, 1), INF, "float32")], wide))


def test_powers_of_whole_numbers_are_exact_and_wrap() -> None:
    big = np.array([7**22, 3**39, 2**62, -1], "int64")
    checked(
        15,
        ("Pow", [i4(46341, 65536, -9), i4(2, 2, 8)], [i4(-2147479015, 0, 9**8)]),
        ("Pow", [np.array([7, 3, 2, -1]), np.array([22, 39, 62, 7])], [big]),
        ("Pow", [i4(2, 3), np.array([31, 2])], [i4(-(2**31), 9)]),
        ("Pow", [f4(-1, -1), i4(2**31 - 1, 2)], [f4(-1, 1)]),
        ("Pow", [f4(NAN, 1), np.array([1e-300, NAN])], [f4(NAN, 1)]),
        ("Pow", [i4(4, 9), f4(0.5, 1.5)], [i4(2, 27)]),
    )


def test_signs_remainders_and_bounds() -> None:
    most = np.finfo("float32").max
    u1, u2 = np.array([0, 5, 255], "uint8"), np.array([0, 5, 65535], "uint16")
    checked(
        13,
        ("Sign", [u1], [np.array([0, 1, 1], "uint8")]),
        ("Sign", [u2], [np.array([0, 1, 1], "uint16")]),
        ("Sign", [f4(-0.0, NAN, -INF, 1e-45)], [f4(0, NAN, -1, 1)]),
        ("Mod", [f4(0, 4, -4, -3, 3), f4(-2, 2, 2, INF, -INF)], [f4(-0.0, 0, 0, INF, -INF)]),
        ("Mod", [i4(-7, 7, -7), i4(3, -3, -3)], [i4(2, -2, -1)]),
        ("Mod", [i4(-7, 7, -7), i4(3, -3, -3)], [i4(-1, 1, -1)], {"fmod": 1}),
        ("Clip", [f4(-INF, INF, NAN)], [f4(-most, most, NAN)]),
        ("Clip", [f4(1, 9), np.float32(5), np.float32(2)], [f4(2, 2)]),
        ("Shrink", [np.array([0, 2, 200], "uint8")], [np.array([0, 1, 199], "uint8")],
         {"lambd": 1.5, "bias": 1.0}),
        ("Erf", [i4(0, 3, -9)], [i4(0, 0, -1)]),
    )  # fmt: skip
    assert checked_refusal("BitwiseNot", [u1], 18) == ""


def checked_refusal(operator: str, inputs: list[Array], opset: int, **attrs: Any) -> str:
    """Why a node is refused; empty where it is not."""
    outputs = attrs.pop("outputs", 1)
    try:
        from_onnx(model_of(operator, inputs, opset, outputs, **attrs), fallback=False)
    except GraphError as exc:
        return str(exc)
    return ""


def test_a_split_that_does_not_add_up_is_refused() -> None:
    x = np.arange(7, dtype="float32")

    def why(opset: int, outputs: int, **attrs: Any) -> str:
        return checked_refusal("Split", [x], opset, outputs=outputs, **attrs)

    assert "parts of [3, 3] do not fill 7 elements" in why(11, 2, split=[3, 3])
    assert "parts of [8, -1] do not fill 7 elements" in why(11, 2, split=[8, -1])
    assert "it has 2 outputs for 3 parts" in why(11, 2, split=[2, 2, 3])
    assert "7 elements are no 2 equal parts" in why(13, 2)
    assert "it has 2 outputs for 3 parts" in why(18, 2, num_outputs=3)
    assert "parts of [2, 2, 2, 2" in why(18, 5, num_outputs=5) or not why(18, 5, num_outputs=5)
    known = helper.make_graph(
        [helper.make_node("Split", ["x", "n"], ["a", "b"])],
        "g",
        [],
        [info("a", None), info("b", None)],
        [helper.make_tensor("x", TensorProto.INT64, [4], range(4)),
         helper.make_tensor("n", TensorProto.INT64, [2], [1, 2])],
    )  # fmt: skip
    model = helper.make_model(known, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(GraphError, match=r"parts of \[1, 2\] do not fill 4 elements"):
        from_onnx(model)
    uneven = [x[:3], x[3:6], x[6:]]
    checked(18, ("Split", [x], uneven, {"num_outputs": 3}))
    checked(18, ("Split", [x[:6]], [x[:2], x[2:4], x[4:6]], {"num_outputs": 3}))


def test_quantising_zeros_limits_and_halves() -> None:
    one = np.float32(1)
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300, -300, INF, -INF], "float32")
    signed = np.array([0, 2, 2, 0, -2, 127, -128, 127, -128], "int8")
    third = np.array(3, "float16")
    checked(
        23,
        ("DynamicQuantizeLinear", [f4(0, 0, 0)],
         [np.zeros(3, "uint8"), np.array(1, "float32"), np.array(0, "uint8")]),
        ("QuantizeLinear", [halves, one, np.array(0, "int8")], [signed]),
        ("QuantizeLinear", [i4(-1, 3, 2**31 - 1), np.float32(0.5), np.array(3, "uint8")],
         [np.array([1, 9, 255], "uint8")]),
        # 65504 / 3 is 21840 in float16.
        ("QuantizeLinear", [np.array([65504], "float16"), third, np.array(3, "uint16")],
         [np.array([21843], "uint16")]),
    )  # fmt: skip


def test_operators_of_several_steps_round_floats_of_16_bits_once() -> None:
    x = np.array([-4, -3, -1.5, -0.1, 0.3, 2.5, 11], "float16")
    wide = x.astype("float64")
    many, row = np.full(4000, 0.9, "float16"), x.reshape(1, -1)
    shift = wide - wide.mean()
    standard = shift / np.sqrt((shift**2).mean() + 1e-5)
    sums = np.cumsum(many.astype("float64"))
    wanted = {
        "HardSwish": wide * np.clip(wide / 6 + 0.5, 0, 1),
        "HardSigmoid": np.clip(np.float32(0.2) * wide + 0.5, 0, 1),
        "Mish": wide * np.tanh(np.log1p(np.exp(wide))),
        "Softsign": wide / (1 + abs(wide)),
        "Gelu": [-0.000126671, -0.00404969, -0.1002108, -0.046009, 0.18539, 2.48447, 11.0],
    }
    nodes = [(op, [x], [np.array(y).astype("float16")]) for op, y in wanted.items()]
    ones = np.ones(7, "float16")
    checked_closely(
        20,
        *nodes,
        ("LayerNormalization", [row, ones], [standard.astype("float16").reshape(1, -1)]),
        ("ReduceL2", [x * 100], [np.array([np.sqrt((wide**2).sum()) * 100]).astype("float16")]),
        ("Mean", [x, x, x], [x]),
        ("CumSum", [many, np.array(0)], [sums.astype("float16")]),
    )


def checked_closely(opset: int, *nodes: tuple[Any, ...]) -> None:
    """As `checked`, within one unit in the last place of float16: what was rounded once."""
    for operator, inputs, outputs in nodes:
        constants = {"x1": inputs[1]} if operator == "CumSum" else {}
        module = from_onnx(model_of(operator, inputs, opset), constants=constants)
        (found,) = run(module, *inputs[: len(inputs) - len(constants)])
        steps = abs(found.view("int16").astype(int) - outputs[0].view("int16").astype(int))
        assert steps.max() <= 1, (operator, found, outputs[0])


def test_resize_reads_where_float32_puts_it() -> None:
    x = np.arange(9, dtype="float32")
    known = {"x1": f4(), "x2": np.array([1 / 3], "float32")}
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    model = model_of("Resize", [x, *known.values()], 13, **how)
    # By the double next to it, 1 / float32(1/3) is a little below 3.
    compared(model, [x, *known.values()], {1: known["x1"], 2: known["x2"]}, [f4(0, 3, 6)])
    scale = np.array([5 / 3], "float32")
    inputs = [x[:3], f4(), scale]
    model = model_of("Resize", inputs, 13, **how)
    compared(model, inputs, {1: f4(), 2: scale}, [f4(0, 0, 1, 1, 2)])
    inputs = [x[:4], np.array([0.6], "float32")]
    compared(model_of("Resize", inputs, 10), inputs, {1: inputs[1]}, [f4(0, 2)])


def test_images_sampled_beyond_their_edge() -> None:
    row = np.array([[[[0, 0, 0, 8]]]], "float32")
    beyond = np.array([[[[4 / 3, 0], [7 / 3, 0]]]], "float32")  # at 3.5, and at 5
    attrs = {"align_corners": 1, "mode": "cubic"}
    infinite, large = np.where(row == 8, INF, row).astype("float32"), row.astype("float64") * 1e300
    checked(
        20,
        # Elements of the edge are repeated: 8 by weights of 19/32, 19/32 and -3/32.
        ("GridSample", [row, beyond], [f4(8.75, 8).reshape(1, 1, 1, 2)],
         {**attrs, "padding_mode": "border"}),
        ("GridSample", [infinite, beyond[:, :, 1:]], [f4(0).reshape(1, 1, 1, 1)],
         {"align_corners": 1}),
        ("GridSample", [large, beyond.astype("float64")], [np.full((1, 1, 1, 2), 8e300)],
         {"align_corners": 1, "mode": "nearest", "padding_mode": "border"}),
    )  # fmt: skip


def test_statistics_of_layers_are_float32() -> None:
    x = np.array([[1, 3.0]])
    inputs, ones = [x, np.ones(2)], np.ones((1, 1), "float32")
    model = model_of("LayerNormalization", inputs, 17, 3, epsilon=0.0)
    compared(model, inputs, {}, [np.array([[-1, 1.0]]), 2 * ones, ones])


def test_what_is_known_is_as_what_a_kernel_gives() -> None:
    for dtype in ("float32", "int32"):
        nothing, axes = np.zeros((0, 2), dtype), np.array([0])
        model = model_of("ReduceMean", [nothing, axes], 18)
        compared(model, [nothing, axes], {0: nothing, 1: axes}, [np.zeros((1, 2), dtype)])
    inputs = [f4(0, 1.9, -1), np.array(3), i4(5, 7)]
    wanted = np.where(np.eye(3, dtype="bool"), 7, 5).astype("int32")
    for known in ((1,), (0, 1, 2)):
        compared(model_of("OneHot", inputs, 11), inputs, {n: inputs[n] for n in known}, [wanted])
    inputs[1] = f4(3)  # counts may be floats
    compared(model_of("OneHot", inputs, 11), inputs, {1: inputs[1]}, [wanted])
    nothing, sizes = f4(), np.array([0, 0, 0])
    model = model_of("Split", [nothing, sizes], 13, 3)  # one result in the schema, any number here
    compared(model, [nothing, sizes], {0: nothing, 1: sizes}, [nothing] * 3)
