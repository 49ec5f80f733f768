"""Reducers: `sum`, `prod`, `min`, `max`, `argmin`, `argmax`, and user-defined ones.

A reducer made by `comm_reducer` combines single values or tuples of them, whichever it is called
with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir import expr as ir
from loopwright.ir.reduction import Combiner, Reduce
from loopwright.te.math import all, any, condition, equal, isnan, logical_not

#: One value, or for tuples one for each output.
Values = ir.ExprLike | tuple[ir.ExprLike, ...] | list[ir.ExprLike]


def _listed(x: Values) -> list[ir.ExprLike]:
    return list(x) if isinstance(x, tuple | list) else [x]


def _single(x: Values | Sequence[ir.IterVar]) -> ir.ExprLike:
    return ir.as_expr(x) if isinstance(x, Sequence) else x  # which says what is wrong with a list


def _are_reduced(axis: object) -> TypeGuard[ir.IterVar | Sequence[ir.IterVar]]:
    first = axis[0] if isinstance(axis, list | tuple) and axis else axis
    return isinstance(first, ir.IterVar) and first.kind == "reduce"


class CommReducer:
    """A commutative, associative reducer, made by `comm_reducer`; call it to reduce."""

    def __init__(
        self, fcombine: Callable[..., Values], fidentity: Callable[..., Values], name: str
    ) -> None:
        self._fcombine, self._fidentity, self.name = fcombine, fidentity, name

    def combiner(self, types: Sequence[str], as_tuple: bool) -> Combiner:
        """The reducer traced for the given dtypes, one for each output."""
        marks = [str(k) for k in range(len(types))] if as_tuple else [""]
        lhs = tuple(ir.Var(f"x{m}", t) for m, t in zip(marks, types, strict=True))
        rhs = tuple(ir.Var(f"y{m}", t) for m, t in zip(marks, types, strict=True))
        with ir.tracing(f"reducer {self.name!r}"):
            combined = self._fcombine(lhs, rhs) if as_tuple else self._fcombine(lhs[0], rhs[0])
            identity = self._fidentity(*types)
        result = self._entries(combined, types, as_tuple, "combining")
        starts = self._entries(identity, types, as_tuple, "the identity of")
        for e, t in zip(result, types, strict=True):
            if e.dtype != t:
                raise TensorError(f"{self.name}: combining two {t} gives {e.dtype}")
        starts = tuple(ir.cast(e, t) for e, t in zip(starts, types, strict=True))
        return Combiner(self.name, lhs, rhs, result, starts)

    def _entries(
        self, x: Values, types: Sequence[str], as_tuple: bool, what: str
    ) -> tuple[ir.Expr, ...]:
        entries = _listed(x)
        if isinstance(x, tuple | list) != as_tuple or len(entries) != len(types):
            got = f"{len(entries)} values" if isinstance(x, tuple | list) else "one value"
            want = f"a tuple of {len(types)}" if as_tuple else types[0]
            raise TensorError(f"{self.name}: {what} {want} gives {got}")
        return tuple(ir.as_expr(e) for e in entries)

    def __call__(
        self,
        expr: Values,
        axis: ir.IterVar | Sequence[ir.IterVar],
        where: ir.Expr | None = None,
        init: Values | None = None,
    ) -> Any:
        """Reduce an expression, or a tuple of them, over one reduce_axis or several.

        Points for which ``where`` is false are left out; ``init``, for tuples a tuple, stands in
        place of the reducer's identity. The reduction of a tuple is a tuple with an entry for each
        output, which the function of a compute must return as a whole. TensorError where an axis is
        no reduce_axis, or occurs twice, or the reducer does not fit the number of values.
        """
        axes = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
        for a in axes:
            if not isinstance(a, ir.IterVar) or a.kind != "reduce":
                raise TensorError(f"te.{self.name}: axis must be made by te.reduce_axis, got {a!r}")
        if not axes or len(set(map(id, axes))) != len(axes):
            raise TensorError(f"te.{self.name}: expected distinct reduction axes, got {axes}")
        as_tuple = isinstance(expr, list | tuple)
        source = tuple(ir.as_expr(e) for e in _listed(expr))
        types = [e.dtype for e in source]
        if not source or "bool" in types:
            what = "of bool: cast the operand to an integer type" if source else "of no expression"
            raise TensorError(f"te.{self.name} {what}")
        cond = None if where is None else condition(where, f"te.{self.name} where")
        start = None
        if init is not None:
            values = _listed(init)
            if len(values) != len(types) or (isinstance(init, tuple | list) and not as_tuple):
                raise TensorError(
                    f"te.{self.name}: init must be a tuple of {len(types)} values, got {init!r}"
                )
            start = tuple(ir.cast(e, t) for e, t in zip(values, types, strict=True))
        out = Reduce(self.combiner(types, as_tuple), source, axes, cond, start, types[0])
        return out.outputs() if as_tuple else out


def comm_reducer(
    fcombine: Callable[..., Values], fidentity: Callable[..., Values], name: str = "reduce"
) -> CommReducer:
    """Define a reducer, of single values or of tuples.

    Args:
        fcombine: combines two values (for tuples: gets and returns tuples); it must be commutative
            and associative, else the result depends on the schedule: of tuples even where two
            elements are equal, unless it decides by all entries, as `argmax` does.
        fidentity: gives the neutral element of a dtype, e.g. ``lambda t: te.const(0, t)``; for
            tuples it gets a dtype for each output and returns a tuple.

    Example:
        >>> A, k = te.placeholder((4,), name="A"), te.reduce_axis((0, 4), name="k")
        >>> product = te.comm_reducer(lambda x, y: x * y, lambda t: te.const(1, t), "product")
        >>> print(product(A[k], axis=k))
        product(A[k], over k)
        >>> largest = te.comm_reducer(
        ...     lambda x, y: [te.select(x[1] >= y[1], *pair) for pair in zip(x, y)],
        ...     lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        ... )
        >>> at, top = te.compute((1,), lambda i: largest((k, A[k]), axis=k), name="largest")
        >>> f, found = lw.build(te.create_schedule(at.op), [A, at, top]), np.empty(1, "int32")
        >>> f(np.array([1, 5, 7, 2], "float32"), found, np.empty(1, "float32"))
        >>> print(found)
        [2]
    """
    return CommReducer(fcombine, fidentity, name)


def min_value(dtype: str) -> ir.Expr:
    """Smallest value of a dtype (minus infinity for floats)."""
    return ir.const(dtypes.limits(dtype)[0], dtype)


def max_value(dtype: str) -> ir.Expr:
    """Largest value of a dtype (infinity for floats)."""
    return ir.const(dtypes.limits(dtype)[1], dtype)


sum = CommReducer(lambda x, y: x + y, lambda t: ir.const(0, t), "sum")
sum.__doc__ = """The sum over reduction axes.

