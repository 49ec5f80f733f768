"""Operators over the rows of a matrix: reductions, softmax, layer normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from loopwright import dtypes, te
from loopwright.errors import TensorError
from loopwright.ir.expr import Expr
from loopwright.ops import tiles
from loopwright.ops.operator import Array, LoopOrIndex, Reference, compute, definition

REDUCTIONS = {"sum": te.sum, "prod": te.prod, "max": te.max, "min": te.min}


def reduce_compute(X: te.Tensor, kind: str = "sum", axis: int = 1, name: str = "Y") -> te.Tensor:
    """The sum, product, largest or smallest element of each row (axis 1) or column (axis 0).

    X is (M, N); the result is in its dtype, but for int32 sums and products of bytes. float16 and
    bfloat16 are accumulated as float32.

    Raises:
        TensorError: X is no matrix, the kind is none of "sum", "prod", "max" and "min", or the axis
            is neither 0 nor 1.
    """
    if X.ndim != 2:
        raise TensorError(f"reduce: the input has 2 dimensions, got {X.ndim}")
    if kind not in REDUCTIONS:
        raise TensorError(f"reduce: kind is one of {', '.join(REDUCTIONS)}, got {kind!r}")
    if axis not in (0, 1) or isinstance(axis, bool):
        raise TensorError(f"reduce: axis is 0 or 1, got {axis!r}")
    wide = tiles.wide_dtype(X.dtype) if kind in ("sum", "prod") else X.dtype
    return reduced(X, [axis], REDUCTIONS[kind], name, dtype=wide, as_workload=True)


def reduced(
    X: te.Tensor,
    axes: Sequence[int],
    reduce: Callable[..., Expr],
    name: str,
    *,
    keepdims: bool = False,
    dtype: str = "",
    as_workload: bool = False,
) -> te.Tensor:
    """X reduced over sorted axes in ``dtype``, its own by default; without axes X itself."""
    loop = "k" if as_workload else "k{}"
    loops = {a: te.reduce_axis((0, X.shape[a]), name=loop.format(a)) for a in axes}
    kept = [a for a in range(X.ndim) if keepdims or a not in loops]

    def element(*i: LoopOrIndex) -> Expr:
        at: dict[int, LoopOrIndex] = {**dict(zip(kept, i, strict=True)), **loops}
        x: Expr = X(*(at[a] for a in range(X.ndim))).astype(dtype or X.dtype)
        return reduce(x, axis=list(loops.values())) if loops else x

    shape = tuple(1 if a in loops else X.shape[a] for a in kept)
    tag, names = ("comm_reduce", ["i"]) if as_workload else ("", None)
    return compute(shape, element, name=name, tag=tag, varargs_names=names)


def _reduce_reference(M: int, N: int, kind: str, axis: int, dtype: str) -> Reference:
    def reference(x: Array) -> Array:
        if kind in ("max", "min"):
            extreme: Array = getattr(x, kind)(axis)
            return extreme
        wide = tiles.widen(x, dtype)
        return tiles.narrow(getattr(wide, kind)(axis, dtype=wide.dtype), dtype)

    return reference


@definition(
    "reduce",
    "sum, prod, max or min over the columns (axis 1) or rows (axis 0) of X (M, N)",
    _reduce_reference,
)
def reduce(
    M: int, N: int, kind: str = "sum", axis: int = 1, dtype: str = "float32"
) -> list[te.Tensor]:
    """Reduce (M, N) over its columns (axis 1) or rows (axis 0); see `reduce_compute`.

    Example:
        >>> s, args = lw.ops.reduce(2, 4, "max")
        >>> x, y = np.arange(8, dtype="float32").reshape(2, 4), np.empty(2, "float32")
        >>> lw.build(s, args)(x, y)
        >>> print(y)
        [3. 7.]
    """
    X = te.placeholder((M, N), dtype, name="X")
    Z = reduce_compute(X, kind, axis)
    final = tiles.out_dtype(dtype) if kind in ("sum", "prod") else dtype
    if Z.dtype == final:
        return [X, Z]
    return [X, te.compute(Z.shape, lambda i: Z[i].astype(final), name="cast")]


def softmax_compute(X: te.Tensor, name: str = "Y") -> tuple[te.Tensor, list[te.Tensor]]:
    """``exp(x - max) / sum(exp(x - max))`` over each row.

    X is (M, N) of floats, else it is a TensorError. Returns the result (M, N), and the stages that
    each of its rows needs, in order.
    """
    if not dtypes.is_float(X.dtype):
        raise TensorError(f"softmax: {X.dtype} has no exponentials; cast the input to a float")
    m, n = X.shape
    wide = tiles.wide_dtype(X.dtype)
    k, q = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="q")
    largest = te.compute((m,), lambda i: te.max(X[i, k].astype(wide), axis=k), name="largest")
    E = te.compute((m, n), lambda i, j: te.exp(X[i, j].astype(wide) - largest[i]), name="E")
    total = te.compute((m,), lambda i: te.sum(E[i, q], axis=q), name="total")
    share = te.compute((m,), lambda i: 1.0 / total[i], name="share")
    Y = te.compute((m, n), lambda i, j: (E[i, j] * share[i]).astype(X.dtype), name=name)
    return Y, [largest, E, total, share]


def _softmax_reference(M: int, N: int, dtype: str) -> Reference:
    def reference(x: Array) -> Array:
        x = tiles.widen(x, dtype)
        e = np.exp(x - x.max(-1, keepdims=True))
        e /= e.sum(-1, keepdims=True)
        return tiles.narrow(e, dtype)

    return reference


@definition("softmax", "softmax over the rows of X (M, N)", _softmax_reference)
def softmax(M: int, N: int, dtype: str = "float32") -> list[te.Tensor]:
    """Softmax over each row of (M, N); see `softmax_compute`.

    Example:
        >>> s, args = lw.ops.softmax(2, 4)
        >>> x, y = np.zeros((2, 4), "float32"), np.empty((2, 4), "float32")
        >>> lw.build(s, args)(x, y)
        >>> print(y[0])
        [0.25 0.25 0.25 0.25]
    """
    X = te.placeholder((M, N), dtype, name="X")
    return [X, softmax_compute(X)[0]]


def layer_norm_compute(
    X: te.Tensor, gamma: te.Tensor, beta: te.Tensor, eps: float = 1e-5, name: str = "Y"
) -> tuple[te.Tensor, list[te.Tensor]]:
    """``(x - mean) / sqrt(variance + eps) * gamma + beta`` over each row.

    The variance is the mean square of the differences from the mean (two passes), not the
    difference of two large numbers.

    X is (M, N) of floats, ``gamma`` and ``beta`` (N,) of its dtype. Returns the result (M, N), and
    the stages that each of its rows needs, in order.

    Raises:
        TensorError: X does not hold floats, or gamma or beta do not fit it.
    """
    if not dtypes.is_float(X.dtype):
        raise TensorError(f"layer_norm: {X.dtype} has no square roots; cast the input to a float")
    m, n = X.shape
    for t in (gamma, beta):
        if t.shape != (n,) or t.dtype != X.dtype:
            raise TensorError(
                f"layer_norm: {t.name} is {t.dtype}{list(t.shape)}, expected {X.dtype}[{n}]"
            )
    wide = tiles.wide_dtype(X.dtype)
    k, q = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="q")

    def x(i: LoopOrIndex, j: LoopOrIndex) -> Expr:
        element: Expr = X[i, j].astype(wide)
        return element

    total = te.compute((m,), lambda i: te.sum(x(i, k), axis=k), name="total")
    mean = te.compute((m,), lambda i: total[i] / n, name="mean")
    D = te.compute((m, n), lambda i, j: x(i, j) - mean[i], name="D")
    squares = te.compute((m,), lambda i: te.sum(D[i, q] * D[i, q], axis=q), name="squares")
    scale = te.compute((m,), lambda i: 1.0 / te.sqrt(squares[i] / n + eps), name="scale")
    Y = te.compute(
        (m, n),
        lambda i, j: (D[i, j] * scale[i] * gamma[j].astype(wide) + beta[j].astype(wide)).astype(
            X.dtype
        ),
        name=name,
    )
    return Y, [total, mean, D, squares, scale]


def _layer_norm_reference(M: int, N: int, eps: float, dtype: str) -> Reference:
    def reference(x: Array, g: Array, b: Array) -> Array:
        x, g, b = (tiles.widen(v, dtype) for v in (x, g, b))
        d = x - x.mean(-1, keepdims=True)
        v = (d * d).mean(-1, keepdims=True)
        return tiles.narrow(d / np.sqrt(v + x.dtype.type(eps)) * g + b, dtype)

    return reference


@definition(
    "layer_norm",
    "layer normalisation of the rows of X (M, N) with gamma and beta (N,)",
    _layer_norm_reference,
)
def layer_norm(M: int, N: int, eps: float = 1e-5, dtype: str = "float32") -> list[te.Tensor]:
    """Layer normalisation of each row of (M, N); see `layer_norm_compute`."""
    X = te.placeholder((M, N), dtype, name="X")
    gamma = te.placeholder((N,), dtype, name="gamma")
    beta = te.placeholder((N,), dtype, name="beta")
    return [X, gamma, beta, layer_norm_compute(X, gamma, beta, eps)[0]]
