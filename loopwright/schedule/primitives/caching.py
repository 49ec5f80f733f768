"""The primitives that make a stage which copies a tensor."""

from __future__ import annotations

from dataclasses import replace

from loopwright.ir.expr import Expr, IterVar, Read, Var
from loopwright.ir.kinds import Scope
from loopwright.ir.reduction import Tuple
from loopwright.ir.visitor import map_nodes, substitute
from loopwright.schedule.primitives.storage import check_scope
from loopwright.schedule.state import IllegalStep, StageId, StageState, State, initial_stage
from loopwright.schedule.steps import Step, TraceNames, register
from loopwright.te import OpNode


def fresh_axes(op: OpNode) -> tuple[IterVar, ...]:
    """New axes with the names and extents of an operation's own."""
    names = [a.name for a in op.axes] or [f"ax{d}" for d in range(len(op.shape))]
    return tuple(IterVar.named(n, e, "spatial") for n, e in zip(names, op.shape, strict=True))


@register("cache_read")
class CacheRead(Step):
    scope: Scope
    readers: tuple[StageId, ...]
    value_index: int = 0

    def apply(self, state: State, t: int) -> State:
        src, k = state.stage(self.stage), self.value_index
        check_scope(self.scope)
        if k not in range(src.op.num_outputs):
            raise IllegalStep(
                f"{state.label(src.id)!r} has {src.op.num_outputs} output(s), there is no output "
                f"{k}"
            )
        name = state.output_label(src.id, k)
        if not self.readers:
            raise IllegalStep(f"name at least one stage that reads {name!r}")
        for r in self.readers:
            reader = state.stage(r)
            if not any(x.source == src.id and x.value_index == k for x in reader.op.reads()):
                raise IllegalStep(
                    f"stage {state.label(r)!r} does not read {name!r}; its readers: "
                    f"{', '.join(state.label(c) for c in state.consumers(src.id, k)) or 'none'}"
                )
        new_id = f"s{t}"
        axes = fresh_axes(src.op)
        body = Read(src.id, tuple(a.var for a in axes), src.op.dtypes[k], k)
        copy_name = f"{src.op.output_name(k)}.{self.scope}"
        op = OpNode(copy_name, src.op.shape, body.dtype, axes, (), body)

        def redirected(r: Read) -> Read:
            cached = r.source == src.id and r.value_index == k
            return Read(new_id, r.indices, r.dtype) if cached else r

        readers = []
        for stage in (state.stages[r] for r in self.readers):
            assert stage.op.body is not None
            reading = replace(stage.op, body=map_nodes(stage.op.body, Read, redirected))
            readers.append(replace(stage, op=reading))
        cache = _cache(new_id, op, self.scope, "cache_read", t)
        return state.inserted(state.order.index(src.id) + 1, cache, changed=readers)

    def as_python(self, names: TraceNames) -> str:
        new, tensor = names.new_stage(), names.output(self.stage, self.value_index)
        readers = ", ".join(names.tensor(r) for r in self.readers)
        return f"{new} = s.cache_read({tensor}, {self.scope!r}, [{readers}])"


def _cache(new_id: str, op: OpNode, scope: Scope, who: str, t: int) -> StageState:
    stage = initial_stage(new_id, op, scope)
    return replace(stage, since=stage.after(who, t))


def untouched(state: State, sid: StageId, verb: str) -> StageState:
    """A stage with the loops and the buffer of its operation; ``verb`` comes before others."""
    stage = state.compute_stage(sid)
    name = state.label(sid)
    if stage.transformed or stage.layout is not None or stage.align:
        raise IllegalStep(
            f"the loops of {name!r} are already transformed (now {state.loop_list(stage)}); "
            f"call {verb} before split, reorder and annotations"
        )
    if any(state.uses(stage, x) for x in stage.leaves):
        raise IllegalStep(f"a stage is already computed inside {name!r}; call it before")
    return stage


def computing(stage: StageState, op: OpNode) -> StageState:
    """A stage in its place, with the loops of another operation, which it now computes."""
    return replace(
        initial_stage(stage.id, op, stage.scope),
        attach=stage.attach,
        group=stage.group,
        env_threads=stage.env_threads,
        since=stage.since,
    )


@register("cache_write")
class CacheWrite(Step):
    scope: Scope

    def apply(self, state: State, t: int) -> State:
        state.compute_stage(self.stage)
        check_scope(self.scope)
        stage = untouched(state, self.stage, "cache_write")
        new_id = f"s{t}"
        op = stage.op
        assert op.body is not None
        axes = fresh_axes(op)
        env: dict[Var, Expr] = {a.var: b.var for a, b in zip(op.axes, axes, strict=True)}
        body = substitute(op.body, env)
        cached = replace(op, name=f"{op.name}.{self.scope}", axes=axes, body=body, tag="")
        at = tuple(a.var for a in op.axes)
        values = tuple(Read(new_id, at, dtype, k) for k, dtype in enumerate(op.dtypes))
        copied = values[0] if len(values) == 1 else Tuple(values, op.dtype)
        copy = computing(stage, replace(op, reduce_axes=(), body=copied))
        cache = _cache(new_id, cached, self.scope, "cache_write", t)
        return state.inserted(state.order.index(stage.id), cache, changed=[copy])

    def as_python(self, names: TraceNames) -> str:
        new, tensor = names.new_stage(), names.tensor(self.stage)
        if names.before.stages[self.stage].op.num_outputs > 1:
            return f"{new}, *_ = s.cache_write({tensor}.op, {self.scope!r})"
        return f"{new} = s.cache_write({tensor}, {self.scope!r})"
