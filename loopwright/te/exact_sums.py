"""Whether a computation on small integers is exact, so that any right schedule gives equal bits.

A value has a largest size and a power of two of which it is a multiple: a float holds it exactly
when their ratio fits its significand. Then sums are exact in any order, fused or not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from loopwright import dtypes
from loopwright.ir import expr as ir
from loopwright.ir.reduction import Combiner, Reduce, outputs_of
from loopwright.ir.visitor import map_nodes
from loopwright.te.dag import ArgId, Dag, arg_id, read_arg_id
from loopwright.te.op_node import OpNode

#: Sizes of integers that are tried, the largest first: small enough for long sums, large enough for
#: a term in the wrong place to show.
_SIZES = (4, 3, 2, 1)
#: Bits of the significand of each float, the one that is not stored included.
SIGNIFICANT_BITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}


@dataclass(frozen=True)
class Exactness:
    #: On integers up to this size everything is exact, but for conversions of results to a shorter
    #: float, which all schedules round alike.
    largest: int
    #: For each operation and output a power of two of which it is a multiple; None where it was
    #: rounded.
    steps: Mapping[tuple[int, int], float | None]


class _Value(NamedTuple):
    bound: float
    step: float
    rounded: bool = False


class _Inexact(Exception):
    """The value depends on the order of its computation."""


def exactness(dag: Dag) -> Exactness | None:
    """Find the largest small integers on which a computation is exact; None: there are none."""
    if any(op.num_outputs > 1 for op in dag.ops):
        return None  # among equal values, as small integers give, the order of a reduction may tell
    for largest in _SIZES:
        values: dict[tuple[int, int], _Value] = {}
        try:
            for i, op in enumerate(dag.ops):
                values |= {(i, k): v for k, v in enumerate(_outputs(op, values, largest))}
        except _Inexact:
            continue
        return Exactness(largest, {k: None if v.rounded else v.step for k, v in values.items()})
    return None


def _outputs(op: OpNode, values: Mapping[tuple[int, int], _Value], largest: int) -> list[_Value]:
    if op.body is None:
        return [_Value(float(largest) if dtypes.is_float(op.dtype) else _most(op.dtype), 1.0)]
    axes = {a.var: _Value(float(a.count - 1), 1.0) for a in (*op.axes, *op.reduce_axes)}
    evaluation = _Evaluation(values, axes)
    if op.reduction is not None:
        return [evaluation.reduced(op.reduction)]
    return [evaluation.value(e) for e in outputs_of(op.body)]


def _most(dtype: str) -> float:
    """The largest size of any value of an integer type."""
    return float(max(abs(x) for x in dtypes.limits(dtype)))


class _Evaluation:
    def __init__(
        self, values: Mapping[tuple[int, int], _Value], axes: Mapping[ir.Var, _Value]
    ) -> None:
        self._values, self._axes = values, axes

    def reduced(self, r: Reduce) -> _Value:
        (source,) = (self.value(e) for e in r.source)
        (lhs,), (rhs,), (result,) = r.combiner.lhs, r.combiner.rhs, r.combiner.result
        if not isinstance(result, ir.Binary) or {result.a, result.b} != {lhs, rhs}:
            raise _Inexact
        # The limits of types never survive it.
        (first,) = r.start
        is_limit = isinstance(first, ir.Const) and abs(first.value) >= 2.0**31 - 1
        start = _Value(0.0, 1.0) if is_limit else self.value(first)
        if result.op in ("max", "min"):
            return _either(source, start)
        if result.op != "+":
            raise _Inexact
        terms = math.prod(a.count for a in r.axes)
        total = _Value(terms * source.bound + start.bound, min(source.step, start.step))
        return _fitting(total, result.dtype, source.rounded)

    def value(self, e: ir.Expr) -> _Value:
        """Bounds of an expression; `_Inexact` where its last bits depend on the order."""
        match e:
            case ir.Const(value=v):
                if v == 0 or not math.isfinite(v):  # what becomes infinite or NaN does so always
                    return _Value(0.0, 1.0)
                numerator, denominator = float(v).as_integer_ratio()
                return _Value(abs(float(v)), (numerator & -numerator) / denominator)
            case ir.Var():
                return self._axes[e]
            case ir.Read(source=op, value_index=k):
                return self._values[op, k]
            case ir.Cast(value=v, dtype=d):
                return _converted(self.value(v), v.dtype, d)
            case ir.Select(cond=c, a=a, b=b) | ir.IfThenElse(cond=c, a=a, b=b):
                self.value(c)
                return _either(self.value(a), self.value(b))
            case ir.Unary(a=a):
                inner = self.value(a)
                return inner if e.op == "-" else _integer(e.dtype)
            case ir.Binary(op=op, a=a, b=b):
                return _binary(op, self.value(a), self.value(b), b, e.dtype)
            case ir.Call(fn="abs", args=(a,)):
                return self.value(a)
            case ir.Call(fn="fma", args=(a, b, c)):
                product = _binary("*", self.value(a), self.value(b), b, e.dtype)
                return _binary("+", product, self.value(c), c, e.dtype)
            case ir.Call(fn=fn, args=(a,)) if fn in ("floor", "ceil", "round", "trunc"):
                inner = self.value(a)
                return _fitting(_Value(inner.bound + 1, 1.0), e.dtype, inner.rounded)
            case ir.Call(fn="pow"):
                return _integer(e.dtype)
        raise _Inexact


def _integer(dtype: str) -> _Value:
    if dtypes.is_float(dtype):
        raise _Inexact
    return _Value(_most(dtype), 1.0)


def _either(a: _Value, b: _Value) -> _Value:
    return _Value(max(a.bound, b.bound), min(a.step, b.step), a.rounded or b.rounded)


def _fitting(v: _Value, dtype: str, rounded: bool = False) -> _Value:
    """Result of arithmetic in some type, which must hold it exactly."""
    if not dtypes.is_float(dtype):
        return _Value(min(v.bound, _most(dtype)), max(v.step, 1.0))  # what wraps wraps alike
    if rounded or v.bound / v.step > 2.0 ** SIGNIFICANT_BITS[dtype]:
        raise _Inexact
    return v


def _converted(v: _Value, before: str, after: str) -> _Value:
    if not dtypes.is_float(after):
        return _Value(min(v.bound, _most(after)), 1.0)
    if v.bound / v.step <= 2.0 ** SIGNIFICANT_BITS[after]:
        return v
    if not dtypes.is_float(before) and v.bound > 2.0**53:
        raise _Inexact
    return _Value(v.bound, v.step, True)


def _binary(op: str, a: _Value, b: _Value, divisor: ir.Expr, dtype: str) -> _Value:
    rounded = a.rounded or b.rounded
    if op in ir.COMPARE or op in ("and", "or"):
        return _Value(1.0, 1.0)
    if op in ("max", "min"):
        return _either(a, b)
    if op in ("+", "-"):
        return _fitting(_Value(a.bound + b.bound, min(a.step, b.step)), dtype, rounded)
    if op == "*":
        return _fitting(_Value(a.bound * b.bound, a.step * b.step), dtype, rounded)
    if op == "/" and isinstance(divisor, ir.Const) and math.frexp(divisor.value)[0] in (0.5, -0.5):
        factor = abs(divisor.value)
        return _fitting(_Value(a.bound / factor, a.step / factor), dtype, rounded)
    return _integer(dtype)


#: Type in which references add up short floats. One float32 after the other, a sum of two million
#: squares is wrong in its third digit, where a schedule that adds up parts is right in its sixth.
#: The reference must be the better of the two.
_WIDE = "float64"


def with_wide_sums(dag: Dag, arg_ids: Sequence[ArgId]) -> tuple[Dag, tuple[ArgId, ...]]:
    """The program, and its arguments, with each sum of shorter floats in float64, rounded once.

    All else keeps its type, so that a value that depends on a rounded one, such as its conversion
    to an integer, stays as it is.
    """
    ops: list[OpNode] = []
    moved: list[int] = []

    def renumbered(r: ir.Read) -> ir.Read:
        return ir.Read(moved[r.source], r.indices, r.dtype, r.value_index)

    for op in dag.ops:
        if op.body is not None:
            op = replace(op, body=map_nodes(op.body, ir.Read, renumbered))
        if _is_short_sum(op):
            ops.append(_wide(op))
            read = ir.Read(len(ops) - 1, tuple(a.var for a in op.axes), _WIDE, 0)
            op = replace(op, reduce_axes=(), body=ir.cast(read, op.dtype))
        moved.append(len(ops))
        ops.append(op)
    args = tuple(arg_id(moved[i], output) for i, output in map(read_arg_id, arg_ids))
    return Dag(tuple(ops), tuple(moved[i] for i in dag.outputs)), args


def sums_are_read(dag: Dag) -> bool:
    """Whether another operation computes with a sum of shorter floats."""
    short = {i for i, op in enumerate(dag.ops) if _is_short_sum(op)}
    return any(read.source in short for op in dag.ops for read in op.reads())


def _is_short_sum(op: OpNode) -> bool:
    red = op.reduction
    if red is None or op.num_outputs > 1 or not dtypes.is_float(op.dtype):
        return False
    match red.combiner.result[0]:
        case ir.Binary(op="+", a=ir.Var() as a, b=ir.Var() as b):
            return op.dtype != _WIDE and {a, b} == {*red.combiner.lhs, *red.combiner.rhs}
    return False


def _wide(op: OpNode) -> OpNode:
    red = op.reduction
    assert red is not None, "only sums are widened"
    lhs, rhs = ir.Var("x", _WIDE), ir.Var("y", _WIDE)
    combiner = Combiner(red.combiner.name, (lhs,), (rhs,), (lhs + rhs,), (ir.const(0.0, _WIDE),))
    source = tuple(ir.cast(e, _WIDE) for e in red.source)
    start = None if red.init is None else tuple(ir.cast(e, _WIDE) for e in red.init)
    body = Reduce(combiner, source, red.axes, red.where, start, _WIDE)
    return replace(op, name=f"{op.name}.wide", dtype=_WIDE, body=body, tag="")
