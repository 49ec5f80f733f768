"""Einsum, resampling by known taps, sparse dense layers, and determinants.

Determinants are by Gaussian elimination with partial pivoting.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes, te
from loopwright.errors import GraphError
from loopwright.graph.ir.expr import Call, Size, const
from loopwright.graph.op.indexing import held
from loopwright.graph.op.shapes import accumulator, axis_of, broadcast, require_same, same
from loopwright.graph.registry import Pattern, get_op, register_op
from loopwright.graph.rounding import as_dtype
from loopwright.ops import compute


def letters_of(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The letters of each operand and of the result; an ellipsis becomes letters of its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise GraphError(f"equation {equation!r} is of {len(parts)} tensors, got {len(ranks)}")
    dots = [n - len(p.replace("...", "")) for p, n in zip(parts, ranks, strict=True) if "..." in p]
    wide = [f"_{n}" for n in range(max(dots, default=0))]
    terms = [_letters(p, n, wide, equation) for p, n in zip(parts, ranks, strict=True)]
    if arrow:
        return terms, _letters(right, None, wide, equation)
    once = [c for c in sorted(set(left)) if c in string.ascii_letters and left.count(c) == 1]
    return terms, [*wide, *once]


def _letters(term: str, rank: int | None, wide: Sequence[str], equation: str) -> list[str]:
    before, dots, after = term.partition("...")
    if any(c not in string.ascii_letters for c in before + after):
        raise GraphError(f"equation {equation!r} holds something else than letters")
    count = len(wide) if rank is None else rank - len(before) - len(after)
    if count < 0 or (count and not dots):
        raise GraphError(f"{term!r} of equation {equation!r} does not fit {rank} dimensions")
    return [*before, *(wide[len(wide) - count :] if dots else ()), *after]


@register_op("einsum", Pattern.OUT_ELEMENTWISE_FUSABLE)
def einsum(data: te.Tensor, *others: te.Tensor, equation: str) -> te.Tensor:
    """The sum of products that Einstein's notation names, such as ``"bij,bjk->bik"``."""
    operands = (data, *others)
    terms, result = letters_of(equation, [len(t.shape) for t in operands])
    extents: dict[str, Size] = {}
    for letters, t in zip(terms, operands, strict=True):
        for c, n in zip(letters, t.shape, strict=True):
            (extents[c],) = broadcast((extents.get(c, n),), (n,))
    for c in result:
        if c not in extents:
            raise GraphError(f"equation {equation!r} has {c!r} in its result alone")
    wide = accumulator(data.dtype)
    loops = {c: te.reduce_axis((0, n), name=f"k{c}") for c, n in extents.items() if c not in result}

    def value(*i: Any) -> Any:
        at: dict[str, Any] = {**dict(zip(result, i, strict=True)), **loops}

        def read(letters: Sequence[str], t: te.Tensor) -> Any:
            places = zip(letters, t.shape, strict=True)
            return t(*(0 if same(n, 1) else at[c] for c, n in places)).astype(wide)

        product = reduce(mul, (read(s, t) for s, t in zip(terms, operands, strict=True)))
        return te.sum(product, axis=list(loops.values())) if loops else product

    return as_dtype(te.compute(tuple(extents[c] for c in result), value, name="einsum"), data.dtype)


@register_op("nn.resample", Pattern.OUT_ELEMENTWISE_FUSABLE)
def resample(data: te.Tensor, indices: te.Tensor, weights: te.Tensor, *, axis: int) -> te.Tensor:
    """Each element of an axis as a sum of some of the data's times weights.

    ``indices`` and ``weights`` are of shape (elements of the result, taps); interpolation is such a
    map, of one or more taps an element.
    """
    at = axis_of(axis, len(data.shape))
    if len(indices.shape) != 2:
        raise GraphError(f"indices have {len(indices.shape)} dimensions; give 2")
    require_same(indices.shape[0], weights.shape[0], "how many elements there are")
    require_same(indices.shape[1], weights.shape[1], "how many taps there are")
    k = te.reduce_axis((0, indices.shape[1]), name="tap")
    extent = data.shape[at]

    def value(*i: Any) -> Any:
        n = te.max(te.min(indices[i[at], k], extent - 1), 0)
        return te.sum(data(*i[:at], n, *i[at + 1 :]) * weights[i[at], k], axis=k)

    shape = (*data.shape[:at], indices.shape[0], *data.shape[at + 1 :])
    return compute(shape, value, name="resample")


