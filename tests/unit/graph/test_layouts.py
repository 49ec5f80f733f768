"""Channels side by side: operators that have them so, and the pass that writes these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from loopwright import graph
from loopwright.errors import GraphError
from loopwright.graph import op
from loopwright.graph.transform import ConvertLayout, DeadCodeElimination, FoldConstant
from tests.unit.graph.values import Array, drawn, run, same, values

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((2, 4, 7, 6)).astype("float32")
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def _weight(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize(
    ("groups", "outputs", "attrs"),
    [
        (1, 5, {}),
        (1, 5, {"padding": (1, 2, 0, 1), "strides": (2, 1)}),
        (1, 3, {"dilation": 2, "padding": 2}),
        (4, 4, {"padding": 1}),
        (2, 6, {"strides": 2}),
        (4, 8, {}),
    ],
)
def test_convolutions_with_channels_last(
    layout: str, groups: int, outputs: int, attrs: dict[str, Any]
) -> None:
    weight = _weight(outputs, 4 // groups, 3, 2)
    (wanted,) = values(op.nn.conv(graph.const(IMAGE), weight, groups=groups, **attrs))
    data = IMAGE.transpose(TO_LAST) if layout == "channels_last" else IMAGE
    made = op.nn.conv_channels_last(
        data, weight.transpose(2, 3, 1, 0), groups=groups, data_layout=layout, **attrs
    )
    same(made, wanted.transpose(TO_LAST))


@pytest.mark.parametrize(
    "attrs",
    [
        {"pool_size": 2},
        {"pool_size": (3, 2), "strides": (2, 1), "padding": 1},
        {"pool_size": 3, "strides": 2, "padding": (0, 1, 1, 0)},
    ],
)
def test_pools_with_channels_last(attrs: dict[str, Any]) -> None:
    data = graph.const(IMAGE.transpose(TO_LAST))
    for name, more in (
        ("max_pool", {}),
        ("avg_pool", {}),
        ("avg_pool", {"count_include_pad": True}),
    ):
        (wanted,) = values(graph.get_op(f"nn.{name}")(graph.const(IMAGE), **attrs, **more))
        made = graph.get_op(f"nn.{name}_channels_last")(data, **attrs, **more)
        same(made, wanted.transpose(TO_LAST))


def test_layouts_that_are_none_are_refused() -> None:
    weight = _weight(3, 3, 4, 5)
    call = op.nn.conv_channels_last(graph.var("x", (1, 7, 6, 4)), weight, data_layout="NHWC")
    with pytest.raises(GraphError, match="data_layout is 'NHWC'; there are channels_last"):
        graph.infer_types(graph.IRModule.from_expr(call))


def _converted(e: graph.Expr) -> graph.IRModule:
    return FoldConstant(DeadCodeElimination(ConvertLayout(graph.IRModule.from_expr(e))))


def _count(module: graph.IRModule, name: str) -> int:
    return str(module).count(f" {name}(")


def _conv(x: graph.Expr, inputs: int, outputs: int, **attrs: Any) -> graph.Expr:
    call: graph.Expr = op.nn.conv(x, _weight(outputs, inputs, 3, 3), padding=1, **attrs)
    return call


def test_a_residual_block_keeps_its_layout() -> None:
    """The image is read as it is; nothing is turned between the first and the last call."""
    x = graph.var("x", (2, 3, 7, 6))
    a = op.nn.max_pool(op.nn.relu(_conv(x, 3, 16)), pool_size=2)
    b = op.multiply(_conv(a, 16, 16), _weight(16, 1, 1))
    c = op.nn.bias_add(_conv(b, 16, 16), _weight(16))
    pooled = op.mean(op.nn.relu(op.add(a, c)), axis=(2, 3), keepdims=True)
    module = graph.IRModule.from_expr(op.nn.batch_flatten(pooled))
    made = _converted(op.nn.batch_flatten(pooled))
    assert _count(made, "transpose") == 0
    assert _count(made, "nn.conv_channels_last") == 3
    image = _weight(2, 3, 7, 6)
    np.testing.assert_allclose(run(made, image)[0], run(module, image)[0], rtol=1e-4, atol=1e-4)


def test_what_does_not_know_the_layout_gets_the_other_one() -> None:
    x = graph.var("x", (1, 8, 4, 4))
    y = _conv(x, 8, 8)
    both = graph.Tuple((op.nn.softmax(y, axis=1), op.exp(y), op.reshape(y, newshape=(8, 16))))
    made = _converted(both)
    # The input, and the convolution once for two readers, and what a result is.
    assert _count(made, "transpose") == 3
    image = _weight(1, 8, 4, 4)
    for found, wanted in zip(
        run(made, image), run(graph.IRModule.from_expr(both), image), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_slices_take_the_layout_over() -> None:
    x = graph.var("x", (2, 3, 7, 6))
    y = _conv(x, 3, 16)
    part = op.strided_slice(y, begin=(4, 1), end=(12, 6), strides=(1, 2), axes=(1, -2))
    other = op.strided_slice(y, begin=(0, 2), end=(2, 10))
    pooled = [op.mean(_conv(e, 8, 8), axis=(2, 3)) for e in (part, other)]
    module = graph.IRModule.from_expr(graph.Tuple(tuple(pooled)))
    made = _converted(module["main"])
    assert _count(made, "transpose") == 0
    image = _weight(2, 3, 7, 6)
    for found, wanted in zip(run(made, image), run(module, image), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_few_output_channels_and_groups_stay_as_they_are() -> None:
    x = graph.var("x", (1, 8, 4, 4))
    for y in (_conv(x, 8, 3), _conv(x, 4, 16, groups=2)):
        module = graph.IRModule.from_expr(y)
        assert graph.structural_equal(ConvertLayout(module), module)


def test_each_channel_by_itself_is_converted() -> None:
    x = graph.var("x", (1, 8, 5, 4))
    y = op.nn.conv(_conv(x, 8, 8), _weight(8, 1, 3, 3), groups=8, strides=2, padding=1)
    made = _converted(op.sum(y, axis=(2, 3)))
    assert _count(made, "nn.conv_channels_last") == 2
    assert _count(made, "transpose") == 1
    image = _weight(1, 8, 5, 4)
    wanted = run(graph.IRModule.from_expr(op.sum(y, axis=(2, 3))), image)[0]
    np.testing.assert_allclose(run(made, image)[0], wanted, rtol=1e-4, atol=1e-4)


@st.composite
def _networks(draw: st.DrawFn) -> graph.Expr:
    """Convolutions of 8 channels over images of (1, 8, 4, 6), with anything between them."""
    x = graph.var("x", (1, 8, 4, 6))
    known: list[graph.Expr] = [x]
    for _ in range(draw(st.integers(2, 7))):
        a, b = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        known.append(draw(st.sampled_from(_steps(a, b))))
    last = known[-1]
    ends = [
        last,
        op.mean(last, axis=(2, 3)),
        op.sum(last, axis=1, keepdims=True),
        op.max(last, axis=1),
        op.min(last, axis=-1),
        op.nn.batch_flatten(op.mean(last, axis=(2, 3), keepdims=True)),
        op.squeeze(op.max(last, axis=(2, 3), keepdims=True), axis=(2, 3)),
        op.reshape(last, newshape=(2, -1)),
    ]
    return draw(st.sampled_from(ends))


def _steps(a: graph.Expr, b: graph.Expr) -> list[graph.Expr]:
    """Calls over one or two images, which give an image of the same shape."""
    cut = op.strided_slice(op.concatenate(a, b, axis=1), begin=(4,), end=(12,), axes=(1,))
    wide = op.nn.pad(a, pad_width=((0, 0), (0, 0), (1, 0), (0, 1)), pad_value=0.5)
    gate = op.sigmoid(op.mean(b, axis=(2, 3), keepdims=True))
    return [
        _conv(a, 8, 8),
        op.nn.conv(a, _weight(8, 1, 3, 3), padding=1, groups=8),
        op.add(a, b),
        op.multiply(a, gate),
        op.nn.prelu(a, _weight(8, 1, 1)),
        op.subtract(_weight(6), a),
        op.divide(a, 2.0),
        op.clip(a, a_min=-1.0, a_max=1.0),
        op.nn.bias_add(a, _weight(8)),
        op.nn.bias_add(a, _weight(6), axis=-1),
        op.nn.max_pool(a, pool_size=3, padding=1),
        op.nn.avg_pool(a, pool_size=3, padding=1),
        cut,
        op.nn.max_pool(wide, pool_size=2),
        op.nn.softmax(a, axis=1),
        op.transpose(op.transpose(a)),
    ]


@drawn(_networks())
def test_random_networks_compute_the_same(e: graph.Expr) -> None:
    module = graph.IRModule.from_expr(e)
    image = np.random.default_rng(1).standard_normal((1, 8, 4, 6)).astype("float32")
    given = [image] * len(module["main"].params)
    (wanted,), (found,) = run(module, *given), run(ConvertLayout(module), *given)
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=1e-4 * (1 + np.abs(wanted).max()))
