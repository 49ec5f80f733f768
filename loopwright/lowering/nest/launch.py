"""Kernels in the loop IR: the loops that launch them, and the shared buffers of a block.

The loops of a launch stand around the whole kernel, blocks outside threads. A pass moves the
buffers in shared memory between the two: one for each block, whatever loop its stage stands in.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from loopwright.ir.buffer import Buffer
from loopwright.ir.stmt import Allocate, For, Func, Stmt
from loopwright.lowering.context import func_pass
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


def is_launch(s: Any) -> TypeGuard[For]:
    """Whether a statement is a launch loop (not one of virtual threads)."""
    return isinstance(s, For) and s.kind == "thread" and s.tag != "vthread"


@func_pass(opt_level=0, name="PlaceSharedMemory")
def place_shared(f: Func) -> Func:
    """Move buffers in shared memory out of the threads of their kernel, into the block."""
    return f.with_body(_place(f.body))


def _place(s: Any) -> Any:
    if not isinstance(s, Stmt):
        return s
    if not is_launch(s):
        return s.map_children(_place)
    found: list[Buffer] = []
    return _around_threads(_taken(s, found), found)


def _taken(s: Any, found: list[Buffer]) -> Any:
    """A statement without the allocations of shared buffers, which are added to ``found``."""
    if not isinstance(s, Stmt):
        return s
    if isinstance(s, Allocate) and s.buffer.scope == "shared":
        if s.buffer not in found:  # what a double buffer repeats may allocate it twice
            found.append(s.buffer)
        return _taken(s.body, found)
    return s.map_children(lambda c: _taken(c, found))


def _around_threads(s: Any, buffers: list[Buffer]) -> Any:
    if not isinstance(s, Stmt):
        return s
    if is_launch(s) and s.tag.startswith("blockIdx"):
        return s.map_children(lambda c: _around_threads(c, buffers))
    for b in reversed(buffers):
        s = Allocate(b, s)
    return s
