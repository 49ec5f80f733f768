"""Binds the size variables of a program to numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loopwright.errors import TensorError
from loopwright.ir.expr import Dim, IterVar, Var, const
from loopwright.ir.reduction import Reduce
from loopwright.ir.sizes import SizeVar, evaluate
from loopwright.ir.visitor import substitute
from loopwright.te.op_node import OpNode, sizes_of

#: Values of size variables, by the variable or by its name.
SizeValues = Mapping[SizeVar, int] | Mapping[str, int]


def bind_sizes(ops: Sequence[OpNode], values: SizeValues) -> tuple[OpNode, ...]:
    given: dict[object, int] = dict(values.items())
    env: dict[Var, int] = {v: _value(v, given) for v in sizes_of(ops)}
    return tuple(_bind_op(op, env) for op in ops)


def _value(v: SizeVar, values: Mapping[object, int]) -> int:
    for key in (v, v.name):
        if key in values:
            return int(values[key])
    raise TensorError(f"bind: the size variable {v.name!r} has no value")


def _extent(e: Dim, env: Mapping[Var, int], op: OpNode) -> int:
    n = evaluate(e, env)
    if n < 1:
        sizes = ", ".join(f"{v.name} = {x}" for v, x in env.items())
        raise TensorError(
            f"bind: the extent {e} of {op.name!r} is {n} for {sizes}; extents are at least 1"
        )
    return n


def _bind_op(op: OpNode, env: Mapping[Var, int]) -> OpNode:
    shape = tuple(_extent(n, env, op) for n in op.shape)
    if op.body is None:
        return replace(op, shape=shape)
    axes = tuple(IterVar(a.var, n, a.kind) for a, n in zip(op.axes, shape, strict=True))
    reduced = {a: IterVar(a.var, _extent(a.extent, env, op), a.kind) for a in op.reduce_axes}
    body = substitute(op.body, {v: const(x, v.dtype) for v, x in env.items()})
    if isinstance(body, Reduce):
        over = tuple(reduced[a] for a in body.axes)
        body = Reduce(body.combiner, body.source, over, body.where, body.init, body.dtype)
    return replace(op, shape=shape, axes=axes, reduce_axes=tuple(reduced.values()), body=body)
