"""Elementwise and broadcast chains, and transposition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright import dtypes, te
from loopwright.errors import TensorError, did_you_mean
from loopwright.ir.expr import Expr
from loopwright.ops import tiles
from loopwright.ops.operator import Array, Reference, compute, definition

#: Links of a chain that need nothing else: expression, and NumPy's function.
UNARY: dict[str, tuple[Callable[[Expr], Expr], Callable[[Array], Array]]] = {
    "relu": (lambda x: te.max(x, 0), lambda x: np.maximum(x, x.dtype.type(0))),
    "neg": (lambda x: -x, np.negative),
    "abs": (te.abs, np.abs),
    "exp": (te.exp, np.exp),
    "sqrt": (te.sqrt, np.sqrt),
    "tanh": (te.tanh, np.tanh),
    "sigmoid": (te.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
}
#: Links that take one more input: its shape as a function of (M, N), and how it is combined.
BINARY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "scale": ("row", lambda x, y: x * y),
    "shift": ("row", lambda x, y: x + y),
    "add": ("full", lambda x, y: x + y),
    "mul": ("full", lambda x, y: x * y),
}
_FLOAT_ONLY = ("exp", "sqrt", "tanh", "sigmoid")


def _links(chain: str | Sequence[str], dtype: str) -> list[str]:
    """The names in a chain: text with commas, or (from the command line) a sequence of names."""
    words = chain.split(",") if isinstance(chain, str) else chain
    links = [x.strip() for x in words if x.strip()]
    known = [*UNARY, *BINARY]
    for x in links:
        if x not in known:
            raise TensorError(
                f"elementwise: unknown link {x!r}{did_you_mean(x, known)}; "
                f"known: {', '.join(known)}"
            )
        if x in _FLOAT_ONLY and not dtypes.is_float(dtype):
            raise TensorError(f"elementwise: {x} is for floats, the dtype is {dtype}")
    if not links:
        raise TensorError("elementwise: the chain is empty; name links such as 'scale,shift,relu'")
    return links


def _elementwise_reference(M: int, N: int, chain: str, dtype: str) -> Reference:
    links = _links(chain, dtype)

    def reference(x: Array, *others: Array) -> Array:
        x, more = tiles.widen(x, dtype), iter(others)
        for link in links:
            if link in UNARY:
                x = UNARY[link][1](x)
            else:
                x = BINARY[link][1](x, tiles.widen(next(more), dtype))
        return x.astype(dtype, copy=False)

    return reference


@definition(
    "elementwise",
    "a chain of steps on X (M, N): scale, shift, add, mul, relu, exp, tanh, ...",
    _elementwise_reference,
)
def elementwise(
    M: int, N: int, chain: str = "scale,shift,add,relu", dtype: str = "float32"
) -> list[te.Tensor]:
    """A chain of elementwise steps on (M, N).

    ``chain`` names them, separated by commas: scale and shift take a row (N,) that is broadcast,
    add and mul a full (M, N) operand, relu, neg, abs, exp, sqrt, tanh and sigmoid nothing.

    Example:
        >>> s, args = lw.ops.elementwise(2, 4, "relu")
        >>> f = lw.build(s, args, "llvm")
        >>> y = np.empty((2, 4), "float32")
        >>> f(np.full((2, 4), -1, "float32"), y)
        >>> print(y)
        [[0. 0. 0. 0.]
         [0. 0. 0. 0.]]
    """
    X = te.placeholder((M, N), dtype, name="X")
    inputs, value, wide = [X], X, tiles.wide_dtype(dtype)
    for at, link in enumerate(_links(chain, dtype)):
        value = _link(link, at, value, inputs, wide)
    return [*inputs, te.compute((M, N), lambda i, j: value[i, j].astype(dtype), name="Y")]


def _link(link: str, at: int, x: te.Tensor, inputs: list[te.Tensor], wide: str) -> te.Tensor:
    """One step of a chain; a further operand is added to ``inputs``."""
    name = f"{link}{at}"
    if link in UNARY:
        f = UNARY[link][0]
        return compute(x.shape, lambda i, j: f(x[i, j].astype(wide)), name=name)
    kind, combine = BINARY[link]
    shape = x.shape[1:] if kind == "row" else x.shape
    other = te.placeholder(shape, inputs[0].dtype, name=f"B{at}")
    inputs.append(other)
    return compute(
        x.shape,
        lambda i, j: combine(
            x[i, j].astype(wide), (other[j] if kind == "row" else other[i, j]).astype(wide)
        ),
        name=name,
    )


# ---------------------------------------------------------------- transpose


def _transpose_reference(M: int, N: int, dtype: str) -> Reference:
    return lambda x: np.ascontiguousarray(x.T)


@definition("transpose", "Y (N, M) = X (M, N) transposed", _transpose_reference)
def transpose(M: int, N: int, dtype: str = "float32") -> list[te.Tensor]:
    """Y (N, M) = X (M, N) transposed.

    Example:
        >>> s, args = lw.ops.transpose(2, 3)
        >>> f = lw.build(s, args, "llvm")
        >>> y = np.empty((3, 2), "float32")
        >>> f(np.arange(6, dtype="float32").reshape(2, 3), y)
        >>> print(y)
        [[0. 3.]
         [1. 4.]
         [2. 5.]]
    """
    X = te.placeholder((M, N), dtype, name="X")
    return [X, te.compute((N, M), lambda i, j: X[j, i], name="Y")]
