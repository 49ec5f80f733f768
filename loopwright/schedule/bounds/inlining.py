"""Inlined stages substituted into their readers; what would double without end is computed once.

A stage that each reader reads twice doubles the expression at every step. Where that passes
`MAX_INLINED`, stages that are large and read more than once are computed in the innermost loop of
the stage that they are inlined into, so that a register holds them, or at root, where they are read
at several places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from loopwright.errors import ScheduleError
from loopwright.ir.expr import Const, Expr, Read, Var, cast
from loopwright.ir.node import StructuralKey, distinct
from loopwright.ir.reduction import outputs_of
from loopwright.ir.visitor import map_nodes, nodes, substitute
from loopwright.schedule.state import ROOT, Attach, StageId, State
from loopwright.te import OpNode, body_parts

MAX_INLINED = 1 << 15  #: most nodes that inlining may put into the expression of one stage
#: Nodes of an expression from which on it is not repeated, where a program passes the limit.
_MOST_REPEATED = 64


def inline_ops(state: State) -> tuple[State, dict[StageId, OpNode]]:
    """Operations with inlined stages substituted into their readers, and those stages removed.

    The state is the same, or one in which some inlined stages are computed once instead.
    ScheduleError where an expression is too large all the same.
    """
    try:
        return state, _inlined_ops(state)
    except _TooLargeError:
        state = share_inlined(state)
    try:
        return state, _inlined_ops(state)
    except _TooLargeError as error:
        raise ScheduleError(*error.args) from None


def share_inlined(state: State) -> State:
    """The state with inlined stages of large expressions that are read more than once, or at an
    index that they may repeat, computed once; itself where there are none."""
    return _Sharing(state).state()


def _inlined_ops(state: State) -> dict[StageId, OpNode]:
    ops: dict[StageId, OpNode] = {}
    bodies: dict[StageId, OpNode] = {}
    sizes: _Sizes = {}
    for sid in state.order:
        stage = state.stages[sid]
        op = _Inlining(state, sid, bodies, sizes).into(stage.op)
        if stage.attach.kind == "inline":
            bodies[sid] = op
        else:
            ops[sid] = op
    return ops


class _TooLargeError(ScheduleError):
    """An expression passes `MAX_INLINED`."""


#: For each output that is read: nodes of its expression, and its uses of each variable.
_Sizes = dict[tuple[StageId, int], tuple[int, dict[Var, int]]]


@dataclass
class _Inlining:
    state: State
    sid: StageId
    bodies: Mapping[StageId, OpNode]
    sizes: _Sizes
    nodes: int = 0
    #: Equal reads have one expression, which later walks visit once.
    _values: dict[StructuralKey, Expr] = field(default_factory=dict)

    def into(self, op: OpNode) -> OpNode:
        if op.body is None or not any(r.source in self.bodies for r in op.reads()):
            return op
        body = map_nodes(op.body, Read, self._inlined)
        return OpNode(op.name, op.shape, op.dtype, op.axes, op.reduce_axes, body, op.tag)

    def _inlined(self, r: Read) -> Expr:
        if r.source not in self.bodies:
            return r
        source = self.bodies[r.source]
        assert source.body is not None
        # An index of another dtype takes the axis's: it lies within the dimension.
        env = {a.var: cast(i, a.var.dtype) for a, i in zip(source.axes, r.indices, strict=True)}
        value = outputs_of(source.body)[r.value_index]
        self._count(r.source, r.value_index, value, env)
        key = StructuralKey(r)
        if key not in self._values:
            self._values[key] = substitute(value, env)
        return self._values[key]

    def _count(self, source: StageId, output: int, value: Expr, env: Mapping[Var, Expr]) -> None:
        """Refuse an expression that becomes too large, before it does."""
        if (source, output) not in self.sizes:
            self.sizes[source, output] = _measured(value)
        nodes, uses = self.sizes[source, output]
        self.nodes += nodes + sum(uses.get(v, 0) * _measured(i)[0] for v, i in env.items())
        if self.nodes > MAX_INLINED:
            name, host = self.state.label(source), self.state.label(self.sid)
            step = self.state.stages[source].attach.step
            raise _TooLargeError(
                f"compute_inline (step {step}): with {name!r} in it the expression of {host!r} "
                f"would have more than {MAX_INLINED} nodes; compute {name!r} at a loop, or at root"
            )


def _measured(e: Expr) -> tuple[int, dict[Var, int]]:
    """Number of nodes of an expression, and of its uses of each variable."""
    parts = list(nodes(e))
    return len(parts), dict(Counter(n for n in parts if isinstance(n, Var)))


#: A stage that is not inlined, and the element of another one that it reads, over its own axes.
_Place = tuple[StageId, tuple[Expr, ...]]


class _Sharing:
    """Chooses the inlined stages of a state that are computed once, and where."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._on_threads = any(
            x.env_threads or any(m.kind == "thread" for m in x.marks.values())
            for x in state.stages.values()
        )

    def state(self) -> State:
        """The state with these stages at their places."""
        large, state = self._large(), self._state
        places: dict[StageId, list[_Place]] = {sid: [] for sid in state.order}
        for sid in reversed(state.order):  # readers before what they read
            stage = state.stages[sid]
            inlined = stage.attach.kind == "inline"
            if sid in large and (attach := self._attach(places[sid])) is not None:
                attach = replace(attach, step=stage.attach.step)
                state, inlined = (
                    state.with_stage(replace(stage, attach=attach)),
                    attach.kind == "at",
                )
            axes = tuple(a.var for a in stage.op.axes)
            own = places[sid] if inlined else [(sid, axes)]
            for r in stage.op.distinct_reads:
                read = [(host, _at(r, axes, element)) for host, element in own]
                places[r.source] = distinct([*places[r.source], *read])
        return state

    def _large(self) -> set[StageId]:
        """Inlined stages of large expressions that are read more than once, or at an index that
        they may repeat."""
        ops = {sid: self._state.stages[sid].op for sid in self._state.order}
        reads = {sid: [(r.source, _index_size(r)) for r in op.reads()] for sid, op in ops.items()}
        times = Counter(source for own in reads.values() for source, _ in own)
        moved = {source for own in reads.values() for source, index in own if index > 1}
        large: set[StageId] = set()
        sizes: dict[StageId, int] = {}
        for sid, op in ops.items():
            if self._state.stages[sid].attach.kind != "inline":
                continue
            size = sum(1 for e in body_parts(op.body) for _ in nodes(e))
            size += sum(sizes.get(source, 0) * index for source, index in reads[sid])
            if size > _MOST_REPEATED and (times[sid] > 1 or sid in moved):
                large.add(sid)
            else:
                sizes[sid] = size
        return large

    def _attach(self, places: Sequence[_Place]) -> Attach | None:
        """The innermost loop of the one stage that reads one element; else root; None: nowhere."""
        if len(places) == 1:
            ((host, element),) = places
            stage = self._state.stages[host]
            starts = stage.op.reduction is not None and stage.op.reduction.init is not None
            plain = all(isinstance(i, Var | Const) for i in element) and not starts
            if plain and stage.leaves and stage.tensorized is None:
                return Attach("at", host, stage.leaves[-1])
        return None if self._on_threads else ROOT


def _at(r: Read, axes: Sequence[Var], element: Sequence[Expr]) -> tuple[Expr, ...]:
    """The element that is read, where the axes of its reader are those of an element."""
    env = dict(zip(axes, element, strict=True))
    return tuple(substitute(i, env) for i in r.indices)


def _index_size(r: Read) -> int:
    """Most nodes of an index of a read."""
    return max((sum(1 for _ in nodes(i)) for i in r.indices), default=1)
