"""Determinants, by Gaussian elimination with partial pivoting."""

from __future__ import annotations

from typing import Any

from loopwright import dtypes, te
from loopwright.errors import GraphError
from loopwright.graph.op.indexing import held
from loopwright.graph.op.shapes import require_same, static_shape
from loopwright.graph.registry import Pattern, register_op
from loopwright.graph.rounding import as_dtype

#: Rows of a matrix at most: each is a stage of the kernel.
_MOST = 32


@register_op("det", Pattern.OPAQUE)
def det(data: te.Tensor) -> te.Tensor:
    """The determinants of the matrices in the last two dimensions."""
    shape = static_shape(data, "det")
    if len(shape) < 2 or not dtypes.is_float(data.dtype):
        raise GraphError(f"det takes matrices of floats, got {data!r}")
    require_same(shape[-1], shape[-2], "the rows and columns of a matrix")
    if shape[-1] > _MOST:
        raise GraphError(f"matrices of {shape[-1]} rows are too large; {_MOST} are taken at most")
    left = as_dtype(data, "float32" if data.dtype in dtypes.HALVES else data.dtype)
    factors = []
    while left.shape[-1] > 1:
        best = _largest(left)
        factors.append(_factor(left, best))
        left = _rest(left, best)
    rank = len(shape) - 2

    def value(*i: Any) -> Any:
        found = left(*i, *(0,) * (len(left.shape) - rank))
        for f in factors:
            found = found * f(*i)
        return found

    return as_dtype(te.compute(shape[:-2], value, name="det"), data.dtype)


def _largest(matrix: te.Tensor) -> te.Tensor:
    """The row of the largest element of the first column."""
    k = te.reduce_axis((0, matrix.shape[-1]), name="k")
    found: te.Tensor = te.compute(
        matrix.shape[:-2], lambda *i: te.argmax((k, te.abs(matrix(*i, k, 0))), axis=k), name="pivot"
    )[0]
    return found


def _factor(matrix: te.Tensor, best: te.Tensor) -> te.Tensor:
    """The pivot, negated where its row is swapped with the first one."""

    def value(*i: Any) -> Any:
        row = best(*i)
        pivot = matrix(*i, held(row, matrix.shape[-1]), 0)
        return te.if_then_else(te.equal(row, 0), pivot, -pivot)

    tensor: te.Tensor = te.compute(matrix.shape[:-2], value, name="factor")
    return tensor


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

    tensor: te.Tensor = te.compute((*matrix.shape[:-2], n - 1, n - 1), value, name="rest")
    return tensor
