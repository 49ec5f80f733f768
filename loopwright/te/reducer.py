"""Reducers: `sum`, `prod`, `min`, `max` and user-defined ones by `comm_reducer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir.expr import Expr, IterVar, Var, as_expr, binary, cast, const
from loopwright.ir.reduction import Combiner, Reduce
from loopwright.te.intrin import condition


class CommReducer:
    """A commutative, associative reducer, made by `comm_reducer`; call it to reduce."""

    def __init__(
        self, fcombine: Callable[[Expr, Expr], Any], fidentity: Callable[[str], Any], name: str
    ) -> None:
        self._fcombine, self._fidentity, self.name = fcombine, fidentity, name

    def combiner(self, dtype: str) -> Combiner:
        """The reducer for one dtype, traced."""
        lhs, rhs = Var("x", dtype), Var("y", dtype)
        result = self._fcombine(lhs, rhs)
        if isinstance(result, tuple | list):
            raise TensorError(f"{self.name}: reducers of tuples are not supported yet")
        out = as_expr(result)
        if out.dtype != dtype:
            raise TensorError(f"{self.name}: combining two {dtype} gives {out.dtype}")
        return Combiner(self.name, lhs, rhs, out, cast(self._fidentity(dtype), dtype))

    def __call__(
        self,
        expr: Any,
        axis: IterVar | Sequence[IterVar],
        where: Any = None,
        init: Any = None,
    ) -> Expr:
        """Reduce ``expr`` over ``axis``.

        Args:
            expr: the expression to combine.
            axis: one reduce_axis or several.
            where: condition; points for which it is false are left out.
            init: starting value instead of the reducer's identity.

        Raises:
            TensorError: an axis is not a reduce_axis, or occurs twice.
        """
        axes = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
        for a in axes:
            if not isinstance(a, IterVar) or a.kind != "reduce":
                raise TensorError(f"te.{self.name}: axis must be made by te.reduce_axis, got {a!r}")
        if not axes or len(set(map(id, axes))) != len(axes):
            raise TensorError(f"te.{self.name}: expected distinct reduction axes, got {axes}")
        source = as_expr(expr)
        if source.dtype == "bool":
            raise TensorError(f"te.{self.name} of bool: cast the operand to an integer type")
        where = None if where is None else condition(where, f"te.{self.name} where")
        init = None if init is None else cast(init, source.dtype)
        return Reduce(self.combiner(source.dtype), source, axes, where, init, source.dtype)


def comm_reducer(
    fcombine: Callable[[Expr, Expr], Any],
    fidentity: Callable[[str], Any],
    name: str = "reduce",
) -> CommReducer:
    """Define a reducer.

    Args:
        fcombine: combines two values; it must be commutative and associative.
        fidentity: gives the neutral element of a dtype, e.g. ``lambda t: te.const(0, t)``.
        name: printed name.
    """
    return CommReducer(fcombine, fidentity, name)


def min_value(dtype: str) -> Expr:
    """Smallest value of a dtype (minus infinity for floats)."""
    return const(dtypes.limits(dtype)[0], dtype)


def max_value(dtype: str) -> Expr:
    """Largest value of a dtype (infinity for floats)."""
    return const(dtypes.limits(dtype)[1], dtype)


sum = CommReducer(lambda x, y: x + y, lambda t: const(0, t), "sum")
prod = CommReducer(lambda x, y: x * y, lambda t: const(1, t), "prod")


class _MinMax(CommReducer):
    """`min`/`max`: with an axis a reduction, with two expressions the elementwise operation."""

    def __call__(self, expr: Any, axis: Any, where: Any = None, init: Any = None) -> Expr:
        """Reduce over ``axis``, or the smaller (larger) of two expressions."""
        many = axis[0] if isinstance(axis, list | tuple) and axis else axis
        if isinstance(many, IterVar) and many.kind == "reduce":
            return super().__call__(expr, axis, where, init)
        return binary(self.name, expr, axis)


min = _MinMax(lambda x, y: binary("min", x, y), max_value, "min")
max = _MinMax(lambda x, y: binary("max", x, y), min_value, "max")
