"""Winograd's convolutions: their results, their error, and where they are taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import loopwright as lw
from loopwright import graph, te
from loopwright.graph import op
from loopwright.graph.op.winograd import F2, F2_ERROR, F4, F4_ERROR, Transforms
from loopwright.graph.registry import applicable, implementations
from loopwright.lowering import prepared_stages
from tests.covering import covering

TARGET = "llvm -num-threads=1"
#: Half of the distance from 1 to the next float32.
UNIT = 2.0**-24
Array = np.ndarray[Any, Any]


def convolved(data: Array, weight: Array, pads: tuple[int, ...]) -> Array:
    """(N, H, W, C) with (3, 3, C, O), in float64; pads: top, left, bottom, right."""
    top, left, bottom, right = pads
    x = np.pad(data.astype("float64"), ((0, 0), (top, bottom), (left, right), (0, 0)))
    height, width = x.shape[1] - 2, x.shape[2] - 2
    return sum(
        x[:, r : r + height, s : s + width] @ weight[r, s].astype("float64")
        for r in range(3)
        for s in range(3)
    )


def drawn(shape: tuple[int, ...], outputs: int, seed: int = 0) -> tuple[Array, Array]:
    """An image and a window of normal distributions."""
    rng = np.random.default_rng(seed)
    data = rng.standard_normal(shape).astype("float32")
    return data, rng.standard_normal((3, 3, shape[3], outputs)).astype("float32")


def tensors(
    shape: tuple[int, ...], outputs: int, padding: Any, last: bool = True
) -> tuple[str, list[te.Tensor], dict[str, Any]]:
    """A call: its operator, inputs and attributes."""
    n, height, width, channels = shape
    order = shape if last else (n, channels, height, width)
    window = (3, 3, channels, outputs) if last else (outputs, channels, 3, 3)
    name = "nn.conv_channels_last" if last else "nn.conv"
    inputs = [te.placeholder(order, name="data"), te.placeholder(window, name="w", constant=True)]
    return name, inputs, dict(graph.get_op(name).complete({"padding": padding}))


def by_name(name: str, step: int) -> graph.Implementation:
    (found,) = (i for i in implementations(name) if i.name == f"winograd_{step}x{step}")
    return found


def run(step: int, data: Array, weight: Array, padding: Any, last: bool = True) -> Array:
    """The result of an implementation, always (N, H, W, O).

    With channels last it is in its default schedule; else as it is written.
    """
    name, inputs, attrs = tensors(data.shape, weight.shape[3], padding, last)
    (out,) = by_name(name, step).tensors(inputs, attrs)
    args = [*inputs, out]
    plain = te.create_schedule(out.op)
    built = lw.build(args, TARGET) if last else lw.build(plain, args, TARGET)
    if not last:
        data, weight = data.transpose(0, 3, 1, 2), weight.transpose(3, 2, 0, 1)
    result = np.full(out.static_shape, np.nan, "float32")
    built(np.ascontiguousarray(data), np.ascontiguousarray(weight), result)
    return result if last else result.transpose(0, 2, 3, 1)


@pytest.mark.parametrize(
    ("case", "step"),
    covering(
        [
            ((2, 7, 11, 20), 18, (0, 2, 1, 0), True),  # nothing divides, nor is anything even
            ((1, 9, 7, 17), 24, (1, 1, 1, 1), False),
            ((1, 8, 8, 16), 32, (1, 1, 1, 1), True),
            ((1, 6, 9, 16), 16, (0, 0, 0, 0), False),
        ],
        [4, 2],
        strength=1,
    ),
    ids=str,
)
def test_results_are_those_of_the_definition(
    case: tuple[tuple[int, ...], int, tuple[int, ...], bool], step: int
) -> None:
    shape, outputs, pads, last = case
    data, weight = drawn(shape, outputs)
    right = convolved(data, weight, pads)
    found = run(step, data, weight, pads, last)
    assert np.abs(found - right).max() <= (F2_ERROR if step == 2 else F4_ERROR) * abs(right).max()


def bound_of(t: Transforms, data: Array, weight: Array, channels: int) -> Array:
    """A bound of the error of each element, for images without padding of whole tiles.

    Of a sum of n products each term has n + 1 roundings at most; so the error is at most their
    number on the longest way, times the unit roundoff, times the sum of all absolute terms.
    """
    b, g, a = (np.abs(np.array(m)) for m in (t.image, t.window, t.back))
    step, size = t.step, len(b)
    down, across = ((n - 2) // step for n in data.shape[1:3])
    tiles = np.empty((down, across, size, size, channels))
    for y in range(down):
        for x in range(across):
            part = data[0, y * step : y * step + size, x * step : x * step + size]
            tiles[y, x] = np.abs(part)
    image = np.einsum("ai,bj,yxijc->abyxc", b, b, tiles)
    window = np.einsum("ar,bs,rsco->abco", g, g, np.abs(weight))
    sums = np.einsum("abyxc,abco->abyxo", image, window)
    result = np.einsum("ra,sb,abyxo->yrxso", a, a, sums)
    roundings = 2 * (size + 1) + 2 * 4 + (channels + 1) + 2 * (size + 1)
    return roundings * UNIT * result.reshape(1, down * step, across * step, -1)


@pytest.mark.parametrize(
    ("channels", "step", "last"), covering([16, 128], [2, 4], [False, True], strength=1)
)
def test_the_error_is_bounded(channels: int, step: int, last: bool) -> None:
    extents = (10, 6) if last else (14, 10)
    data, weight = drawn((1, *extents, channels), 32, int(channels == 128))
    right = convolved(data, weight, (0, 0, 0, 0))
    error = np.abs(run(step, data, weight, 0, last) - right)
    stated = by_name("nn.conv_channels_last" if last else "nn.conv", step).error
    assert error.max() <= stated * np.abs(right).max()
    assert (error <= bound_of(F2 if step == 2 else F4, data, weight, channels)).all()


def test_numbers_far_apart_keep_to_the_bound() -> None:
    """Where elements of a tile differ by orders of magnitude, small results lose digits."""
    data, weight = drawn((1, 10, 10, 16), 16)
    data[:, ::3, ::3] *= 1e4
    right = convolved(data, weight, (0, 0, 0, 0))
    for step, transforms in ((2, F2), (4, F4)):
        error = np.abs(run(step, data, weight, 0, last=False) - right)
        assert (error <= bound_of(transforms, data, weight, 16)).all()


def test_what_it_does_not_compute_is_left_to_the_definition() -> None:
    shape, target = (1, 16, 16, 64), lw.Target("llvm -mcpu=x86-64-v4")
    name, inputs, attrs = tensors(shape, 64, 1)

    def names(inputs: list[te.Tensor], target: lw.Target = target, **other: Any) -> list[str]:
        return [i.name for i in applicable(name, inputs, {**attrs, **other}, target)]

    assert names(inputs) == ["winograd_2x2", "definition"]
    with lw.PassContext(config={"max_error": 1e-4}):
        assert names(inputs) == ["winograd_4x4", "winograd_2x2", "definition"]
    with lw.PassContext(config={"max_error": 0}):
        assert names(inputs) == ["definition"]
    assert names(inputs, strides=2) == ["definition"]
    assert names(inputs, dilation=(1, 2)) == ["definition"]
    assert names(inputs, out_dtype="float64") == ["definition"]
    assert names([inputs[0], te.placeholder((3, 3, 64, 64))]) == ["definition"]
    grouped = te.placeholder((3, 3, 32, 64), constant=True)
    assert names([inputs[0], grouped], groups=2) == ["definition"]
    assert names([inputs[0], te.placeholder((5, 5, 64, 64), constant=True)]) == ["definition"]
    assert names(inputs, lw.Target("opencl")) == ["definition"]
    # Where it was not measured to be faster, it is to be tuned, and not built without.
    _, small, _ = tensors((1, 7, 7, 512), 512, 1)
    assert names(small) == ["definition", "winograd_2x2"]
    assert names(inputs, lw.Target("llvm -mcpu=x86-64-v2")) == ["definition", "winograd_2x2"]


@pytest.mark.parametrize("window", [(3,), (3, 3, 3)])
def test_windows_of_other_dimensions_are_left_to_the_definition(window: tuple[int, ...]) -> None:
    """Their strides are one number, or three."""
    rng = np.random.default_rng(len(window))
    data = rng.integers(-4, 5, (1, 64, *[5] * len(window))).astype("float32")
    weight = rng.integers(-4, 5, (64, 64, *window)).astype("float32")
    ones = (1,) * len(window)
    x = graph.var("x", data.shape)
    module = graph.IRModule.from_expr(op.nn.conv(x, weight, strides=ones, dilation=ones))
    pieces = sliding_window_view(data[0], window, axis=tuple(range(1, len(window) + 1)))
    size = weight[0, 0].size
    right = np.einsum("cpk,ock->op", pieces.reshape(64, -1, size), weight.reshape(64, 64, size))
    found = graph.compile(module, TARGET)(data)[0]
    np.testing.assert_array_equal(found.reshape(64, -1), right)


def test_a_model_is_built_of_it_with_its_epilogue() -> None:
    rng = np.random.default_rng(3)
    weight = (rng.standard_normal((64, 64, 3, 3)) / 24).astype("float32")
    bias = rng.standard_normal((1, 64, 1, 1)).astype("float32")
    x = graph.var("x", (1, 64, 12, 12))
    y = op.nn.relu(op.add(op.add(op.nn.conv(x, weight, padding=1), bias), x))
    module = graph.IRModule.from_expr(y)
    target = "llvm -num-threads=1 -mcpu=x86-64-v4"
    (task,) = (t for t in graph.extract_tasks(module, target) if t.implementation != "definition")
    assert (task.implementation, task.rank) == ("winograd_2x2", 0)
    s, _ = task.task.instantiate(task.task.fallback())
    once = {s.state.stages[i].op.name for i in prepared_stages(s.state)}
    assert "windows" in once  # they are transformed when weights are known, not in calls
    data = rng.standard_normal((1, 64, 12, 12)).astype("float32")
    model = graph.compile(module, TARGET)
    plain = convolved(data.transpose(0, 2, 3, 1), weight.transpose(2, 3, 1, 0), (1, 1, 1, 1))
    right = np.maximum(plain.transpose(0, 3, 1, 2) + bias + data, 0)
    assert np.abs(model(data)[0] - right).max() <= F2_ERROR * np.abs(right).max()
