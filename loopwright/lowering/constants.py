"""Constant operands (`loopwright.te.placeholder`): a function ``prepare`` computes the root stages
that depend on these alone, a packed copy of weights say, before calls, and ``main`` takes its
results as further arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopwright.errors import LowerError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.node import Node
from loopwright.ir.sizes import SizeVar, size_vars
from loopwright.ir.stmt import PREPARE, PREPARED, CallPacked, Func, Prefetch, SplitFunc, Stmt
from loopwright.ir.traversal import free_vars, walk
from loopwright.lowering.nest.buffers import Buffers
from loopwright.lowering.nest.builder import NestBuilder
from loopwright.schedule.bounds.results import Bounds
from loopwright.schedule.state import StageId, State

#: Buffers of arguments by stage and output.
Params = Mapping[tuple[StageId, int], Buffer]


def check_constants(state: State, params: Params) -> None:
    """Refuse constant placeholders that are no arguments."""
    given = {sid for sid, _ in params}
    for sid, stage in state.stages.items():
        if stage.op.constant and sid not in given:
            raise LowerError(
                f"lower: the constant tensor {state.label(sid)!r} is not in the arguments; its "
                "values come with a call, or by with_constants"
            )


def constant_stages(state: State, arguments: frozenset[StageId] = frozenset()) -> set[StageId]:
    """Stages whose values constant placeholders determine, these included.

    A stage whose buffer cannot be handed over (of another scope than global memory, or with aligned
    strides) counts as one that varies, and so do its readers.

    Args:
        state: the schedule's state.
        arguments: stages whose results are the caller's, which varies as well.

    Returns:
        Nothing for a program without constant placeholders.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> W = te.placeholder((4,), name="W", constant=True)
        >>> V = te.compute((4,), lambda i: W[i] * 2, name="V")
        >>> B = te.compute((4,), lambda i: A[i] + V[i], name="B")
        >>> s = te.create_schedule(B.op)
        >>> print(sorted(lw.lowering.constant_stages(s.state)))
        [1, 2]
    """
    found: set[StageId] = set()
    if not any(stage.op.constant for stage in state.stages.values()):
        return found
    for sid in state.order:
        stage = state.stages[sid]
        if stage.op.is_placeholder:
            fixed = stage.op.constant
        else:
            movable = stage.attach.kind != "root" or (stage.scope == "global" and not stage.align)
            sources = {r.source for r in stage.op.reads()}
            fixed = movable and sid not in arguments and sources <= found
        found |= {sid} if fixed else set()
    return found


def prepared_stages(state: State, arguments: frozenset[StageId] = frozenset()) -> set[StageId]:
    """The stages at the root that are computed once for many calls; arguments as of
    `constant_stages`.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> W = te.placeholder((4,), name="W", constant=True)
        >>> V = te.compute((4,), lambda i: W[i] * 2, name="V")
        >>> B = te.compute((4,), lambda i: A[i] + V[i], name="B")
        >>> s = te.create_schedule(B.op)
        >>> print(lw.lowering.prepared_stages(s.state))
        {2}
        >>> s[V].compute_inline()
        >>> print(lw.lowering.prepared_stages(s.state))
        set()
    """
    stages = ((sid, state.stages[sid]) for sid in constant_stages(state, arguments))
    return {sid for sid, x in stages if x.attach.kind == "root" and not x.op.is_placeholder}


def split(
    whole: Func, state: State, bounds: Bounds, params: Params, partition_cap: int
) -> SplitFunc | None:
    """Split a function in two parts; None where nothing can be computed before calls.

    Sizes come with a call: a program with size variables is left whole where the part before calls
    depends on one, or an argument that varies does not determine it.
    """
    first = prepared_stages(state, frozenset(sid for sid, _ in params))
    if not first:
        return None
    kept = _kept(state, bounds, params, first)
    if not kept:
        return None
    builder = NestBuilder(state, bounds, {**params, **kept}, partition_cap)
    prepare = builder.build(first)
    main = builder.build([i for i in bounds.stages if i not in first])
    buffers = tuple(kept.values())
    if _has_sizes(prepare, buffers):
        return None
    read, also = _touched(prepare), _touched(main)
    of_first = tuple(b for b in whole.params if b in read)
    of_second = tuple(b for b in whole.params if not b.constant or b in also)
    written = dict(zip(whole.params, whole.outputs, strict=True))
    marks = tuple(written[b] for b in of_second)
    told = {n for b in of_second for n in b.shape if isinstance(n, SizeVar)}
    if not told.issuperset(whole.sizes):
        return None
    writes, reads = (True,) * len(buffers), (False,) * len(buffers)
    return SplitFunc(
        whole,
        Func(whole.name + PREPARE, of_first + buffers, (False,) * len(of_first) + writes, prepare),
        Func(whole.name + PREPARED, of_second + buffers, marks + reads, main, whole.sizes),
        buffers,
    )


def _has_sizes(s: Stmt, buffers: Sequence[Buffer]) -> bool:
    """Whether a statement, or the shape of a buffer in it or given, depends on a size variable."""
    shapes = [n for b in (*buffers, *_touched(s)) for n in b.shape]
    return bool(size_vars(shapes)) or any(isinstance(v, SizeVar) for v in free_vars(s))


def _kept(
    state: State, bounds: Bounds, params: Params, first: set[StageId]
) -> dict[tuple[StageId, int], Buffer]:
    """The buffers of the first part that the second one reads."""
    inside = {i for i in bounds.stages if _root_of(state, i) in first}
    reads = [r for i in bounds.stages if i not in inside for r in bounds.ops[i].reads()]
    wanted = {(r.source, r.value_index) for r in reads}
    buffers = Buffers(state, bounds, dict(params)).of
    return {
        (i, k): b
        for i in state.order
        if i in first
        for k, b in enumerate(buffers[i])
        if (i, k) in wanted
    }


def _root_of(state: State, sid: StageId) -> StageId:
    """The stage at the root inside whose loops a stage is computed; itself at the root."""
    while state.stages[sid].attach.kind == "at":
        sid = state.stages[sid].attach.stage
    return sid


def _touched(s: Stmt) -> set[Buffer]:
    found: set[Buffer] = set()

    def visit(n: Node) -> None:
        if isinstance(n, Load | Prefetch):
            found.add(n.buffer)
        elif isinstance(n, CallPacked):
            found.update(n.buffers)

    walk(s, visit)
    return found
