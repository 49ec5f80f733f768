"""Types of values in a graph: tensors, tuples and functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from loopwright import dtypes, te
from loopwright.errors import GraphError

#: An extent: a number, or an expression of size variables (`loopwright.te.size_var`).
Size: TypeAlias = "int | te.Expr"


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor.

    Attributes:
        shape: its extents; a scalar has none.
        dtype: of its elements.

    Raises:
        GraphError: an extent is neither a number from 0 nor an expression.
        TensorError: the dtype is unknown.

    Example:
        >>> print(lw.graph.TensorType((1, 3, 224, 224)))
        float32[1, 3, 224, 224]
    """

    shape: tuple[Size, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(_size(n) for n in self.shape))
        object.__setattr__(self, "dtype", dtypes.check(self.dtype))

    @property
    def static(self) -> bool:
        """Whether every extent is a number."""
        return all(isinstance(n, int) for n in self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class TupleType:
    """The type of a tuple of values.

    Attributes:
        fields: the types of its parts.

    Example:
        >>> scalar = lw.graph.TensorType((), "int32")
        >>> print(lw.graph.TupleType((scalar, scalar)))
        (int32[], int32[])
    """

    fields: tuple[Type, ...]

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.fields))
        return f"({inner},)" if len(self.fields) == 1 else f"({inner})"


@dataclass(frozen=True)
class FuncType:
    """The type of a function.

    Attributes:
        params: the types of its parameters.
        result: the type of what it returns.

    Example:
        >>> scalar = lw.graph.TensorType(())
        >>> print(lw.graph.FuncType((scalar, scalar), scalar))
        fn(float32[], float32[]) -> float32[]
    """

    params: tuple[Type, ...]
    result: Type

    def __str__(self) -> str:
        return f"fn({', '.join(map(str, self.params))}) -> {self.result}"


#: Types of values in a graph.
Type: TypeAlias = "TensorType | TupleType | FuncType"


def tensor_type(value: te.Tensor | np.ndarray) -> TensorType:
    return TensorType(tuple(value.shape), str(value.dtype))


def _size(n: object) -> Size:
    if isinstance(n, te.Expr):
        return n
    if isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 0:
        return int(n)
    raise GraphError(
        f"an extent of a tensor is {n!r}; give a whole number from 0, or a loopwright.te.size_var"
    )