Example:
    >>> A = te.placeholder((2, 3), name="A")
    >>> k = te.reduce_axis((0, 3), name="k")
    >>> B = te.compute((2,), lambda i: te.sum(A[i, k], axis=k), name="B")
    >>> print(lw.lower(te.create_schedule(B.op), [A, B]))
    def main(A: float32[2, 3], B: out float32[2]):
      for i in range(2):
        B[i] = 0.0
        for k in range(3):
          B[i] = B[i] + A[i, k]
"""
prod = CommReducer(lambda x, y: x * y, lambda t: ir.const(1, t), "prod")
prod.__doc__ = """The product over reduction axes.

Example:
    >>> A = te.placeholder((4,), name="A")
    >>> k = te.reduce_axis((0, 4), name="k")
    >>> print(te.compute((1,), lambda i: te.prod(A[k], axis=k), name="B").op.body)
    prod(A[k], over k)
"""


class _MinMax(CommReducer):
    """`min`/`max`: with an axis a reduction, with two expressions the elementwise operation."""

    def __call__(
        self,
        expr: Values,
        axis: ir.IterVar | Sequence[ir.IterVar] | ir.ExprLike,
        where: ir.Expr | None = None,
        init: Values | None = None,
    ) -> Any:
        """Reduce over ``axis``, or the smaller (larger) of two expressions."""
        if _are_reduced(axis):
            return super().__call__(expr, axis, where, init)
        return ir.binary(self.name, _single(expr), _single(axis))


min = _MinMax(lambda x, y: ir.binary("min", x, y), max_value, "min")
min.__doc__ = """The smallest over reduction axes, or the smaller of two expressions.