@register_op("nn.sparse_dense", Pattern.OUT_ELEMENTWISE_FUSABLE)
def dense_of_few(
    data: te.Tensor, values: te.Tensor, columns: te.Tensor, *, least: int = 0, width: int = 0
) -> te.Tensor:
    """A dense layer of few weights: those of each output, and the columns of data that they are of.

    ``values`` and ``columns`` are of shape (outputs, weights of an output at most); a value of 0
    stands for none, whatever its column holds. The data have ``least`` columns at least, and
    ``width`` where that is not 0. `loopwright.graph.sparse_dense` makes all of it.
    """
    if len(values.shape) != 2 or len(columns.shape) != 2 or not data.shape:
        raise GraphError("the weights are of 2 dimensions, and the data of 1 at least")
    for a, b in zip(values.shape, columns.shape, strict=True):
        require_same(a, b, "the shapes of values and columns")
    if data.dtype != values.dtype:
        raise GraphError(f"the data are {data.dtype}, the weights {values.dtype}")
    if width:
        require_same(data.shape[-1], width, "the columns of the data and of the weights")
    if isinstance(data.shape[-1], int) and data.shape[-1] < least:
        raise GraphError(f"the weights read column {least - 1}, the data have {data.shape[-1]}")
    k = te.reduce_axis((0, values.shape[1]), name="k")
    extent = data.shape[-1]

    def value(*i: Any) -> Any:
        n = te.max(te.min(columns[i[-1], k], extent - 1), 0)
        product = data(*i[:-1], n) * values[i[-1], k]
        return te.sum(
            te.select(te.not_equal(values[i[-1], k], 0), product, te.const(0, data.dtype)), axis=k
        )

    return compute((*data.shape[:-1], values.shape[0]), value, name="sparse_dense")


#: Rows of a matrix at most: each is a stage of the kernel.
_MOST = 32


@register_op("det", Pattern.OPAQUE)
def det(data: te.Tensor) -> te.Tensor:
    """The determinants of the matrices in the last two dimensions."""
    shape = data.static_shape
    if len(shape) < 2 or not dtypes.is_float(data.dtype):
        raise GraphError(f"det takes matrices of floats, got {data!r}")
    require_same(shape[-1], shape[-2], "the rows and columns of a matrix")
    if shape[-1] > _MOST:
        raise GraphError(f"matrices of {shape[-1]} rows are too large; {_MOST} are taken at most")
    left = as_dtype(data, "float32" if data.dtype in dtypes.HALVES else data.dtype)
    factors = []
    while left.shape[-1] > 1:
        best, factor = _pivot(left)
        factors.append(factor)
        left = _rest(left, best)
    rank = len(shape) - 2

    def value(*i: Any) -> Any:
        result = left(*i, *(0,) * (len(left.shape) - rank))
        for f in factors:
            result = result * f(*i)
        return result

    return as_dtype(te.compute(shape[:-2], value, name="det"), data.dtype)


