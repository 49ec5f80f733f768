"""The primitives about GPU threads."""

from __future__ import annotations

from dataclasses import replace

from loopwright.errors import did_you_mean
from loopwright.ir.kinds import SHARED
from loopwright.schedule.bounds.launches import cross_tags
from loopwright.schedule.bounds.results import (
    Bounds,
    KernelLaunch,
    LaunchAxis,
    LoopBound,
    StageBounds,
    launch_tag,
)
from loopwright.schedule.primitives.loops import put_mark, refuse_in_order
from loopwright.schedule.state import IllegalStep, LoopMark, State, loops_around, refuse
from loopwright.schedule.steps import (
    FieldType,
    Step,
    TraceNames,
    each,
    is_int,
    is_text,
    optional,
    pair,
    register,
)
from loopwright.te import THREAD_TAGS


@register("bind")
class Bind(Step):
    loop: str
    tag: str
    extent: int | None = None

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage)
        loop = state.leaf(stage, self.loop)
        name = state.loop_label(stage, loop.id)
        if self.tag not in THREAD_TAGS:
            raise IllegalStep(
                f"unknown thread axis {self.tag!r}{did_you_mean(self.tag, THREAD_TAGS)}; "
                f"use one of {', '.join(THREAD_TAGS)}"
            )
        if loop.kind == "reduce" and not self.tag.startswith("threadIdx"):
            why = (
                "blocks cannot add to one element" if self.tag != "vthread" else "it has one result"
            )
            raise IllegalStep(
                f"loop {name!r} is a reduction, {self.tag} cannot run it: {why}; bind it to "
                "threadIdx (the threads of a block reduce together), or use rfactor and bind the "
                "new loop"
            )
        if loop.kind == "reduce":
            refuse_in_order(stage, "bind")
        for other in stage.leaves:
            if other != loop.id and launch_tag(stage.marks.get(other)) == self.tag:
                raise IllegalStep(
                    f"{state.loop_label(stage, other)!r} is bound to {self.tag} already (step "
                    f"{stage.marks[other].step}), so {name!r} cannot be; fuse the two loops first, "
                    "or use another thread axis"
                )
        if self.extent is not None and self.extent < 1:
            raise IllegalStep(f"the extent of {self.tag} must be positive, got {self.extent}")
        return put_mark(state, stage, loop.id, LoopMark("thread", t, self.tag, self.extent))

    def arguments(self, names: TraceNames) -> str:
        return f"{names.loop(self.stage, self.loop)}, {_axis(self.tag, self.extent)}"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Check the loops of every kernel: extents of thread axes, and marks among threads."""
        for sb in bounds.stages.values():
            if sb.kernel is None:
                continue
            for x in sb.loops:
                if tag := launch_tag(x.mark):
                    _check_axis(state, sb, sb.kernel, x, tag)
                elif x.mark is not None and x.mark.kind == "parallel":
                    refuse(
                        "parallel",
                        x.mark.step,
                        f"loop {state.loop_label(sb.stage, x.loop.id)!r} runs inside a kernel "
                        f"({', '.join(sb.kernel.launches)}); bind it to a thread axis instead",
                    )
            _check_lanes(state, sb)
            _check_vectors(state, bounds, sb)


@register("set_store_predicate", equal=FieldType(each(pair(is_text, is_int))))
class SetStorePredicate(Step):
    equal: tuple[tuple[str, int], ...]

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage)
        name = state.label(stage.id)
        bound = cross_tags(stage)
        if not bound:
            raise IllegalStep(
                f"no reduction loop of {name!r} is bound to a thread axis, so every thread stores "
                "elements of its own; bind the reduction loop first"
            )
        for tag, value in self.equal:
            if tag not in bound:
                raise IllegalStep(
                    f"{tag} reduces nothing in {name!r} (its reduction loops are bound to "
                    f"{', '.join(bound)}), so a test of it would leave elements unset"
                )
            if value < 0:
                raise IllegalStep(f"{tag} is never {value}")
        since = stage.after("set_store_predicate", t)
        return state.with_stage(replace(stage, predicate=self.equal, since=since))

    def arguments(self, names: TraceNames) -> str:
        return repr(list(self.equal))

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        for sb in bounds.stages.values():
            crossed = cross_tags(sb.stage) if sb.kernel is not None else ()
            for tag, value in sb.stage.predicate or ():
                extent = sb.kernel.launches[tag].extent if sb.kernel and tag in crossed else None
                if isinstance(extent, int) and value >= extent:
                    refuse(
                        "set_store_predicate",
                        sb.stage.since["set_store_predicate"],
                        f"{tag} of {state.label(sb.stage.id)!r} is never {value}: it runs to "
                        f"{extent - 1}",
                    )


@register("env_threads", axes=FieldType(each(pair(is_text, optional(is_int)))))
class EnvThreads(Step):
    axes: tuple[tuple[str, int | None], ...]

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage)
        name = state.label(stage.id)
        if stage.attach.kind != "root":
            raise IllegalStep(
                f"{name!r} is computed {stage.attach.kind}; give the axes to the root stage around "
                "it"
            )
        if stage.env_threads:
            raise IllegalStep(f"{name!r} has thread axes already; give all of them in one call")
        tags = [tag for tag, _ in self.axes]
        launch = [x for x in THREAD_TAGS if x != "vthread"]
        for tag, extent in self.axes:
            if tag not in launch:
                near = "" if tag in THREAD_TAGS else did_you_mean(tag, launch)
                raise IllegalStep(
                    f"{tag!r} is no axis of a launch{near}; use one of {', '.join(launch)}"
                )
            if extent is not None and extent < 1:
                raise IllegalStep(f"the extent of {tag} must be positive, got {extent}")
            if tags.count(tag) > 1:
                raise IllegalStep(f"{tag} is given twice")
        since = stage.after("env_threads", t)
        return state.with_stage(replace(stage, env_threads=self.axes, since=since))

    def arguments(self, names: TraceNames) -> str:
        return f"[{', '.join(_axis(*a) for a in self.axes)}]"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        kernels = [(sid, k) for sid, k in bounds.kernels.items() if sid == k.root]
        for sid, launch in ((sid, x) for sid, k in kernels for x in k.launches.values()):
            if not launch.extent:
                refuse(
                    "env_threads",
                    state.stages[sid].since["env_threads"],
                    f"{launch.tag} of {state.label(sid)!r} has no extent; give it as "
                    f"te.thread_axis((0, n), {launch.tag!r}) or bind a loop to it",
                )


def _axis(tag: str, extent: int | None) -> str:
    return repr(tag) if extent is None else f"({tag!r}, {extent})"


# ---------------------------------------------------------------- rules that need extents


def _check_axis(
    state: State, sb: StageBounds, kernel: KernelLaunch, x: LoopBound, tag: str
) -> None:
    assert x.mark is not None
    name, launch = repr(state.loop_label(sb.stage, x.loop.id)), kernel.launches[tag]
    stage, mark = repr(state.label(sb.stage.id)), x.mark
    why = ""
    if tag.startswith("blockIdx") and sb.padded:
        root = state.label(kernel.root)
        why = (
            f"{name} cannot be bound to {tag}: {stage} is computed inside the kernel of {root!r}, "
            f"for one block at a time; bind a loop of {root!r}"
        )
    elif sb.padded and sb.scope == "local" and x.loop.kind == "spatial":
        why = (
            f"{name} cannot be bound to {tag}: the buffer of {stage} is local, each thread fills "
            'its own; bind loops of the stage that reads it, or cache it in "shared"'
        )
    elif sb.padded and sb.scope == "warp" and tag != "threadIdx.x":
        why = (
            f"{name} cannot be bound to {tag}: the buffer of {stage} is that of one warp, whose "
            "lanes are the threads of threadIdx.x; bind loops of the stage that reads it"
        )
    elif mark.extent is not None and mark.extent != launch.extent:
        why = (
            f"the thread axis was declared with extent {mark.extent}, but "
            f"{_origin(state, launch)} makes {tag} {launch.extent} long; split {name} to that "
            "extent, or declare the axis without one"
        )
    elif isinstance(x.extent, int) and isinstance(launch.extent, int) and x.extent > launch.extent:
        why = (
            f"loop {name} has {x.extent} iterations, but {_origin(state, launch)} launches only "
            f"{launch.extent} of {tag}; split {name} by {launch.extent} and bind the inner part"
        )
    if why:
        refuse("bind", mark.step, why)


def _origin(state: State, launch: LaunchAxis) -> str:
    """Loop that gave an axis its extent, or the step that declared it."""
    if dict(state.stages[launch.stage].env_threads).get(launch.tag):
        return f"env_threads of {state.label(launch.stage)!r}"
    return f"loop {state.loop_label(state.stages[launch.stage], launch.loop)!r}"


def _check_vectors(state: State, bounds: Bounds, sb: StageBounds) -> None:
    """Refuse vector loops where threads meet: around shared stages, cross-thread reductions."""
    shared, crossed = sb.padded and sb.scope in SHARED, bool(cross_tags(sb.stage))
    if not shared and not crossed:
        return
    loops = [(sb, x) for x in sb.loops if crossed and x.loop.kind == "spatial"]
    around = loops_around(state, sb.stage)
    loops += [(bounds.stages[i], bounds.stages[i].loops[p]) for i, p in around]
    for host, x in loops:
        if x.mark is None or x.mark.kind != "vectorized":
            continue
        why = "reduces across threads" if crossed else "fills shared memory"
        name = state.loop_label(host.stage, x.loop.id)
        refuse(
            "vectorize",
            x.mark.step,
            f"the threads of a block must meet in loop {name!r}, "
            f"where {state.label(sb.stage.id)!r} {why}; vectorize another loop",
        )


def _check_lanes(state: State, sb: StageBounds) -> None:
    """Refuse lanes of a vector and threads that both keep accumulators of one reduction."""
    marks = [(x, x.mark) for x in sb.loops if x.loop.kind == "reduce" and x.mark is not None]
    bound = [(x, tag) for x, mark in marks if (tag := launch_tag(mark))]
    for x, mark in marks if bound else ():
        if mark.kind == "vectorized":
            (other, tag), *_ = bound
            refuse(
                "vectorize",
                mark.step,
                f"loop {state.loop_label(sb.stage, x.loop.id)!r} is a reduction whose loop "
                f"{state.loop_label(sb.stage, other.loop.id)!r} is bound to {tag}; unroll it "
                "instead, or bind it as well",
            )
