"""Sums of products by letters, resampling, transposed convolutions, pools that tell places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from loopwright import graph
from loopwright.errors import GraphError
from loopwright.graph import op
from tests.unit.graph.values import same

RNG = np.random.default_rng(0)
A = RNG.standard_normal((2, 3, 4)).astype("float32")
B = RNG.standard_normal((2, 4, 5)).astype("float32")
SQUARE = RNG.standard_normal((3, 3)).astype("float32")
IMAGE = RNG.standard_normal((2, 4, 5, 6)).astype("float32")
GIVEN: list[dict[str, object]] = [
    {},
    {"strides": (2, 3), "padding": (1, 0, 0, 1)},
    {"strides": 2, "output_padding": 1, "dilation": (1, 2)},
]


@pytest.mark.parametrize(
    "equation", ["bij,bjk->bik", "bij, bjk", "aij,bjk->ik", "...ij,...jk->...ik", "bij,cjk->bcik"]
)
def test_products_of_two_tensors_by_letters(equation: str) -> None:
    same(op.einsum(A, B, equation=equation), np.einsum(equation, A, B))


@pytest.mark.parametrize("equation", ["ii->i", "ij->ji", "ij->", "ij->j", "...j->..."])
def test_one_tensor_by_letters(equation: str) -> None:
    same(op.einsum(SQUARE, equation=equation), np.asarray(np.einsum(equation, SQUARE)))


@pytest.mark.parametrize("equation", ["bij->bij", "bi,bjk->k", "b1j,bjk->k", "bij,bjk->z"])
def test_equations_that_do_not_fit_are_refused(equation: str) -> None:
    with pytest.raises(GraphError):
        graph.infer_types(graph.IRModule.from_expr(op.einsum(A, B, equation=equation)))


def test_resampling_is_a_map_of_one_axis() -> None:
    places = RNG.integers(0, 3, (6, 2))
    weights = RNG.standard_normal((6, 2)).astype("float32")
    wanted = sum(A[:, places[:, k]] * weights[None, :, k, None] for k in range(2))
    same(op.nn.resample(A, places, weights, axis=1), np.asarray(wanted))


def few_weights(rows: int = 6, columns: int = 9) -> np.ndarray[Any, Any]:
    """Weights of which one row has none, one has all, and the others have a third."""
    dense = RNG.standard_normal((rows, columns)).astype("float32")
    dense *= RNG.random(dense.shape) < 0.3
    dense[1], dense[2] = 0, 1
    return dense


def test_dense_layers_of_few_weights() -> None:
    dense = few_weights()
    data = RNG.standard_normal((2, 3, 9)).astype("float32")
    rows = sparse.csr_array(dense)
    for weight in (rows, rows.tocoo(), (rows.data, rows.indices, rows.indptr)):
        same(graph.sparse_dense(data, weight), data @ dense.T)
    nothing = (np.zeros(0, "float32"), np.zeros(0, "int64"), np.zeros(7, "int64"))
    same(graph.sparse_dense(data, nothing), np.zeros((2, 3, 6), "float32"))


def test_what_has_no_weight_is_not_read() -> None:
    data = np.array([[np.inf, 2.0, np.nan]], "float32")
    weight = (np.array([3.0], "float32"), np.array([1]), np.array([0, 1, 1]))
    same(graph.sparse_dense(data, weight), np.array([[6.0, 0.0]], "float32"))


@pytest.mark.parametrize(
    ("weight", "text"),
    [
        (np.ones((2, 9), "float32"), "the weight is ndarray; give a matrix of SciPy"),
        ((np.ones(2), np.ones(2), np.arange(3)), "columns and starts are whole numbers"),
        ((np.ones(2), np.arange(2), np.array([0, 1])), "starts go from 0 up to the 2 values"),
        ((np.ones(2), np.arange(2), np.array([0, 2, 1, 2])), "starts go from 0 up to the 2 values"),
        ((np.ones(1), np.array([-1]), np.array([0, 1])), "column -1 is negative"),
        ((np.ones(1, "f"), np.array([9]), np.array([0, 1])), "read column 9, the data have 9"),
        (sparse.csr_array(few_weights(4, 8)), "columns of the data and of the weights differ"),
        (sparse.csr_array(np.eye(9)), "the data are float32, the weights float64"),
    ],
)
def test_weights_that_are_no_rows_are_refused(weight: Any, text: str) -> None:
    with pytest.raises(GraphError, match=text):
        graph.infer_types(
            graph.IRModule.from_expr(graph.sparse_dense(graph.var("x", (2, 9)), weight))
        )


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("given", GIVEN)
def test_transposed_convolutions_add_windows_up(groups: int, given: dict[str, object]) -> None:
    weight = RNG.standard_normal((4, 3, 3, 2)).astype("float32")
    call = op.nn.conv_transpose(IMAGE, weight, groups=groups, **given)
    told = graph.infer_types(graph.IRModule.from_expr(call))[call]
    assert isinstance(told, graph.TensorType)
    stride = (2, 3) if given.get("strides") == (2, 3) else (given.get("strides", 1),) * 2
    spread = (1, 2) if "dilation" in given else (1, 1)
    pads = (1, 0, 0, 1) if "padding" in given else (0, 0, 0, 0)
    whole = np.zeros((2, 3 * groups, 40, 40))
    for c, y, x in np.ndindex(4, 5, 6):
        first = c // (4 // groups) * 3
        for r, q in np.ndindex(3, 2):
            at = (y * int(str(stride[0])) + r * spread[0], x * int(str(stride[1])) + q * spread[1])
            part = IMAGE[:, c, y, x, None] * weight[c, :, r, q]
            whole[:, first : first + 3, at[0], at[1]] += part
    height, width = (int(str(n)) for n in told.shape[2:])
    wanted = whole[:, :, pads[0] : pads[0] + height, pads[1] : pads[1] + width]
    same(call, wanted.astype("float32"), rtol=1e-4)


@pytest.mark.parametrize("column_major", [False, True])
def test_pools_tell_where_the_largest_element_is(column_major: bool) -> None:
    call = op.nn.max_pool_places(
        IMAGE, pool_size=(2, 3), strides=2, padding=(1, 0, 0, 0), column_major=column_major
    )
    padded = np.pad(IMAGE, ((0, 0), (0, 0), (1, 0), (0, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), axis=(2, 3))[:, :, ::2, ::2]
    largest = windows.max((-1, -2))
    places = np.empty(largest.shape, "int64")
    for i in np.ndindex(*largest.shape):
        y, x = np.argwhere(IMAGE[i[:2]] == largest[i])[0]
        flat = x * 5 + y if column_major else y * 6 + x
        places[i] = (i[0] * 4 + i[1]) * 30 + flat
    same(call, largest, places)


def test_sums_of_windows() -> None:
    padded = np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    wanted = windows[..., ::2, :].sum((-1, -2))
    call = op.nn.sum_pool(IMAGE, pool_size=(2, 3), padding=(1, 0), dilation=(2, 1))
    same(call, wanted, rtol=1e-4)
