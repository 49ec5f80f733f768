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
    names = [*UNARY, *BINARY]
    for x in links:
        if x not in names:
            raise TensorError(
                f"elementwise: unknown link {x!r}{did_you_mean(x, names)}; "
                f"known: {', '.join(names)}"
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
    """
    X = te.placeholder((M, N), dtype, name="X")
    inputs, value, wide = [X], X, tiles.wide_dtype(dtype)
    for at, link in enumerate(_links(chain, dtype)):
        if link in BINARY:
            shape = (N,) if BINARY[link][0] == "row" else (M, N)
            inputs.append(te.placeholder(shape, dtype, name=f"B{at}"))
        value = _link(link, value, inputs[-1], wide, f"{link}{at}")
    return [*inputs, te.compute((M, N), lambda i, j: value[i, j].astype(dtype), name="Y")]


def _link(link: str, x: te.Tensor, other: te.Tensor, wide: str, name: str) -> te.Tensor:
    """One step of a chain; a link of one operand does not read ``other``."""

    def element(i: Any, j: Any) -> Any:
        if link in UNARY:
            return UNARY[link][0](x[i, j].astype(wide))
        y = other[j] if other.ndim == 1 else other[i, j]
        return BINARY[link][1](x[i, j].astype(wide), y.astype(wide))

    return compute(x.shape, element, name=name)


@definition(
    "transpose",
    "Y (N, M) = X (M, N) transposed",
    lambda M, N, dtype: lambda x: np.ascontiguousarray(x.T),
)
def transpose(M: int, N: int, dtype: str = "float32") -> list[te.Tensor]:
    """Y (N, M) = X (M, N) transposed.

    Example:
        >>> s, args = lw.ops.transpose(2, 3)
        >>> x, y = np.arange(6, dtype="float32").reshape(2, 3), np.empty((3, 2), "float32")
        >>> lw.build(s, args)(x, y)
        >>> print(y.tolist())
        [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    """
    X = te.placeholder((M, N), dtype, name="X")
    return [X, te.compute((N, M), lambda i, j: X[j, i], name="Y")]
