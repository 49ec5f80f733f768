"""Sums of short floats that are added up in float64, for references.

One float32 after the other, a sum of two million squares is wrong in its third digit, where a
schedule that adds up parts is right in its sixth. The reference must be the better of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from loopwright import dtypes
from loopwright.ir.expr import Binary, Expr, Read, Var, cast, const
from loopwright.ir.reduction import Combiner, Reduce
from loopwright.te.dag import ArgId, Dag, arg_id, read_arg_id
from loopwright.te.op_node import OpNode

_WIDE = "float64"


def with_wide_sums(dag: Dag, arg_ids: Sequence[ArgId]) -> tuple[Dag, tuple[ArgId, ...]]:
    """The program in which each sum of shorter floats is added up in float64, then rounded once.

    Terms and all else are computed in the types that they have, so that a value that depends on a
    rounded one, such as its conversion to an integer, stays as it is. Returns with it the same
    arguments in the new program.
    """
    ops: list[OpNode] = []
    moved: list[int] = []
    for op in dag.ops:
        op = _renumbered(op, moved)
        if _is_short_sum(op):
            ops.append(_wide(op))
            op = _rounded(op, len(ops) - 1)
        moved.append(len(ops))
        ops.append(op)
    args = [read_arg_id(a) for a in arg_ids]
    return (
        Dag(tuple(ops), tuple(moved[i] for i in dag.outputs)),
        tuple(arg_id(moved[i], output) for i, output in args),
    )


def sums_are_read(dag: Dag) -> bool:
    """Whether another operation computes with a sum of shorter floats."""
    short = {i for i, op in enumerate(dag.ops) if _is_short_sum(op)}
    return any(read.source in short for op in dag.ops for read in op.reads())


def _is_short_sum(op: OpNode) -> bool:
    red = op.reduction
    if red is None or op.num_outputs > 1 or not dtypes.is_float(op.dtype):
        return False
    match red.combiner.result[0]:
        case Binary(op="+", a=Var() as a, b=Var() as b):
            return op.dtype != _WIDE and {a, b} == {*red.combiner.lhs, *red.combiner.rhs}
    return False


def _renumbered(op: OpNode, moved: Sequence[int]) -> OpNode:
    # Any: an expression gives an expression.
    def visit(e: Any) -> Any:
        new = e.map_children(visit)
        if isinstance(new, Read) and isinstance(new.source, int):
            return Read(moved[new.source], new.indices, new.dtype, new.value_index)
        return new

    return op if op.body is None else replace(op, body=visit(op.body))


def _wide(op: OpNode) -> OpNode:
    red = op.reduction
    assert red is not None, "only sums are widened"
    lhs, rhs = Var("x", _WIDE), Var("y", _WIDE)
    combiner = Combiner(red.combiner.name, (lhs,), (rhs,), (lhs + rhs,), (const(0.0, _WIDE),))
    body = Reduce(combiner, _all_wide(red.source), red.axes, red.where, _start(red), _WIDE)
    return replace(op, name=f"{op.name}.wide", dtype=_WIDE, body=body, tag="")


def _start(red: Reduce) -> tuple[Expr, ...] | None:
    return None if red.init is None else _all_wide(red.init)


def _all_wide(values: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(cast(e, _WIDE) for e in values)


def _rounded(op: OpNode, wide: int) -> OpNode:
    read = Read(wide, tuple(a.var for a in op.axes), _WIDE, 0)
    return replace(op, reduce_axes=(), body=cast(read, op.dtype))