def _pivot(matrix: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """The row of the largest element of the first column, and that, negated if rows swap."""
    k = te.reduce_axis((0, matrix.shape[-1]), name="k")
    best: te.Tensor = te.compute(
        matrix.shape[:-2], lambda *i: te.argmax((k, te.abs(matrix(*i, k, 0))), axis=k), name="pivot"
    )[0]

    def factor(*i: Any) -> Any:
        row = best(*i)
        pivot = matrix(*i, held(row, matrix.shape[-1]), 0)
        return te.if_then_else(te.equal(row, 0), pivot, -pivot)

    return best, compute(matrix.shape[:-2], factor, name="factor")


def _rest(matrix: te.Tensor, best: te.Tensor) -> te.Tensor:
    """The other rows and columns after elimination of the first column."""
    n = matrix.shape[-1]

    def value(*i: Any) -> Any:
        *outer, r, c = i
        row = held(best(*outer), n)
        # The first row takes the place of the pivot's.
        own = te.if_then_else(te.equal(row, r + 1), 0, r + 1)
        pivot = matrix(*outer, row, 0)
        part = matrix(*outer, own, 0) / te.if_then_else(te.equal(pivot, 0), 1, pivot)
        return matrix(*outer, own, c + 1) - part * matrix(*outer, row, c + 1)

    return compute((*matrix.shape[:-2], n - 1, n - 1), value, name="rest")


Array = npt.NDArray[Any]


def sparse_dense(data: Any, weight: Any) -> Call:
    """A dense layer of constant weights that are mostly 0: ``data @ weight.T``.

    Weights that are 0 are neither kept nor multiplied. All rows take as long as the one that has
    the most weights, and what is read is gathered, so that it pays where a few of a hundred weights
    are left, spread evenly over the rows. The name is that of Relay's operator.

    Args:
        data: of shape (..., K), floating point.
        weight: of shape (N, K), in compressed sparse rows: a matrix or array of SciPy, which
            becomes such rows, or a tuple ``(values, columns, starts)`` of arrays: those of row n
            are from ``starts[n]`` up to ``starts[n + 1]``. Of tuples K is the extent of the data.

    Raises:
        GraphError: the weights are no such rows.

    Example:
        >>> x = lw.graph.var("x", (2, 4))
        >>> values = np.array([1, 2, 3], "float32")
        >>> y = lw.graph.sparse_dense(x, (values, np.array([3, 0, 2]), np.array([0, 1, 3])))
        >>> model = lw.graph.compile(lw.graph.IRModule.from_expr(y), "llvm")
        >>> print(model(np.array([[1, 0, 0, 5], [0, 0, 1, 0]], "float32"))[0])
        [[5. 2.]
         [0. 3.]]
    """
    values, columns, starts = _rows(weight)
    counts = np.diff(starts)
    places = np.arange(max(counts.max(initial=0), 1))
    used = places < counts[:, None]
    at = np.where(used, starts[:-1, None] + places, 0)
    # One value more, for what is not used of no values at all.
    padded = np.where(used, np.append(values, values.dtype.type(0))[at], 0).astype(values.dtype)
    numbers = np.where(used, np.append(columns, 0)[at], 0).astype("int32")
    width = int(weight.shape[1]) if hasattr(weight, "tocsr") else 0
    least = int(columns.max(initial=-1)) + 1
    weights = const(padded), const(numbers)
    call: Call = get_op("nn.sparse_dense")(data, *weights, least=least, width=width)
    return call


def _rows(weight: Any) -> tuple[Array, Array, Array]:
    parts = weight.tocsr() if hasattr(weight, "tocsr") else weight
    if hasattr(parts, "indptr"):
        parts = (parts.data, parts.indices, parts.indptr)
    if not isinstance(parts, tuple) or len(parts) != 3:
        raise GraphError(
            f"sparse_dense: the weight is {type(weight).__name__}; give a matrix of SciPy, or "
            "(values, columns, starts)"
        )
    values, columns, starts = map(np.asarray, parts)
    whole = columns.dtype.kind in "iu" and starts.dtype.kind in "iu"
    if not whole or not values.ndim == columns.ndim == starts.ndim == 1:
        raise GraphError("sparse_dense: columns and starts are whole numbers, all of one dimension")
    ends = starts.size >= 2 and starts[0] == 0 and starts[-1] == values.size == columns.size
    if not ends or (np.diff(starts) < 0).any():
        raise GraphError(
            f"sparse_dense: starts go from 0 up to the {values.size} values, with as many columns; "
            f"got starts {starts.tolist()[:8]} and {columns.size} columns"
        )
    if (columns < 0).any():
        raise GraphError(f"sparse_dense: column {int(columns.min())} is negative")
    return values, columns.astype("int64"), starts.astype("int64")
