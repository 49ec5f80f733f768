"""Dense layers with mostly zero weights, in compressed sparse rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import GraphError
from loopwright.graph.ir.expr import Call, const
from loopwright.graph.registry import get_op

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

    Returns:
        A call of ``nn.sparse_dense``, of shape (..., N).

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
    made: Call = get_op("nn.sparse_dense")(data, *weights, least=least, width=width)
    return made


def _rows(weight: Any) -> tuple[Array, Array, Array]:
    """The values, their columns, and the starts of the rows."""
    given = weight.tocsr() if hasattr(weight, "tocsr") else weight
    if hasattr(given, "indptr"):
        given = (given.data, given.indices, given.indptr)
    if not isinstance(given, tuple) or len(given) != 3:
        raise GraphError(
            f"sparse_dense: the weight is {type(weight).__name__}; give a matrix of SciPy, or "
            "(values, columns, starts)"
        )
    values, columns, starts = map(np.asarray, given)
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
