"""A trace as Python source: the calls that make the schedule again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopwright.schedule import steps as st
from loopwright.schedule.apply import apply
from loopwright.schedule.rules.layout import layout_text
from loopwright.schedule.rules.rfactor import factoring
from loopwright.schedule.state import LayoutDim, StageId, State
from loopwright.te.dag import Dag
from loopwright.te.source import Identifiers

#: Steps that name a stage and no loop.
_BUFFER = st.TransformLayout | st.SetScope | st.StorageAlign | st.StoreRoot | st.DoubleBuffer
_NO_LOOPS = (
    st.CacheRead
    | st.CacheWrite
    | st.ComputeInline
    | st.ComputeRoot
    | st.CreateGroup
    | st.EnvThreads
    | st.SetStorePredicate
    | _BUFFER
)
_VERB = {"vectorized": "vectorize", "unrolled": "unroll", "parallel": "parallel"}


class _Names(Identifiers):
    """Python identifiers for stages and loops, each used once."""

    def __init__(self) -> None:
        super().__init__(("s", "te", "schedule"))
        self.stages: dict[StageId, str] = {}
        self.loops: dict[tuple[StageId, str], str] = {}

    def stage(self, state: State, sid: StageId) -> str:
        if sid not in self.stages:
            self.stages[sid] = self.fresh(state.stages[sid].op.name)
        return self.stages[sid]

    def group(self, t: int) -> str:
        """The name of the group that step t made."""
        self.stages[f"s{t}"] = self.fresh("group")
        return self.stages[f"s{t}"]

    def loop(self, state: State, sid: StageId, loop: str) -> str:
        if (sid, loop) not in self.loops:
            self.loops[sid, loop] = self.fresh(state.stages[sid].loops[loop].name)
        return self.loops[sid, loop]

    def move(self, state: State, step: st.RFactor) -> None:
        """Names of reduction loops go with these to the stage that rfactor made."""
        moves = factoring(state.stages[step.stage], step.loop, step.factor_axis).moves
        for old, loop in state.stages[step.stage].loops.items():
            name = self.loops.pop((step.stage, old), "") if loop.kind == "reduce" else ""
            if name and moves.get(old) == old:
                self.loops[f"s{state.steps}", old] = name


def trace_as_python(dag: Dag, trace: Sequence[st.Step]) -> str:
    """The function ``schedule(s, <tensors of the DAG in order>)`` that applies a trace.

    ``s`` is a fresh schedule of the DAG; running it gives a schedule with the same trace.
    """
    state = State.initial(dag)
    names = _Names()
    params = [names.stage(state, sid) for sid in state.order]
    lines = [f"def schedule({', '.join(['s', *params])}):"]
    shown: set[StageId] = set()
    for step in trace:
        after = apply(state, step)
        lines += _axes(state, step, names, shown)
        lines.append("    " + _call(state, after, step, names))
        if isinstance(step, st.RFactor):
            shown.discard(step.stage)
            names.move(state, step)
        state = after
    if len(lines) == 1:
        lines.append("    pass")
    return "\n".join([*lines, "    return s"]) + "\n"


def _axes(state: State, step: st.Step, names: _Names, shown: set[StageId]) -> list[str]:
    """The line that names a stage's axes, before the first step that needs them."""
    out = []
    sids = [step.stage]
    if isinstance(step, st.ComputeAt | st.StoreAt):
        sids = [step.parent]
    if isinstance(step, _NO_LOOPS):
        return []
    for sid in sids:
        stage = state.stages[sid]
        if sid in shown or stage.op.is_placeholder:
            continue
        shown.add(sid)
        loops = [f"a{d}" for d in range(len(stage.op.axes))]
        reduce = [f"r{d}" for d in range(len(stage.op.reduce_axes))]
        t = names.stage(state, sid)
        if loops:
            lhs = ", ".join(names.loop(state, sid, x) for x in loops)
            out.append(f"    [{lhs}] = s[{t}].op.axis")
        if reduce:
            lhs = ", ".join(names.loop(state, sid, x) for x in reduce)
            out.append(f"    [{lhs}] = s[{t}].op.reduce_axis")
    return out


