"""StorageRewrite: large buffers that are never in use at the same time share memory."""

# The statements of a level (the body of a function or of a loop) run in a line; a buffer is in use
# from the first to the last that touches it. Offsets are given by size, largest first: each the
# lowest at which no other in use overlaps (greedy by size: Pisarchyk & Lee, Efficient Memory
# Management for Deep Neural Net Inference, 2020).

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from loopwright.errors import LowerError
from loopwright.ir.buffer import STACK_LIMIT, Buffer, Load
from loopwright.ir.expr import Expr
from loopwright.ir.kinds import Scope
from loopwright.ir.node import Node
from loopwright.ir.stmt import (
    Allocate,
    CallPacked,
    Func,
    Prefetch,
    Seq,
    Stmt,
    Store,
    View,
    buffers_of,
    is_launch,
    map_statements,
    seq,
)
from loopwright.lowering.context import func_pass
from loopwright.lowering.nest.buffers import allocated

_ALIGN = 64


@func_pass(opt_level=2, name="StorageRewrite")
def storage_rewrite(f: Func) -> Func:
    """Put buffers that are in use one after the other into the same memory.

    Only buffers of more than `STACK_LIMIT` bytes, and only where it saves memory.

    Before, ``B = A + 1``, ``C = B * 2``, ``D = C - 3`` and ``E = D * D`` have three buffers of
    float32[4096] in global memory; after, D takes the place of B::

        pool = alloc(uint8[32768], global)
        B = view(pool, 0, float32[4096])
        C = view(pool, 16384, float32[4096])
        D = view(pool, 0, float32[4096])
    """
    return f.with_body(_level(f.body, "global"))


@dataclass(slots=True)
class PooledBuffer:
    buffer: Buffer
    first: int  #: number of the first statement that touches it
    last: int  #: number of the last statement that touches it
    size: int  #: bytes, rounded up
    offset: int = 0  #: the byte where it begins


def _level(s: Stmt, scope: Scope) -> Stmt:
    """One level of the program and those below it; common memory lies in ``scope``."""
    if is_launch(s):
        scope = "local"  # a thread has no global memory of its own
    if not isinstance(s, Allocate | Seq):
        return map_statements(s, lambda c: _level(c, scope))
    line: list[Stmt] = []
    buffers: list[Buffer] = []
    _flatten(s, line, buffers)
    large = [b for b in buffers if _is_large(b)]
    if len(large) > 1:
        pooled = _pooled(large, line)
        total = assign_offsets(pooled)
        if total < _stacked(s):
            pool = Buffer("pool", (total,), "uint8", scope)
            return _rewritten([_level(x, scope) for x in line], pooled, pool, buffers)
    return map_statements(s, lambda c: _level(c, scope))


def _is_large(b: Buffer) -> bool:
    return b.scope in ("global", "local") and not b.symbolic and b.nbytes > STACK_LIMIT


def _flatten(s: Stmt, line: list[Stmt], buffers: list[Buffer]) -> None:
    if isinstance(s, Allocate):
        buffers.append(s.buffer)
        _flatten(s.body, line, buffers)
    elif isinstance(s, Seq):
        for x in s.stmts:
            _flatten(x, line, buffers)
    else:
        line.append(s)


def _stacked(s: Stmt) -> int:
    """Bytes that the level takes as it is: scopes nest, and follow one another."""
    if isinstance(s, Allocate):
        return (_rounded(s.buffer.nbytes) if _is_large(s.buffer) else 0) + _stacked(s.body)
    return max(map(_stacked, s.stmts), default=0) if isinstance(s, Seq) else 0


def _rounded(n: int) -> int:
    return -(-n // _ALIGN) * _ALIGN


def _pooled(large: list[Buffer], line: list[Stmt]) -> list[PooledBuffer]:
    """The buffers with the statements that first and last touch each; without untouched ones."""
    pooled: dict[Buffer, PooledBuffer] = {}
    for k, s in enumerate(line):
        for b in set(buffers_of(s)).intersection(large):
            pooled.setdefault(b, PooledBuffer(b, k, k, _rounded(b.nbytes))).last = k
    return [pooled[b] for b in large if b in pooled]


def assign_offsets(pooled: list[PooledBuffer]) -> int:
    """Give every buffer its offset; returns the bytes that all of them take."""
    placed: list[PooledBuffer] = []
    for p in sorted(pooled, key=lambda p: -p.size):
        in_use = [q for q in placed if q.first <= p.last and p.first <= q.last]
        for q in sorted(in_use, key=lambda q: q.offset):
            if p.offset + p.size <= q.offset:
                break
            p.offset = max(p.offset, q.offset + q.size)
        placed.append(p)
    return max((p.offset + p.size for p in pooled), default=0)


def _rewritten(
    line: list[Stmt], pooled: list[PooledBuffer], pool: Buffer, buffers: list[Buffer]
) -> Stmt:
    out: Stmt = Seq(())
    for k in range(len(line) - 1, -1, -1):
        out = seq(line[k], out) if out != Seq(()) else line[k]
        for p in (p for p in pooled if p.first == k):
            out = View(p.buffer, pool, p.offset, out)
    in_pool = {p.buffer for p in pooled}
    return allocated([pool, *(b for b in buffers if b not in in_pool)], out)


Indices = tuple[Expr, ...]


def redirected(n: Node, new: Mapping[Buffer, Buffer], at: Callable[[Indices], Indices]) -> Node:
    """A node, its children redirected already, with accesses of buffers in ``new`` redirected to
    ``at(indices)``. A packed function cannot be given a buffer that is replaced."""
    match n:
        case Load(buffer=b, indices=idx, dtype=d) if b in new:
            return Load(new[b], at(idx), d)
        case Store(buffer=b, indices=idx, value=v, nontemporal=past) if b in new:
            return Store(new[b], at(idx), v, past)
        case Prefetch(buffer=b, indices=idx) if b in new:
            return Prefetch(new[b], at(idx))
        case CallPacked(name=name, buffers=buffers) if not new.keys().isdisjoint(buffers):
            moved = next(b for b in buffers if b in new)
            raise LowerError(
                f"call_packed {name!r} is given {moved.name!r}, of which every lane or virtual "
                "thread has its own; allocate it outside of that loop"
            )
    return n


# ---------------------------------------------------------------- PlaceSharedMemory
#
# Moves the allocations of shared buffers, which the nest puts where stages are computed, between
# the loops over blocks and those over threads: one for each block.


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
    if isinstance(s, Allocate) and s.buffer.is_shared:
        if s.buffer not in shared:  # what a double buffer repeats may allocate it twice
            shared.append(s.buffer)
        return _without_allocations(s.body, shared)
    return map_statements(s, lambda c: _without_allocations(c, shared))


def _around_threads(s: Stmt, buffers: list[Buffer]) -> Stmt:
    if is_launch(s) and s.tag.startswith("blockIdx"):
        return map_statements(s, lambda c: _around_threads(c, buffers))
    return allocated(buffers, s)
