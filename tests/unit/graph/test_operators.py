"""Each operator computes what NumPy computes, with the shape and dtype that inference tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import special

from loopwright import graph
from loopwright.errors import GraphError
from loopwright.graph import op
from tests.unit.graph.values import Array, same, values

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 5)).astype("float32")
POSITIVE = np.abs(X) + 0.5
ROW = RNG.standard_normal((5,)).astype("float32")
COLUMN = RNG.standard_normal((3, 1)).astype("float32")
IMAGE = RNG.standard_normal((2, 4, 7, 6)).astype("float32")
SHARES = np.float32([-1, -0.999, -0.5, -1e-4, 0, 1e-4, 0.5, 0.999, 1])
WHOLE = RNG.integers(-9, 9, (3, 4)).astype("int32")


UNARY: dict[str, tuple[Array, Callable[[Array], Array]]] = {
    "nn.relu": (X, lambda x: np.maximum(x, 0)),
    "sigmoid": (X, special.expit),
    "tanh": (X, np.tanh),
    "exp": (X, np.exp),
    "log": (POSITIVE, np.log),
    "sqrt": (POSITIVE, np.sqrt),
    "rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x)),
    "erf": (X, special.erf),
    "sin": (X, np.sin),
    "cos": (X, np.cos),
    "tan": (X, np.tan),
    "atan": (X, np.arctan),
    "sinh": (X, np.sinh),
    "cosh": (X, np.cosh),
    "floor": (X, np.floor),
    "ceil": (X, np.ceil),
    "trunc": (X, np.trunc),
    "round": (np.float32([0.5, 1.5, 2.5, -0.5, 1.2]), np.rint),
    "abs": (X, np.abs),
    "negative": (X, np.negative),
    "sign": (np.float32([-2.0, 0.0, 3.0]), np.sign),
    "isnan": (np.float32([1.0, np.nan, np.inf]), np.isnan),
    "isinf": (np.float32([1.0, np.nan, -np.inf]), np.isinf),
    "logical_not": (np.array([True, False]), np.logical_not),
    "asin": (SHARES, np.arcsin),
    "acos": (SHARES, np.arccos),
    "atanh": (SHARES[1:-1], np.arctanh),
    "asinh": (np.float32([-1e4, -2, -1e-5, 0, 1e-5, 2, 1e4]), np.arcsinh),
    "acosh": (np.float32([1, 1.0001, 2, 1e4]), np.arccosh),
    "log1p": (POSITIVE, np.log1p),
    "expm1": (X, np.expm1),
    "nn.softplus": (np.float32([-100, -1, 0, 1, 100]), lambda x: np.logaddexp(x, 0)),
    "nn.gelu": (X, lambda x: x * special.ndtr(x)),
    "bitwise_not": (WHOLE, np.invert),
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_element(name: str) -> None:
    array, reference = UNARY[name]
    same(graph.get_op(name)(array), reference(array))


def test_inverse_functions_of_integers_are_float32() -> None:
    for name in ("asin", "acos", "asinh", "acosh", "atanh"):
        array, reference = UNARY[name]
        whole = np.unique(array.astype("int32"))
        call = graph.get_op(name)(whole)
        assert values(call)[0].dtype == np.float32
        same(call, reference(whole.astype("float32")))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("other", [X[::-1], ROW, COLUMN, np.float32(1.5)], ids=str)
def test_functions_of_two_elements_are_broadcast(name: str, other: Array) -> None:
    same(graph.get_op(name)(X, np.asarray(other)), BINARY[name](X, other))
    same(graph.get_op(name)(np.asarray(other), X), BINARY[name](other, X))


def test_powers_and_whole_quotients() -> None:
    same(op.power(POSITIVE, ROW), np.power(POSITIVE, ROW))
    same(op.divide(WHOLE, np.int32(4)), np.trunc(WHOLE / 4).astype("int32"))


def test_remainders_and_bits() -> None:
    other = np.where(WHOLE[::-1] == 0, 3, WHOLE[::-1]).astype("int32")
    same(op.mod(WHOLE, other), np.mod(WHOLE, other))
    same(op.fmod(WHOLE, other), np.fmod(WHOLE, other))
    same(op.fmod(X, ROW), np.fmod(X, ROW))
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        same(graph.get_op(name)(WHOLE, other), getattr(np, name)(WHOLE, other))
    places = np.int32([[0, 1, 2, 3]])
    same(op.left_shift(WHOLE, places), np.left_shift(WHOLE, places))
    same(op.right_shift(WHOLE, places), np.right_shift(WHOLE, places))
    same(op.reinterpret(X, dtype="int32"), X.view("int32"))


def test_activations() -> None:
    negative = np.minimum(X, 0)
    same(op.nn.elu(X, alpha=0.5), np.where(X > 0, X, 0.5 * np.expm1(negative)))
    wanted = 3 * np.where(X > 0, X, 0.5 * np.expm1(negative / 2))
    same(op.nn.elu(X, alpha=0.5, scale=2.0, gamma=3.0), wanted)
    same(op.nn.prelu(X, COLUMN), np.where(X < 0, X * COLUMN, X))
    inner = np.sqrt(2 / np.pi) * (X + 0.044715 * X**3)
    same(op.nn.gelu(X, approximate=True), 0.5 * X * (1 + np.tanh(inner)))


def test_logic_and_choice() -> None:
    a, b = X > 0, ROW > 0
    same(op.logical_and(a, b), a & b)
    same(op.logical_or(a, b), a | b)
    same(op.where(a, ROW, X), np.where(a, ROW, X))


def test_casts_and_bounds() -> None:
    same(op.cast(X, dtype="int32"), X.astype("int32"))
    same(op.clip(X, a_min=-0.5, a_max=0.25), np.clip(X, -0.5, 0.25))
    same(op.clip(X, a_min=None, a_max=0.25), np.minimum(X, np.float32(0.25)))
    same(op.nn.leaky_relu(X, alpha=0.1), np.where(X > 0, X, np.float32(0.1) * X))


def test_products() -> None:
    weight = RNG.standard_normal((4, 5)).astype("float32")
    same(op.nn.dense(X, weight), X @ weight.T)
    square = RNG.standard_normal((5, 4)).astype("float32")
    for a, b in [(X, square), (X[0, 0], square), (X, ROW), (ROW, ROW), (X[:, None], X[0].T)]:
        same(op.matmul(a, b), np.asarray(a @ b))


def _windows(x: Array, size: Sequence[int], stride: Sequence[int]) -> Array:
    found = np.lib.stride_tricks.sliding_window_view(x, size, axis=(2, 3))
    return found[:, :, :: stride[0], :: stride[1]]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions(groups: int) -> None:
    weight = RNG.standard_normal((8, 4 // groups, 3, 2)).astype("float32")
    call = op.nn.conv(IMAGE, weight, strides=(2, 1), padding=(1, 0, 2, 1), groups=groups)
    x = np.pad(IMAGE, ((0, 0), (0, 0), (1, 2), (0, 1)))
    parts = zip(np.split(x, groups, 1), np.split(weight, groups), strict=True)
    found = [np.einsum("nchwrs,ocrs->nohw", _windows(a, (3, 2), (2, 1)), w) for a, w in parts]
    same(call, np.concatenate(found, 1).astype("float32"))


def test_convolutions_of_one_and_three_dimensions_and_dilation() -> None:
    line, taps = RNG.standard_normal((1, 2, 9)), RNG.standard_normal((3, 2, 3))
    wanted = np.stack([[sum(np.convolve(line[0, c], t[c, ::-1], "valid") for c in range(2))
                        for t in taps]])  # fmt: skip
    same(op.nn.conv(line, taps), wanted)
    spread = np.zeros((3, 2, 5))
    spread[:, :, ::2] = taps
    same(op.nn.conv(line, taps, dilation=2), values(op.nn.conv(line, spread))[0])
    cube, corner = RNG.standard_normal((1, 2, 3, 3, 3)), RNG.standard_normal((2, 2, 3, 3, 3))
    wanted = np.einsum("ncxyz,ocxyz->no", cube, corner)[:, :, None, None, None]
    same(op.nn.conv(cube, corner), wanted)


def test_pools() -> None:
    low = np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (0, 1)), constant_values=-np.inf)
    wanted = _windows(low, (3, 2), (2, 1)).max((-1, -2))
    same(op.nn.max_pool(IMAGE, pool_size=(3, 2), strides=(2, 1), padding=(1, 0, 1, 1)), wanted)
    pads = ((0, 0), (0, 0), (1, 1), (0, 1))
    sums = _windows(np.pad(IMAGE, pads), (3, 2), (2, 1)).sum((-1, -2))
    counts = _windows(np.pad(np.ones_like(IMAGE), pads), (3, 2), (2, 1)).sum((-1, -2))
    given = {"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 0, 1, 1)}
    same(op.nn.avg_pool(IMAGE, **given), sums / counts)
    same(op.nn.avg_pool(IMAGE, **given, count_include_pad=True), sums / 6)


def test_normalisations() -> None:
    c = [POSITIVE[0, :, 0], ROW[:3], ROW[2:], POSITIVE[1, :, 1]]
    scale, shift, mean, variance = (v[:, None] for v in c)
    wanted = (X - mean) / np.sqrt(variance + 1e-3) * scale + shift
    same(op.nn.batch_norm(X, *c, epsilon=1e-3), wanted)
    normal = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    same(op.nn.layer_norm(X, ROW, ROW[::-1]), normal * ROW + ROW[::-1])
    for axis in (-1, 1):
        same(op.nn.softmax(X * 40, axis=axis), special.softmax(X * 40, axis))
        same(op.nn.log_softmax(X * 40, axis=axis), special.log_softmax(X * 40, axis))


@pytest.mark.parametrize("axis", [None, 1, -1, (0, 2), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(axis: Any, keepdims: bool) -> None:
    given = {"axis": axis, "keepdims": keepdims}
    for name, reference in {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}.items():
        wanted = np.asarray(reference(X, **given), "float32")  # type: ignore[operator]
        same(graph.get_op(name)(X, **given), wanted)
    same(op.mean(X, **given), np.asarray(X.mean(**given)))


@pytest.mark.parametrize("axis", [0, -1])
def test_where_the_extremes_are(axis: int) -> None:
    ties = np.float32([[1, 3, 3], [1, 0, 3], [0, 3, 1]])
    same(op.argmax(ties, axis=axis), ties.argmax(axis))
    same(op.argmin(ties, axis=axis, keepdims=True), ties.argmin(axis, keepdims=True))
    last = ties.shape[axis] - 1 - np.flip(ties, axis).argmax(axis)
    same(op.argmax(ties, axis=axis, select_last=True), last)


def test_shapes() -> None:
    same(op.reshape(X, newshape=(0, -1)), X.reshape(2, 15))
    same(op.reshape(X, newshape=(5, 2, 3)), X.reshape(5, 2, 3))
    same(op.nn.batch_flatten(IMAGE), IMAGE.reshape(2, -1))
    same(op.transpose(X), X.T)
    same(op.transpose(X, axes=(1, 2, 0)), X.transpose(1, 2, 0))
    same(op.expand_dims(X, axis=(0, -1)), np.expand_dims(X, (0, -1)))
    same(op.squeeze(COLUMN), COLUMN[:, 0])
    same(op.broadcast_to(COLUMN, shape=(2, 3, 4)), np.broadcast_to(COLUMN, (2, 3, 4)))


def test_parts() -> None:
    same(op.concatenate(X, X[:, :1], X[:, 1:], axis=1), np.concatenate([X, X], 1))
    call = op.strided_slice(X, begin=(1, -1), end=(99, -99), strides=(2, -2), axes=(1, 2))
    same(call, X[:, 1::2, ::-2])
    width = ((0, 0), (1, 2), (0, 3))
    same(op.nn.pad(X, pad_width=width, pad_value=7.0), np.pad(X, width, constant_values=7))
    same(op.nn.pad(X, pad_width=((0, 0),) * 3), X)
    index = np.array([[0, -1], [2, 1]], "int64")
    same(op.take(X, index, axis=1), np.take(X, index, 1))


REFUSED = {
    "too few inputs": lambda: op.add(X),
    "unknown attribute": lambda: op.nn.softmax(X, axes=1),
    "missing attribute": lambda: op.cast(X),
    "no attribute": lambda: op.nn.softmax(X, axis=object()),
    "dtypes": lambda: op.add(X, WHOLE),
    "broadcast": lambda: op.add(X, WHOLE.astype("float32")),
    "axis": lambda: op.nn.softmax(X, axis=3),
    "axis twice": lambda: op.sum(X, axis=(0, -3)),
    "channels": lambda: op.nn.conv(IMAGE, np.zeros((2, 3, 1, 1), "float32")),
    "window": lambda: op.nn.max_pool(IMAGE, pool_size=9),
    "padding": lambda: op.nn.max_pool(IMAGE, pool_size=3, padding=(1, 1, 1)),
    "reshape": lambda: op.reshape(X, newshape=(7, -1)),
    "slice": lambda: op.strided_slice(X, begin=(2,), end=(2,)),
    "product": lambda: op.matmul(X, X),
}
NUMBER = np.array(1, "float32")
#: An axis of a tensor of none.
NO_AXIS = {
    **{name: lambda name=name: graph.get_op(name)(NUMBER, axis=0)
       for name in ("sum", "mean", "argmax", "cumsum", "nn.softmax", "nn.log_softmax")},
    "nn.batch_flatten": lambda: op.nn.batch_flatten(NUMBER),
    "qnn.dequantize": lambda: op.qnn.dequantize(
        np.array(1, "int8"), np.ones(2, "float32"), np.zeros(2, "int32"), axis=0
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(GraphError):
        graph.infer_types(graph.IRModule.from_expr(REFUSED[name]()))


@pytest.mark.parametrize("name", NO_AXIS)
def test_an_axis_of_a_number_is_refused(name: str) -> None:
    module = graph.IRModule.from_expr(NO_AXIS[name]())
    with pytest.raises(GraphError, match=rf"{name}\(.*0 dimensions"):
        graph.infer_types(module)
