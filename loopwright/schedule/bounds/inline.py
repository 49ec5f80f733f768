"""Operations of a program in which inlined stages stand in the expressions that read them.

Inlining a stage that is read twice into one that is read twice, and so on, doubles an expression
at each level. So the size of what comes out is known before it is made, and is limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loopwright.ir.expr import Expr, Read, Var, cast
from loopwright.ir.node import Node
from loopwright.ir.reduction import outputs_of
from loopwright.ir.visitor import substitute, walk
from loopwright.schedule.state import StageId, State, refuse
from loopwright.te.op_node import OpNode

#: Most nodes that inlining may put into the expression of one stage.
MAX_INLINED = 1 << 15


def inline_ops(state: State) -> dict[StageId, OpNode]:
    """Operations with inlined stages substituted into their readers, and those stages removed."""
    ops: dict[StageId, OpNode] = {}
    bodies: dict[StageId, OpNode] = {}
    for sid in state.order:
        stage = state.stages[sid]
        op = _Inlining(state, sid, bodies).into(stage.op)
        if stage.attach.kind == "inline":
            bodies[sid] = op
        else:
            ops[sid] = op
    return ops


@dataclass
class _Inlining:
    state: State
    sid: StageId
    bodies: Mapping[StageId, OpNode]
    nodes: int = 0
    #: For each output that is read: nodes of its expression, and its uses of each variable.
    _sizes: dict[tuple[StageId, int], tuple[int, dict[Var, int]]] = field(default_factory=dict)

    def into(self, op: OpNode) -> OpNode:
        if op.body is None or not any(r.source in self.bodies for r in op.reads()):
            return op
        body = self._go(op.body)
        return OpNode(op.name, op.shape, op.dtype, op.axes, op.reduce_axes, body, op.tag)

    # Any: an expression gives an expression.
    def _go(self, e: Any) -> Any:
        inlined = e.map_children(self._go)
        if not (isinstance(inlined, Read) and inlined.source in self.bodies):
            return inlined
        source = self.bodies[inlined.source]
        assert source.body is not None
        # An index of another dtype takes the axis's: it lies within the dimension.
        env = {
            a.var: cast(i, a.var.dtype) for a, i in zip(source.axes, inlined.indices, strict=True)
        }
        value = outputs_of(source.body)[inlined.value_index]
        self._count(inlined.source, inlined.value_index, value, env)
        return substitute(value, env)

    def _count(self, source: StageId, output: int, value: Expr, env: Mapping[Var, Expr]) -> None:
        """Refuse an expression that becomes too large, before it does."""
        if (source, output) not in self._sizes:
            self._sizes[source, output] = _measured(value)
        nodes, uses = self._sizes[source, output]
        self.nodes += nodes + sum(uses.get(v, 0) * _measured(i)[0] for v, i in env.items())
        if self.nodes > MAX_INLINED:
            name, host = self.state.label(source), self.state.label(self.sid)
            refuse(
                "compute_inline",
                self.state.stages[source].attach.step,
                f"with {name!r} in it the expression of {host!r} would have more than "
                f"{MAX_INLINED} nodes; compute {name!r} at a loop, or at root",
            )


def _measured(e: Expr) -> tuple[int, dict[Var, int]]:
    """Number of nodes of an expression, and of its uses of each variable."""
    nodes, uses = 0, dict[Var, int]()

    def visit(n: Node) -> None:
        nonlocal nodes
        nodes += 1
        if isinstance(n, Var):
            uses[n] = uses.get(n, 0) + 1

    walk(e, visit)
    return nodes, uses
