"""VectorizeLoop: buffers inside vectorized loops, of which each lane would need its own, get a
dimension for the lanes; code generators make vector instructions of the loop. Where that is not
possible (a vectorized loop inside another, a buffer of unknown or great size) its iterations run
one by one."""

from __future__ import annotations

from typing import Any

from loopwright.ir.buffer import Buffer
from loopwright.ir.kinds import LoopKind
from loopwright.ir.node import Node
from loopwright.ir.stmt import Allocate, For, Func, Stmt, Store
from loopwright.ir.traversal import walk
from loopwright.ir.visitor import map_statements
from loopwright.lowering.context import func_pass
from loopwright.lowering.passes.redirect import redirected

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

    Example:
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> io, ii = s[B].split(B.op.axis[0], factor=4)
        >>> s[B].vectorize(ii)
        >>> f = lw.lower(s, [A, B])
        >>> print(lw.transform.VectorizeLoop(f))
        def main(A: float32[64], B: out float32[64]):
          for i.0 in range(16):
            for i.1 in vectorized(4):
              B[i.0 * 4 + i.1] = A[i.0 * 4 + i.1] + 1.0
    """
    return f.with_body(_go(f.body))


def _go(s: Stmt) -> Stmt:
    if isinstance(s, Store):
        return s
    s = map_statements(s, _go)
    return _with_shared_buffers(s) if isinstance(s, For) and s.kind == "vectorized" else s


def _with_shared_buffers(loop: For) -> Stmt:
    """A vectorized loop with one buffer for all lanes in place of each buffer allocated in it."""
    buffers = _buffers_for_all_lanes(loop)
    if buffers is None:
        return loop

    # Any: an expression gives an expression and a statement a statement.
    def rewrite(n: Any) -> Any:
        n = redirected(n.map_children(rewrite), buffers, lambda idx: (*idx, loop.var))
        match n:
            case Allocate(body=body):
                return body
            case For(kind="parallel"):
                return n.of_kind("serial")
        return n

    out: Stmt = loop.with_body(rewrite(loop.body))
    for b in reversed(buffers.values()):
        out = Allocate(b, out)
    return out


def _buffers_for_all_lanes(loop: For) -> dict[Buffer, Buffer] | None:
    """Replacements of the buffers in a vectorized loop, with a dimension for its lanes; None where
    nothing needs to change, or where the loop must run one by one."""
    kinds: set[LoopKind] = set()
    private: list[Buffer] = []

    def visit(n: Node) -> None:
        if isinstance(n, For):
            kinds.add(n.kind)
        elif isinstance(n, Allocate):
            private.append(n.buffer)

    walk(loop.body, visit)
    if kinds & {"vectorized", "thread"} or not (private or "parallel" in kinds):
        return None
    if not all(b.strides is None and not b.symbolic for b in private):
        return None
    if sum(b.nbytes for b in private) * loop.count > PRIVATE_LIMIT:
        return None
    return {b: Buffer(b.name, (*b.shape, loop.extent), b.dtype, b.scope) for b in private}
