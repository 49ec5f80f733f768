"""PlaceSharedMemory: moves the allocations of shared buffers, which the nest puts where stages are
computed, between the loops over blocks and those over threads: one for each block."""

from __future__ import annotations

from loopwright.ir.buffer import Buffer
from loopwright.ir.stmt import Allocate, Func, Stmt
from loopwright.ir.visitor import map_statements
from loopwright.lowering.context import func_pass
from loopwright.lowering.nest.launch import is_launch


@func_pass(opt_level=0, name="PlaceSharedMemory")
def place_shared(f: Func) -> Func:
    """Move buffers in shared memory out of the threads of their kernel, into the block."""
    return f.with_body(_in_statement(f.body))


def _in_statement(s: Stmt) -> Stmt:
    if not is_launch(s):
        return map_statements(s, _in_statement)
    shared: list[Buffer] = []
    return _around_threads(_without_allocations(s, shared), shared)


def _without_allocations(s: Stmt, shared: list[Buffer]) -> Stmt:
    """A statement without the allocations of shared buffers, which are added to ``shared``."""
    if isinstance(s, Allocate) and s.buffer.is_shared:
        if s.buffer not in shared:  # what a double buffer repeats may allocate it twice
            shared.append(s.buffer)
        return _without_allocations(s.body, shared)
    return map_statements(s, lambda c: _without_allocations(c, shared))


def _around_threads(s: Stmt, buffers: list[Buffer]) -> Stmt:
    """A kernel with allocations inside its loops over blocks."""
    if is_launch(s) and s.tag.startswith("blockIdx"):
        return map_statements(s, lambda c: _around_threads(c, buffers))
    for b in reversed(buffers):
        s = Allocate(b, s)
    return s