Example:
    >>> A = te.placeholder((4,), name="A")
    >>> print(te.min(A[0], 0.0))
    min(A[0], 0.0)
    >>> k = te.reduce_axis((0, 4), name="k")
    >>> B = te.compute((1,), lambda i: te.min(A[k], axis=k), name="B")
    >>> print(B.op.body)
    min(A[k], over k)
"""
max = _MinMax(lambda x, y: ir.binary("max", x, y), min_value, "max")
max.__doc__ = """The largest over reduction axes, or the larger of two expressions.

Example:
    >>> A = te.placeholder((4,), name="A")
    >>> relu = te.compute((4,), lambda i: te.max(A[i], 0.0), name="relu")
    >>> print(lw.lower(te.create_schedule(relu.op), [A, relu]))
    def main(A: float32[4], relu: out float32[4]):
      for i in range(4):
        relu[i] = max(A[i], 0.0)
"""


class _ArgReducer(CommReducer):
    """`argmax`/`argmin` of ``(index, value)``: a total order, so that no schedule changes a result.

    Of equal values the lowest index wins, and NaN before numbers, as in NumPy (not to be relied on
    under ``-fastmath``). Where ``where`` leaves nothing, the index is the largest of its dtype and
    the value the identity of `max` (`min`).
    """

    def __init__(self, name: str, compare: str, worst: Callable[[str], ir.Expr]) -> None:
        super().__init__(self._first, lambda t0, t1: (max_value(t0), worst(t1)), name)
        self._compare = compare

    def __call__(
        self,
        expr: Values,
        axis: ir.IterVar | Sequence[ir.IterVar],
        where: ir.Expr | None = None,
        init: Values | None = None,
    ) -> Any:
        pair = expr if isinstance(expr, list | tuple) and len(expr) == 2 else None
        if pair is None or not dtypes.is_int(ir.as_expr(pair[0]).dtype):
            raise TensorError(f"te.{self.name}: expected (integer index, value), got {expr!r}")
        return super().__call__(expr, axis, where, init)

    def _first(
        self, x: tuple[ir.Expr, ir.Expr], y: tuple[ir.Expr, ir.Expr]
    ) -> tuple[ir.Expr, ir.Expr]:
        better, same = ir.binary(self._compare, x[1], y[1]), equal(x[1], y[1])
        if dtypes.is_float(x[1].dtype):
            p, q = isnan(x[1]), isnan(y[1])
            better, same = any(better, all(p, logical_not(q))), any(same, all(p, q))
        keep = any(better, all(same, x[0] <= y[0]))
        return ir.Select(keep, x[0], y[0], x[0].dtype), ir.Select(keep, x[1], y[1], x[1].dtype)


argmax = _ArgReducer("argmax", ">", min_value)
argmin = _ArgReducer("argmin", "<", max_value)
argmax.__doc__ = """The place of the largest, and the largest itself, over reduction axes.

Of equal ones the first counts; NaN counts as the largest.

Example:
    >>> A = te.placeholder((2, 3), name="A")
    >>> k = te.reduce_axis((0, 3), name="k")
    >>> at, value = te.compute((2,), lambda i: te.argmax((k, A[i, k]), axis=k), name="best")
    >>> f = lw.build(te.create_schedule(at.op), [A, at, value])
    >>> where, what = np.empty(2, "int32"), np.empty(2, "float32")
    >>> f(np.array([[1, 5, 1], [7, 0, 7]], "float32"), where, what)
    >>> print(where, what)
    [1 0] [5. 7.]
"""
argmin.__doc__ = """The place of the smallest, and the smallest itself, over reduction axes.

Of equal ones the first counts; NaN counts as the smallest. See `argmax`.
"""
