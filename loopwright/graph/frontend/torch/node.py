"""A call of an ATen operator during conversion, and the table of converters. A converter is a
function with the parameters of the operator itself, as in ATen's schema: tensors are expressions,
everything else is a Python value. Nothing here needs PyTorch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeAlias, TypeVar

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError
from loopwright.graph.frontend.conversion import ExprTypes, ImportedNode, listed
from loopwright.graph.frontend.torch.fallback import leaves_of
from loopwright.graph.ir.expr import Constant, Expr, TensorType, const
from loopwright.graph.rounding import WIDE

#: Dtypes of whole numbers from narrow to wide, as PyTorch promotes them.
_WHOLE = ("uint8", "int8", "int16", "int32", "int64")


# Type promotion: the dtype in which PyTorch computes with operands of several dtypes. Bools, whole
# numbers and floats are categories, in this order. Among tensors with dimensions, tensors without,
# and numbers, the first that have the highest category of all decide; a number has the default
# dtype of its category. Two 16-bit floats of different formats give float32.
# (``torch.result_type``.)


def category(dtype: str) -> int:
    """0 for bool, 1 for integers, 2 for floats."""
    if dtype == "bool":
        return 0
    return 2 if dtypes.is_float(dtype) else 1


def result_dtype(
    dimensioned: Sequence[str], scalars: Sequence[str] = (), numbers: Sequence[object] = ()
) -> str:
    """The dtype in which tensors with dimensions, tensors without, and numbers are computed."""
    kinds = [
        "bool" if isinstance(n, bool) else "int64" if isinstance(n, int) else "float32"
        for n in numbers
    ]
    groups = [list(dimensioned), list(scalars), kinds]
    highest = max(category(d) for group in groups for d in group)
    # A group whose category is lower than that of a later one does not decide.
    deciding = ([d for d in group if category(d) == highest] for group in groups)
    return reduce(_wider, next(filter(None, deciding)))


def _wider(a: str, b: str) -> str:
    if a == b:
        return a
    if category(a) == 2:
        if {a, b} == set(dtypes.HALVES):
            return "float32"
        order = (*dtypes.HALVES, "float32", "float64")
        return max(a, b, key=order.index)
    if {a, b} == {"uint8", "int8"}:
        return "int16"
    return max(a, b, key=_WHOLE.index)


#: From a node and the operator's arguments to its outputs: one, or several in order, where None is
#: an output that is not made.
Converter: TypeAlias = "Callable[..., Expr | Sequence[Expr | None]]"
_C = TypeVar("_C", bound=Converter)
#: Converters by operator.
_TABLE: dict[str, Converter] = {}
#: Argument of an operator that may be a tensor or a number.
Operand: TypeAlias = "Expr | float | int | bool"


@dataclass(frozen=True)
class Node(ImportedNode):
    """A call of an operator.

    Attributes:
        operator: the operator with its overload, such as ``"add.Tensor"``, without ``.default``.
        name: as the graph calls it; for messages.
        results: the types of its outputs as PyTorch has them; None where one is no tensor that a
            program holds.
        used: which of its outputs something reads.
        types: of expressions.
    """

    operator: str
    name: str
    results: tuple[TensorType | None, ...]
    used: tuple[bool, ...]
    types: ExprTypes

    @property
    def result(self) -> TensorType:
        t = self.results[0] if self.results else None
        if t is None:
            raise GraphError("what it gives is no tensor that a program holds")
        return t

    def number(self, value: Any, dtype: str) -> Constant:
        """A constant; a Python integer beyond the dtype wraps."""
        return const(np.asarray(value), dtype)

    def extents(self) -> tuple[int, ...]:
        return tuple(n for n in self.result.shape if isinstance(n, int))

    def cast(self, e: Operand, dtype: str) -> Expr:
        """A tensor, or a number, as another dtype; itself where it has it."""
        if not isinstance(e, Expr):
            return self.number(e, dtype)
        if self.dtype(e) == dtype:
            return e
        if dtype == "bool":
            return self.call("not_equal", e, 0)
        return self.call("cast", e, dtype=dtype)

    def as_result(self, e: Operand) -> Expr:
        return self.cast(e, self.result.dtype)

    def promoted(self, *operands: Operand) -> str:
        tensors = [e for e in operands if isinstance(e, Expr)]
        return result_dtype(
            [self.dtype(e) for e in tensors if self.rank(e)],
            [self.dtype(e) for e in tensors if not self.rank(e)],
            [e for e in operands if not isinstance(e, Expr)],
        )

    def reshaped(self, e: Expr, shape: Sequence[int]) -> Expr:
        """A tensor in another shape; itself where it has it."""
        if self.shape(e) == tuple(shape):
            return e
        return self.call("reshape", e, newshape=tuple(shape))

    def axis(self, dim: int, rank: int) -> int:
        """A dimension counted from 0; negative ones count from the end."""
        if not -max(rank, 1) <= dim < max(rank, 1):
            raise GraphError(f"a tensor of {rank} dimensions has no dimension {dim}")
        return dim % rank if rank else 0

    def __str__(self) -> str:
        return f"aten::{self.operator} {self.name!r}"


def converter(*operators: str) -> Callable[[_C], _C]:
    """Decorate a function that converts some operators.

    Args:
        operators: their names with the overload, without ``.default``: ``"relu"``,
            ``"add.Tensor"``; one that is not ATen's has its namespace in front:
            ``"mylib::twice"``.

    Returns:
        A decorator of a function ``f(node, *args, **kwargs)``, with the operator's own parameters.

    Example:
        >>> @lw.graph.frontend.torch.converter("mylib::twice")
        ... def twice(node, x):
        ...     return node.call("add", x, x)
        ...
        >>> print("mylib::twice" in lw.graph.frontend.torch.known_operators())
        True
    """

    def register(function: _C) -> _C:
        _TABLE.update(dict.fromkeys(operators, function))
        return function

    return register


def converter_of(operator: str) -> Converter | None:
    return _TABLE.get(operator)


def known_operators() -> list[str]:
    """The operators that have a converter, sorted.

    Example:
        >>> print("convolution" in lw.graph.frontend.torch.known_operators())
        True
    """
    return sorted(_TABLE)


def _outputs(
    node: Node, convert: Converter, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[Expr | None]:
    """The outputs of a converter; 16-bit ones are computed in float32 and rounded once."""
    outputs = listed(convert(node, *args, **kwargs))
    outputs += [None] * (len(node.results) - len(outputs))
    inputs = [e for e in leaves_of([args, kwargs]) if isinstance(e, Expr)]
    if node.types.round_once([e for e in outputs if e is not None], inputs):
        return outputs
    results = [
        replace(t, dtype=WIDE) if t is not None and t.dtype in dtypes.HALVES else t
        for t in node.results
    ]
    wide = replace(node, results=tuple(results))
    exact = _outputs(wide, convert, _as_wide(node, args), _as_wide(node, kwargs))
    return [
        e if e is None or t is None else node.cast(e, t.dtype)
        for e, t in zip(exact, node.results, strict=True)
    ]


def _as_wide(node: Node, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_wide(node, v) for v in value]
    if isinstance(value, dict):
        return {k: _as_wide(node, v) for k, v in value.items()}
    narrow = isinstance(value, Expr) and node.dtype(value) in dtypes.HALVES
    return node.cast(value, WIDE) if narrow else value


def converted(node: Node, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Expr | None]:
    """The outputs of a node, checked against the types that PyTorch declares. Raises GraphError
    where there is no converter, it cannot take this call, an output that is read is missing, or one
    has another type.
    """
    convert = converter_of(node.operator)
    if convert is None:
        raise GraphError("there is no converter of this operator")
    try:
        inspect.signature(convert).bind(node, *args, **kwargs)
    except TypeError as exc:
        raise GraphError(f"its converter does not take its arguments: {exc}") from exc
    outputs = _outputs(node, convert, args, kwargs)
    for n, (e, wanted, used) in enumerate(zip(outputs, node.results, node.used, strict=True)):
        if not used:
            continue
        if e is None:
            raise GraphError(f"its output {n} is not supported")
        if node.types[e] != wanted:
            raise GraphError(f"its output {n} is {wanted}, its converter makes {node.types[e]}")
    return outputs
