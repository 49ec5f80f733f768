"""Kernels: root stages whose loops, or those of stages attached inside, run on GPU threads.

All stages of one kernel share its launch axes by tag: a loop bound to ``threadIdx.x`` takes the
launch variable of that axis. The first stage with the tag, the root first and then consumers before
producers, gives the axis its extent; a loop that is shorter keeps a variable of its own, and its
stage runs under ``threadIdx.x < n``. As in TVM, shared memory holds the data of all threads of the
block, local memory those of one thread, that of a warp those of the threads of threadIdx.x.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from loopwright.ir.affine import Affine, Extent
from loopwright.ir.expr import Var
from loopwright.ir.kinds import Scope
from loopwright.schedule.bounds.relations import loop_var
from loopwright.schedule.bounds.results import (
    KernelLaunch,
    LaunchAxis,
    LoopBound,
    StageBounds,
    launch_tag,
)
from loopwright.schedule.state import StageId, StageState, State, loops_around, refuse
from loopwright.te import OpNode

_OWN = ("local", "warp")  #: memory that no other thread, or no other warp, has
#: Launch axes from the outermost inwards.
LAUNCH_TAGS = tuple(f"{p}.{c}" for p in ("blockIdx", "threadIdx") for c in "zyx")


def find_kernels(state: State, ops: Mapping[StageId, OpNode]) -> dict[StageId, KernelLaunch]:
    members: dict[StageId, list[StageId]] = {}
    for sid in ops:
        root = sid
        while state.stages[root].attach.kind == "at":
            root = state.stages[root].attach.stage
        members.setdefault(root, []).append(sid)
    out: dict[StageId, KernelLaunch] = {}
    for root, group in members.items():
        tags = {launch_tag(m) for sid in group for m in state.stages[sid].marks.values()} - {""}
        declared = dict(state.stages[root].env_threads)
        tags |= set(declared)
        if not tags:
            continue
        launches = {t: LaunchAxis(t, Var(t)) for t in LAUNCH_TAGS if t in tags}
        for tag, extent in declared.items():
            launches[tag].extent, launches[tag].stage = extent or 0, root
        kernel = KernelLaunch(root, launches)
        kernel.varying.update({x.var: frozenset((x.tag,)) for x in kernel.threads()})
        out |= dict.fromkeys(group, kernel)
    return out


def memory_scope(state: State, stage: StageState, kernel: KernelLaunch | None) -> Scope:
    """Memory scope of a stage's buffer: inside a kernel ``global``, the default, means shared where
    only blocks are around it, and local inside a threadIdx or vthread loop."""
    if kernel is not None and stage.attach.kind != "at":
        return "global"  # the root: all blocks write its buffer
    if kernel is None or stage.scope != "global":
        return stage.scope
    hosts = [(state.stages[sid], p) for sid, p in loops_around(state, stage)]
    marks = [mark for host, p in hosts if (mark := host.marks.get(host.leaves[p]))]
    threads = any(m.kind == "thread" and not m.tag.startswith("blockIdx") for m in marks)
    return "local" if threads else "shared"


def bound_var(state: State, sb: StageBounds, lid: str, extent: Extent) -> Var:
    """The variable of a loop: that of its launch axis, or its own; its bounds are entered."""
    mark, kernel = sb.stage.marks.get(lid), sb.kernel
    tag = launch_tag(mark) if kernel is not None else ""
    if mark is not None and mark.kind == "thread" and not isinstance(extent, int):
        # The extent of a launch may depend on sizes, that of threads may not.
        declared = dict(sb.stage.env_threads).get(mark.tag)
        if not mark.tag.startswith("blockIdx") or sb.padded or declared:
            label = state.loop_label(sb.stage, lid)
            refuse(
                "bind",
                mark.step,
                f"loop {label!r} has an extent that depends on sizes, {mark.tag} needs a number; "
                "split it by a number and bind the inner part",
            )
    if kernel is None or not tag:
        var = loop_var(sb.stage.loops[lid].name, extent, sb.sizes)
        if kernel is not None and mark is not None and mark.kind == "thread":
            kernel.varying[var] = frozenset((mark.tag,))
        return var
    launch = kernel.launches[tag]
    if not launch.loop:
        launch.stage, launch.loop = sb.stage.id, lid
        launch.extent = launch.extent or extent
        sb.sizes.ranges.enter(launch.var, launch.extent)
    if extent == launch.extent:
        return launch.var
    var = loop_var(sb.stage.loops[lid].name, extent, sb.sizes)
    if launch.is_thread:
        kernel.varying[var] = frozenset((tag,))
    assert isinstance(extent, int)
    kernel.short[var] = (tag, extent)
    return var


def fixed_variables(sb: StageBounds) -> tuple[set[Var], dict[Var, Affine]]:
    """Variables that a region does not run over, and reader variables to rename before."""
    kernel = sb.kernel
    if kernel is None:
        return sb.visible(-1), {}
    reduced = frozenset(cross_tags(sb.stage))
    gone = frozenset((*kernel.launches, "vthread")) if sb.scope not in _OWN else reduced
    gone |= frozenset(("threadIdx.x",) if sb.scope == "warp" else ())
    gone = frozenset(t for t in gone if not t.startswith("blockIdx"))
    still = {v for v in sb.visible(-1) if not kernel.varying.get(v, frozenset()) & gone}
    still |= {x.var for x in kernel.launches.values() if x.tag not in gone}
    renamed = {
        v: Affine.of(kernel.launches[tag].var)
        for v, (tag, _) in kernel.short.items()
        if v not in sb.enclosing and not kernel.varying.get(v, frozenset()) & gone
    }
    return still, renamed


def cross_tags(stage: StageState) -> list[str]:
    """Thread axes that a stage's reduction loops are bound to, outermost first."""
    loops = [x for x in stage.leaves if stage.loops[x].kind == "reduce"]
    return [t for x in loops if (t := launch_tag(stage.marks.get(x)))]


