"""Passes on the kinds of loops: VectorizeLoop, SkipVectorize, UnrollLoop."""

# Code generators make vector instructions of a vectorized loop. Buffers inside of it, of which each
# lane would need its own, get a dimension for the lanes. Where that is not possible (a vectorized
# loop inside another, a buffer of unknown or great size) its iterations run one by one.

from __future__ import annotations

from loopwright.ir.buffer import Buffer
from loopwright.ir.node import Node
from loopwright.ir.stmt import (
    UNROLL_HINT,
    Allocate,
    For,
    Func,
    IntrinsicCall,
    Stmt,
    Store,
    map_statements,
)
from loopwright.ir.visitor import map_nodes, nodes
from loopwright.lowering.context import PassContext, func_pass
from loopwright.lowering.nest.buffers import allocated
from loopwright.lowering.passes.storage_rewrite import redirected

#: Most bytes that the buffers allocated in a vectorized loop may take, for all lanes together.
PRIVATE_LIMIT = 1 << 16


@func_pass(opt_level=2, name="VectorizeLoop")
def vectorize_loop(f: Func) -> Func:
    """Give buffers that are allocated inside a vectorized loop a dimension for its lanes.

    Before::

        for i in vectorized(16):
          T = alloc(float32[4], local)
          for k in range(4):
            T[k] = A[k, i]
          B[i] = T[0] + T[3]

    After::

        T = alloc(float32[4, 16], local)
        for i in vectorized(16):
          for k in range(4):
            T[k, i] = A[k, i]
          B[i] = T[0, i] + T[3, i]
    """
    return f.with_body(_widened(f.body))


def _widened(s: Stmt) -> Stmt:
    if isinstance(s, Store):
        return s
    s = map_statements(s, _widened)
    return _with_shared_buffers(s) if isinstance(s, For) and s.kind == "vectorized" else s


def _with_shared_buffers(loop: For) -> Stmt:
    """A vectorized loop with one buffer for all lanes in place of each buffer allocated in it."""
    buffers = _buffers_for_all_lanes(loop)
    if buffers is None:
        return loop

    def change(n: Node) -> Node:
        n = redirected(n, buffers, lambda idx: (*idx, loop.var))
        match n:
            case Allocate(body=body):
                return body
            case For(kind="parallel"):
                return n.of_kind("serial")
        return n

    return allocated(buffers.values(), loop.with_body(map_nodes(loop.body, Node, change)))


def _buffers_for_all_lanes(loop: For) -> dict[Buffer, Buffer] | None:
    """Replacements of the buffers in a vectorized loop, with a dimension for its lanes; None where
    nothing needs to change, or where the loop must run one by one."""
    inner = [n for n in nodes(loop.body) if isinstance(n, For | Allocate)]
    kinds = {n.kind for n in inner if isinstance(n, For)}
    private = [n.buffer for n in inner if isinstance(n, Allocate)]
    if kinds & {"vectorized", "thread"} or not (private or "parallel" in kinds):
        return None
    if not all(b.strides is None and not b.symbolic for b in private):
        return None
    if sum(b.nbytes for b in private) * loop.count > PRIVATE_LIMIT:
        return None
    return {b: Buffer(b.name, (*b.shape, loop.extent), b.dtype, b.scope) for b in private}


@func_pass(opt_level=0, name="SkipVectorize")
def skip_vectorize(f: Func) -> Func:
    """Make vectorized loops serial, for ``PassContext(config={"disable_vectorize": True})``.

    Instructions, most of which work on vectors, are replaced by the loops that do the same.
    """
    return f.with_body(_serial(f.body))


def _serial(s: Stmt) -> Stmt:
    if isinstance(s, Store):
        return s
    s = map_statements(s, _serial)
    if isinstance(s, IntrinsicCall):
        return s.body
    return s.of_kind("serial") if isinstance(s, For) and s.kind == "vectorized" else s


@func_pass(opt_level=0, name="UnrollLoop")
def unroll_loop(f: Func) -> Func:
    """Mark serial loops below an ``auto_unroll_max_step`` pragma as unrolled, within its limit.

    With the pragma ``unroll_explicit`` False they stay serial and carry a hint, which code
    generators hand to their compilers. The cost of a loop, which the limit bounds, is the number of
    stores that it would be written out to; a vectorized loop counts once, as it becomes vector
    instructions. Inner loops are decided first. Outside all pragmas the limit is the context's
    ``unroll_max_step``.

    Example:
        >>> A = te.placeholder((64, 2), name="A")
        >>> B = te.compute((64, 2), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].pragma(B.op.axis[0], "auto_unroll_max_step", 4)
        >>> f = lw.lower(s, [A, B], simple_mode=True)
        >>> print(f)
        def main(A: float32[64, 2], B: out float32[64, 2]):
          # auto_unroll_max_step = 4
          for i in range(64):
            for j in range(2):
              B[i, j] = A[i, j] + 1.0
        >>> print(lw.transform.UnrollLoop(f))
        def main(A: float32[64, 2], B: out float32[64, 2]):
          # auto_unroll_max_step = 4
          for i in range(64):
            for j in unrolled(2):
              B[i, j] = A[i, j] + 1.0
    """
    return f.with_body(_unrolled(f.body, PassContext.current().count("unroll_max_step", 0), True))


def _unrolled(s: Stmt, limit: int, explicit: bool) -> Stmt:
    if isinstance(s, Store):
        return s
    if isinstance(s, For):
        pragmas = dict(s.pragmas)
        limit = int(pragmas.get("auto_unroll_max_step", limit) or 0)
        explicit = bool(pragmas.get("unroll_explicit", explicit))
    s = map_statements(s, lambda c: _unrolled(c, limit, explicit))
    if not isinstance(s, For) or s.kind != "serial":
        return s
    if not isinstance(s.extent, int) or s.extent <= 1 or _cost(s) > limit:
        return s
    if explicit:
        return s.of_kind("unrolled")
    return For(s.var, s.extent, "serial", s.body, (*s.pragmas, UNROLL_HINT), s.tag)


def _cost(s: Stmt) -> int:
    if isinstance(s, Store):
        return 1
    if isinstance(s, For):
        inner = _cost(s.body)
        if s.kind == "parallel" or not isinstance(s.extent, int):
            return 1 << 30
        return inner if s.kind == "vectorized" else inner * s.extent
    return sum(_cost(c) for c in s.children() if isinstance(c, Stmt))
