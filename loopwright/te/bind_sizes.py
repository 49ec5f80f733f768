"""A program with size variables, for given sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loopwright.errors import TensorError
from loopwright.ir.expr import IterVar, const
from loopwright.ir.printer import print_expr
from loopwright.ir.reduction import Reduce
from loopwright.ir.sizes import Dim, SizeVar, evaluate

if TYPE_CHECKING:
    from loopwright.te.dag import Dag, OpNode


def bind_sizes(dag: Dag, values: Mapping[Any, int]) -> Dag:
    """See `Dag.bind`."""
    if not dag.sizes:
        return dag
    env = {v: _value(v, values) for v in dag.sizes}
    ops = tuple(_bind_op(op, env) for op in dag.ops)
    return replace(dag, ops=ops)


def _value(v: SizeVar, values: Mapping[Any, int]) -> int:
    for key in (v, v.name):
        if key in values:
            return int(values[key])
    raise TensorError(f"bind: the size variable {v.name!r} has no value")


def _extent(e: Dim, env: Mapping[Any, int], op: OpNode) -> int:
    n = evaluate(e, env)
    if n < 1:
        sizes = ", ".join(f"{v.name} = {x}" for v, x in env.items())
        raise TensorError(
            f"bind: the extent {print_expr(e)} of {op.name!r} is {n} for {sizes}; extents are at "
            "least 1"
        )
    return n


def _bind_op(op: OpNode, env: Mapping[Any, int]) -> OpNode:
    shape = tuple(_extent(n, env, op) for n in op.shape)
    if op.body is None:
        return replace(op, shape=shape)
    axes = tuple(IterVar(a.var, n, a.kind) for a, n in zip(op.axes, shape, strict=True))
    reduced = {a: IterVar(a.var, _extent(a.extent, env, op), a.kind) for a in op.reduce_axes}
    literal = {v: const(x, v.dtype) for v, x in env.items()}

    def go(e: Any) -> Any:
        if isinstance(e, SizeVar):
            return literal[e]
        made = e.map_children(go)
        if isinstance(made, Reduce):
            fields = {n: getattr(made, n) for n in made._fields}
            return Reduce(**{**fields, "axes": tuple(reduced[a] for a in made.axes)})
        return made

    return replace(
        op, shape=shape, axes=axes, reduce_axes=tuple(reduced.values()), body=go(op.body)
    )
