"""The loops that launch a kernel; they stand around all of it, blocks outside threads."""

from __future__ import annotations

from typing import TypeGuard

from loopwright.ir.stmt import For, Stmt
from loopwright.schedule.bounds.results import Bounds, KernelLaunch, launch_tag
from loopwright.schedule.state import State


def launch(state: State, bounds: Bounds, kernel: KernelLaunch, body: Stmt) -> Stmt:
    """The launch loops of a kernel around its nest; each names the loops that are bound to it."""
    for axis in reversed(kernel.launches.values()):
        loops = [
            state.loop_label(sb.stage, x.loop.id)
            for sb in bounds.stages.values()
            if sb.kernel is kernel
            for x in sb.loops
            if launch_tag(x.mark) == axis.tag
        ]
        text = ", ".join(loops) or f"env_threads of {state.label(kernel.root)}"
        extent = bounds.sizes.dim(axis.extent)
        body = For(axis.var, extent, "thread", body, (("bound", text),), axis.tag)
    return body


def is_launch(s: object) -> TypeGuard[For]:
    """Whether a statement is a launch loop (not one of virtual threads)."""
    return isinstance(s, For) and s.kind == "thread" and s.tag != "vthread"
