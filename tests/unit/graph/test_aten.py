# ruff: noqa: E501  (the table has a line for each case)
"""Converters of ATen's operators beside NumPy, without PyTorch: they are functions of expressions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import graph
from loopwright.errors import GraphError
from loopwright.graph.frontend.conversion import ExprTypes
from loopwright.graph.frontend.torch.node import Node, converted, result_dtype
from tests.unit.graph.values import Array, run

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype("float32")
Y = RNG.standard_normal((2, 3, 4)).astype("float32")
SQUARE = RNG.standard_normal((4, 4)).astype("float32")
IMAGE = RNG.standard_normal((1, 2, 6, 6)).astype("float32")
INTS = np.arange(-6, 6).reshape(3, 4)
ROWS = np.array([2, 0, 1])


def aten(operator: str, *args: Any, wanted: list[Array], **kwargs: Any) -> list[Array]:
    """What a call of an operator gives; arrays among the arguments are inputs."""
    params: list[graph.Var] = []
    given: list[Array] = []

    def taken(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            params.append(graph.var(f"x{len(params)}", value.shape, value.dtype.name))
            given.append(value)
            return params[-1]
        return [taken(v) for v in value] if isinstance(value, list) else value

    types = tuple(graph.TensorType(w.shape, w.dtype.name) for w in wanted)
    node = Node(operator, "call", types, (True,) * len(types), ExprTypes())
    made = converted(node, [taken(a) for a in args], {k: taken(v) for k, v in kwargs.items()})
    body = graph.Tuple(tuple(e for e in made if e is not None))
    return run(graph.IRModule({"main": graph.Function(tuple(params), body)}), *given)


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x).astype(x.dtype)


def _windows(x: Array, f: Callable[..., Array]) -> Array:
    return f(x.reshape(1, 2, 3, 2, 3, 2), axis=(3, 5))


def _put(x: Array, updates: Array) -> Array:
    """A copy with other elements in the first rows, at `ROWS`."""
    made = x.copy()
    np.put_along_axis(made[:3], ROWS[:, None], updates.astype(x.dtype), 1)
    return made


_CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = [
    ("add.Tensor", (X, Y), {"alpha": 2}, X + 2 * Y),
    ("sub.Tensor", (X, 1.5), {}, X - np.float32(1.5)),
    ("rsub.Scalar", (INTS, 3), {}, 3 - INTS),
    ("mul.Tensor", (X > 0, Y > 0), {}, (X > 0) & (Y > 0)),
    ("add.Tensor", (INTS, np.float32(0.5).reshape(())), {}, (INTS + 0.5).astype("float32")),
    ("div.Tensor", (INTS, 4), {}, (INTS / 4).astype("float32")),
    ("div.Tensor_mode", (INTS, 4), {"rounding_mode": "floor"}, INTS // 4),
    ("div.Tensor_mode", (INTS, 4), {"rounding_mode": "trunc"}, np.trunc(INTS / 4).astype("int64")),
    ("div.Tensor_mode", (X, Y), {"rounding_mode": "floor"}, X // Y),
    ("remainder.Scalar", (INTS, 4), {}, INTS % 4),
    ("fmod.Scalar", (INTS, 4), {}, np.fmod(INTS, 4)),
    ("pow.Tensor_Scalar", (X, 3), {}, X**3),
    ("pow.Tensor_Scalar", (abs(X), -0.5), {}, abs(X) ** -0.5),
    ("pow.Scalar", (2, X), {}, np.float32(2) ** X),
    ("rsqrt", (abs(X),), {}, 1 / np.sqrt(abs(X))),
    ("exp", (INTS,), {}, np.exp(INTS).astype("float32")),
    ("log2", (abs(X),), {}, np.log2(abs(X))),
    ("round", (3 * X,), {}, np.round(3 * X)),
    ("ceil", (INTS,), {}, INTS),
    ("isnan", (INTS,), {}, np.zeros(INTS.shape, "bool")),
    ("eq.Scalar", (INTS, 2.5), {}, INTS == 2.5),
    ("lt.Tensor", (INTS, INTS.astype("float32") + 1), {}, INTS < INTS + 1),
    ("bitwise_not", (INTS,), {}, ~INTS),
    ("bitwise_xor.Tensor", (X > 0, Y > 0), {}, (X > 0) ^ (Y > 0)),
    ("logical_not", (INTS,), {}, INTS == 0),
    ("clamp", (INTS, None, 2), {}, np.minimum(INTS, 2)),
    ("hardtanh", (X, 0, 6), {}, np.clip(X, 0, 6)),
    ("gelu", (X,), {}, X * 0.5 * (1 + _erf(X / np.sqrt(np.float32(2))))),
    ("elu", (X, 0.5, 2.0, 3.0), {}, np.where(X > 0, 2 * X, np.expm1(3 * X)).astype("float32")),
    ("where.self", (X > 0, X, Y), {}, np.where(X > 0, X, Y)),
    ("sum.dim_IntList", (INTS, [0], True), {}, INTS.sum(0, keepdims=True)),
    ("sum", (X > 0,), {}, np.asarray((X > 0).sum())),
    ("mean.dim", (X, [-1, 0]), {}, X.mean((0, 2))),
    ("amax", (X,), {}, X.max()),
    ("any.dim", (X > 1, 1), {}, (X > 1).any(1)),
    ("argmax", (X,), {}, np.asarray(X.argmax())),
    ("max.dim", (X, 1), {}, [X.max(1), X.argmax(1)]),
    ("var.correction", (X, [1]), {"correction": 1}, X.var(1, ddof=1)),
    ("linalg_vector_norm", (X, 1, [2]), {}, abs(X).sum(2)),
    ("cumsum", (INTS, 1), {}, INTS.cumsum(1)),
    ("sort", (X, 1), {}, [np.sort(X, 1), np.argsort(X, 1)]),
    ("linear", (X, SQUARE, SQUARE[0]), {}, X @ SQUARE.T + SQUARE[0]),
    ("addmm", (SQUARE[0], X[0], SQUARE), {"beta": 2, "alpha": 3}, 2 * SQUARE[0] + 3 * X[0] @ SQUARE),
    ("_softmax", (X, 1, False), {}, np.exp(X) / np.exp(X).sum(1, keepdims=True)),
    ("avg_pool2d", (IMAGE, [2, 2]), {}, _windows(IMAGE, np.mean)),
    ("_adaptive_avg_pool2d", (IMAGE, [3, 3]), {}, _windows(IMAGE, np.mean)),
    ("constant_pad_nd", (X, [1, 0, -1, 2], 7), {}, np.pad(X[:, 1:], ((0, 0), (0, 2), (1, 0)), constant_values=7)),
    ("reflection_pad2d", (IMAGE, [1, 2, 0, 3]), {}, np.pad(IMAGE, ((0, 0), (0, 0), (0, 3), (1, 2)), mode="reflect")),
    ("replication_pad1d", (X, [2, 1]), {}, np.pad(X, ((0, 0), (0, 0), (2, 1)), mode="edge")),
    ("var.dim", (X, [0, 2], False), {}, X.var((0, 2))),
    ("view", (X, [6, 4]), {}, X.reshape(6, 4)),
    ("permute", (X, [2, 0, -2]), {}, X.transpose(2, 0, 1)),
    ("expand", (X[:, :1], [2, 5, 4]), {}, np.broadcast_to(X[:, :1], (2, 5, 4))),
    ("slice.Tensor", (X, 1, -2, 9223372036854775807), {}, X[:, -2:]),
    ("select.int", (X, -1, -1), {}, X[..., -1]),
    ("split_with_sizes", (X, [1, 2], 1), {}, [X[:, :1], X[:, 1:]]),
    ("cat", ([X, Y], 2), {}, np.concatenate([X, Y], 2)),
    ("repeat", (X[0], [2, 1, 3]), {}, np.tile(X[0], (2, 1, 3))),
    ("flip", (X, [0, 2]), {}, X[::-1, :, ::-1]),
    ("triu", (SQUARE, 1), {}, np.triu(SQUARE, 1)),
    ("slice_scatter", (X, Y[:, :1], 1, 1, 2), {}, np.concatenate([X[:, :1], Y[:, :1], X[:, 2:]], 1)),
    ("full_like", (X, 3), {}, np.full_like(X, 3)),
    ("select_scatter", (X, Y[:, 0], 1, 1), {}, np.concatenate([X[:, :1], Y[:, :1], X[:, 2:]], 1)),
    ("index_select", (X, 1, ROWS), {}, X[:, ROWS]),
    ("index.Tensor", (SQUARE, [ROWS - 1, ROWS]), {}, SQUARE[ROWS - 1, ROWS]),
    ("index.Tensor", (X, [None, ROWS, ROWS]), {}, X[:, ROWS, ROWS]),
    ("gather", (SQUARE, 1, ROWS[:, None]), {}, np.take_along_axis(SQUARE[:3], ROWS[:, None], 1)),
    ("scatter.src", (SQUARE, 1, ROWS[:, None], -SQUARE), {}, _put(SQUARE, -SQUARE[:3, :1])),
    ("scatter.value", (SQUARE, 1, ROWS[:, None], 2.5), {}, _put(SQUARE, np.full((3, 1), 2.5))),
    ("scatter_add", (SQUARE, 1, ROWS[:, None], SQUARE), {}, _put(SQUARE, SQUARE[:3, :1] + np.take_along_axis(SQUARE[:3], ROWS[:, None], 1))),
    ("embedding", (SQUARE, ROWS), {}, SQUARE[ROWS]),
    ("_to_copy", (X,), {}, X.astype("int32")),
]  # fmt: skip


@pytest.mark.parametrize("case", _CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(_CASES)])
def test_an_operator_computes_what_numpy_does(case: Any) -> None:
    operator, args, kwargs, wanted = case
    several = wanted if isinstance(wanted, list) else [np.asarray(wanted)]
    for a, b in zip(aten(operator, *args, wanted=several, **kwargs), several, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_attention_leaves_rows_that_are_masked_at_zero() -> None:
    mask = np.array([[True, False, True], [False] * 3, [True] * 3])
    scores = np.where(mask, X @ Y.transpose(0, 2, 1) / 2, -np.inf)
    weights = np.exp(scores) / np.maximum(np.exp(scores).sum(-1, keepdims=True), 1e-30)
    wanted = (weights @ Y).astype("float32")
    (found,) = aten("scaled_dot_product_attention", X, Y, Y, mask, wanted=[wanted])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert not found[:, 1].any()


def test_linear_maps_of_images_keep_their_corners() -> None:
    wanted = np.zeros((1, 2, 11, 11), "float32")
    (found,) = aten("upsample_bilinear2d.vec", IMAGE, [11, 11], True, None, wanted=[wanted])
    np.testing.assert_allclose(found[..., ::2, ::2], IMAGE, rtol=1e-5, atol=1e-6)
    between = (found[..., :-2:2, :] + found[..., 2::2, :]) / 2
    np.testing.assert_allclose(found[..., 1::2, :], between, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "args", "message"),
    [
        ("unheard", (X,), "there is no converter of this operator"),
        ("relu", (X, X), "its converter does not take its arguments: too many"),
        ("native_dropout", (X, 0.5, True), r"is random; call model.eval\(\)"),
        ("index.Tensor", (X, [X[:, 0, 0] > 0]), "a mask leaves depends on data"),
        ("_adaptive_avg_pool2d", (IMAGE, [4, 4]), "windows of several sizes"),
        ("permute", (X, [0, 1, 3]), "a tensor of 3 dimensions has no dimension 3"),
        (
            "exp",
            (X[0],),
            r"its output 0 is float32\[2, 3, 4\], its converter makes float32\[3, 4\]",
        ),
    ],
)
def test_what_a_converter_cannot_take_is_told(operator: str, args: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        aten(operator, *args, wanted=[X])


@pytest.mark.parametrize(
    ("tensors", "scalars", "numbers", "wanted"),
    [
        (["int64"], [], [1.5], "float32"),
        (["float16"], [], [1.5], "float16"),
        (["float16"], ["float64"], [], "float16"),
        (["int32"], ["float64"], [], "float64"),
        (["uint8", "int8"], [], [], "int16"),
        (["float16", "bfloat16"], [], [], "float32"),
        (["bool"], [], [2], "int64"),
        (["bool"], ["int32"], [True], "int32"),
        ([], ["float32"], [2.5], "float32"),
    ],
)
def test_dtypes_are_promoted_as_pytorch_has_it(
    tensors: list[str], scalars: list[str], numbers: list[Any], wanted: str
) -> None:
    assert result_dtype(tensors, scalars, numbers) == wanted