def _call(state: State, after: State, step: st.Step, names: _Names) -> str:
    sid = step.stage
    s = names.stage(state, sid) if sid in state.groups else f"s[{names.stage(state, sid)}]"

    def loop(x: str, of: StageId = sid) -> str:
        return names.loop(after, of, x)

    t = state.steps
    match step:
        case st.Split(loop=x, factor=f, nparts=n):
            arg = f"factor={f}" if f is not None else f"nparts={n}"
            old = loop(x)
            return f"{loop(f'{t}.0')}, {loop(f'{t}.1')} = {s}.split({old}, {arg})"
        case st.Fuse(outer=a, inner=b):
            old = f"{loop(a)}, {loop(b)}"
            return f"{loop(f'{t}.0')} = {s}.fuse({old})"
        case st.Reorder(order=order):
            return f"{s}.reorder({', '.join(loop(x) for x in order)})"
        case st.Annotate(loop=x, kind=k):
            return f"{s}.{_VERB[k]}({loop(x)})"
        case st.Bind(loop=x, tag=tag, extent=n):
            return f"{s}.bind({loop(x)}, {_axis(tag, n)})"
        case st.EnvThreads(axes=axes):
            return f"{s}.env_threads([{', '.join(_axis(*a) for a in axes)}])"
        case st.SetStorePredicate(equal=equal):
            return f"{s}.set_store_predicate({list(equal)!r})"
        case st.Pragma(loop=x, key=k, value=v):
            return f"{s}.pragma({loop(x)}, {k!r}, {v!r})"
        case st.Prefetch(loop=x, source=p, offset=n, value_index=k):
            of, source = names.stage(state, p), state.stages[p].op
            tensor = of if source.num_outputs == 1 else f"{of}.op.output({k})"
            return f"{s}.prefetch({tensor}, {loop(x)}, {n})"
        case st.ComputeAt(parent=p, loop=x):
            return f"{s}.compute_at(s[{names.stage(state, p)}], {loop(x, p)})"
        case st.StoreAt(parent=p, loop=x):
            return f"{s}.store_at(s[{names.stage(state, p)}], {loop(x, p)})"
        case st.TransformLayout(dims=dims, pad_value=pad):
            filled = "" if pad is None else f", pad_value={pad!r}"
            return f"{s}.transform_layout({_layout(dims, len(state.stages[sid].op.shape))}{filled})"
        case st.Tensorize(loop=x, intrin=intrin):
            return f"{s}.tensorize({loop(x)}, {intrin.to_json()!r})"
        case st.SetScope(scope=scope):
            return f"{s}.set_scope({scope!r})"
        case st.StorageAlign(dim=d, factor=f, offset=o):
            return f"{s}.storage_align({d}, {f}, {o})"
    return _stage_call(state, after, step, names, s)


def _stage_call(state: State, after: State, step: Any, names: _Names, s: str) -> str:
    t, own = state.steps, names.stage(state, step.stage)
    if isinstance(step, st.ComputeInline | st.ComputeRoot | st.StoreRoot | st.DoubleBuffer):
        return f"{s}.{step.primitive}()"
    if isinstance(step, st.CreateGroup):
        return f"{names.group(t)} = s.create_group({_group(state, step, names)})"
    made = names.stage(after, f"s{t}")
    several = state.stages[step.stage].op.num_outputs > 1
    if isinstance(step, st.RFactor):
        axis = names.loop(state, step.stage, step.loop)
        given = f"({own}, {axis}, {step.factor_axis})"
        return f"{made}, *_ = s.rfactor{given}" if several else f"{made} = s.rfactor{given}"
    if isinstance(step, st.CacheWrite):
        if several:
            return f"{made}, *_ = s.cache_write({own}.op, {step.scope!r})"
        return f"{made} = s.cache_write({own}, {step.scope!r})"
    tensor = f"{own}.op.output({step.value_index})" if several else own
    readers = ", ".join(names.stage(state, r) for r in step.readers)
    return f"{made} = s.cache_read({tensor}, {step.scope!r}, [{readers}])"


def _group(state: State, step: st.CreateGroup, names: _Names) -> str:
    outputs = ", ".join(names.stage(state, x) for x in (step.stage, *step.outputs))
    inputs = ", ".join(names.stage(state, x) for x in step.inputs)
    return f"[{outputs}], [{inputs}]" + (", include_inputs=True" if step.include_inputs else "")


def _axis(tag: str, extent: int | None) -> str:
    return repr(tag) if extent is None else f"({tag!r}, {extent})"


def _layout(dims: tuple[LayoutDim, ...], ndim: int) -> str:
    args = [f"i{d}" for d in range(ndim)]
    return f"lambda {', '.join(args)}: ({layout_text(dims)})"