def thread_limits(sb: StageBounds, around: Iterable[LoopBound]) -> list[tuple[Var, str, Extent]]:
    """``(threadIdx.x, kind, n)``: only threads below n run the stage (kind reduce: add to it).

    Axes that the stage does not use run it once where its buffer is shared, in every thread or warp
    where it is that of one. ``around`` goes from the innermost loop outwards.
    """
    kernel = sb.kernel
    if kernel is None:
        return []
    bound = {t: x for x in sb.loops if (t := launch_tag(x.mark))}
    limits: dict[str, tuple[Extent, str]] = {t: (x.extent, x.loop.kind) for t, x in bound.items()}
    if sb.scope in _OWN:
        shorter = _shorter_loops(kernel, around)
        # Its own loops are reductions, to which all of their threads add, whatever runs around.
        limits |= {t: (n, "spatial") for t, n in shorter.items() if t not in bound}
    else:
        rest = [x for t, x in kernel.launches.items() if t not in bound]
        limits |= {x.tag: (1, "spatial") for x in rest if x.is_thread or not sb.padded}
    return [
        (kernel.launches[t].var, "reduce" if kind == "reduce" else "thread", n)
        for t, (n, kind) in limits.items()
        if n != kernel.launches[t].extent
    ]


def _shorter_loops(kernel: KernelLaunch, around: Iterable[LoopBound]) -> dict[str, int]:
    """Shortest loop on each thread axis around a stage that does not fill it, up to a reduction,
    all threads of which need what is computed inside of it."""
    shortest: dict[str, int] = {}
    reduced = set[str]()
    for x in around:
        tag, n = kernel.short.get(x.var, ("", 0))
        if tag and tag not in reduced:
            shortest[tag] = min(n, shortest.get(tag, n))
        if x.loop.kind == "reduce":
            reduced.add(launch_tag(x.mark))
    return shortest
