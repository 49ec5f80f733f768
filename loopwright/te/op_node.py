"""`OpNode`: one operation of a DAG, as data.

Its body reads other operations by their index in the DAG.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from loopwright.errors import TensorError
from loopwright.ir.expr import Dim, Expr, IfThenElse, IterVar, Read, Var, const
from loopwright.ir.node import Node, distinct
from loopwright.ir.reduction import Reduce, outputs_of
from loopwright.ir.sizes import Shape, SizeVar, evaluate, size_vars
from loopwright.ir.visitor import distinct_nodes, nodes, substitute
from loopwright.te.tensor import body_parts, static_shape


@dataclass(frozen=True, eq=False)
class OpNode:
    """One operation: a placeholder (``body`` is None) or a compute over ``axes``.

    ``dtype`` is that of output 0; all outputs have the one shape. ``constant`` tells a placeholder
    whose values are known before calls.
    """

    name: str
    shape: Shape
    dtype: str
    axes: tuple[IterVar, ...] = ()
    reduce_axes: tuple[IterVar, ...] = ()
    body: Expr | None = None
    tag: str = ""
    constant: bool = False

    @property
    def is_placeholder(self) -> bool:
        return self.body is None

    @property
    def dtypes(self) -> tuple[str, ...]:
        return (self.dtype,) if self.body is None else tuple(e.dtype for e in outputs_of(self.body))

    @property
    def num_outputs(self) -> int:
        return 1 if self.body is None else len(outputs_of(self.body))

    def output_name(self, index: int) -> str:
        """Printed name of an output: ``T``, or ``T.v1`` where there are several."""
        return self.name if self.num_outputs == 1 else f"{self.name}.v{index}"

    @property
    def reduction(self) -> Reduce | None:
        """The body when it is a reduction."""
        return self.body if isinstance(self.body, Reduce) else None

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as numbers; TensorError where it depends on sizes."""
        return static_shape(self.shape)

    @property
    def extents(self) -> list[Dim]:
        """Extents of the output's dimensions and of the reduction axes."""
        return [*self.shape, *(a.extent for a in self.reduce_axes)]

    @cached_property
    def sizes(self) -> tuple[SizeVar, ...]:
        """Size variables of the extents and of the body, in the order of first use."""
        return tuple(size_vars([*self.extents, *body_parts(self.body)]))

    @cached_property
    def _reads(self) -> tuple[Read, ...]:
        return tuple(r for part in body_parts(self.body) for r in reads_of(part))

    def reads(self) -> tuple[Read, ...]:
        """All reads of the body, in order, repeated ones included."""
        return self._reads

    @cached_property
    def distinct_reads(self) -> tuple[Read, ...]:
        """The reads of the body, each once."""
        parts = (n for part in body_parts(self.body) for n in distinct_nodes(part))
        return tuple(distinct(n for n in parts if isinstance(n, Read)))

    def unguarded_reads(self) -> list[Read]:
        """Reads that happen at every point of the operation: no condition decides about them."""
        reads: list[Read] = []

        def visit(e: Node) -> None:
            if isinstance(e, Read):
                reads.append(e)
            for c in (e.cond,) if isinstance(e, IfThenElse) else e.children():
                visit(c)

        red = self.reduction
        for e in body_parts(self.body):
            if red is None or red.where is None or e is red.where:
                visit(e)
        return reads


def sizes_of(ops: Iterable[OpNode]) -> tuple[SizeVar, ...]:
    """Size variables of operations, in the order of first use, each once."""
    return tuple(dict.fromkeys(v for op in ops for v in op.sizes))


def reads_of(e: Node) -> list[Read]:
    return [n for n in nodes(e) if isinstance(n, Read)]


#: Values of size variables, by the variable or by its name.
SizeValues = Mapping[SizeVar, int] | Mapping[str, int]


def bind_sizes(ops: Sequence[OpNode], values: SizeValues) -> tuple[OpNode, ...]:
    numbers: dict[object, int] = dict(values.items())
    env: dict[Var, int] = {}
    for v in sizes_of(ops):
        if v not in numbers and v.name not in numbers:
            raise TensorError(f"bind: the size variable {v.name!r} has no value")
        env[v] = int(numbers[v if v in numbers else v.name])
    return tuple(_bind_op(op, env) for op in ops)


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
