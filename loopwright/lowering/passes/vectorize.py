"""VectorizeLoop: what stands inside a vectorized loop is made fit for vector code.

Code generators turn a vectorized loop into vector instructions: conditions that differ by lane
become masks, serial loops inside run for all lanes at once. A buffer that is made inside the loop
would be one a lane, and here becomes one buffer with a lane dimension. Where that is not possible
(a vectorized loop inside another, a buffer of unknown or great size) the loop runs one by one.
"""

from __future__ import annotations

from typing import Any

from loopwright.ir.buffer import Buffer
from loopwright.ir.stmt import Allocate, For, Func, IntrinsicCall, Stmt, Store
from loopwright.ir.traversal import walk
from loopwright.lowering.context import func_pass
from loopwright.lowering.passes.redirect import redirected

#: Most bytes that the private buffers of a vectorized loop may take, all lanes together.
PRIVATE_LIMIT = 1 << 16


@func_pass(opt_level=2, name="VectorizeLoop")
def vectorize_loop(f: Func) -> Func:
    """Give buffers that are made inside a vectorized loop a dimension for its lanes.

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
    return f.with_body(_go(f.body))


@func_pass(opt_level=0, name="SkipVectorize")
def skip_vectorize(f: Func) -> Func:
    """Run vectorized loops one by one, for ``disable_vectorize``."""

    def go(s: Any) -> Any:
        if not isinstance(s, Stmt) or isinstance(s, Store):
            return s
        made = s.map_children(go)
        if isinstance(made, IntrinsicCall):
            return made.body
        if isinstance(made, For) and made.kind == "vectorized":
            return _of_kind(made, "serial")
        return made

    return f.with_body(go(f.body))


def _go(s: Any) -> Any:
    if not isinstance(s, Stmt) or isinstance(s, Store):
        return s
    made = s.map_children(_go)
    return _private(made) if isinstance(made, For) and made.kind == "vectorized" else made


def _of_kind(s: For, kind: str) -> For:
    return For(s.var, s.extent, kind, s.body, s.pragmas, s.tag)


def _private(s: For) -> Stmt:
    """One vectorized loop, with its buffers outside it."""
    loops: list[For] = []
    own: list[Buffer] = []

    def visit(n: Any) -> None:
        if isinstance(n, For):
            loops.append(n)
        elif isinstance(n, Allocate):
            own.append(n.buffer)

    walk(s.body, visit)
    kinds = {x.kind for x in loops}
    if kinds & {"vectorized", "thread"} or not (own or "parallel" in kinds):
        return s
    if not all(b.strides is None and not b.symbolic for b in own):
        return s
    if sum(b.nbytes for b in own) * s.extent > PRIVATE_LIMIT:
        return s
    wide = {b: Buffer(b.name, (*b.shape, s.extent), b.dtype, b.scope) for b in own}

    def go(n: Any) -> Any:
        made = redirected(n.map_children(go), wide, lambda idx: (*idx, s.var))
        match made:
            case Allocate(body=body):
                return body
            case For(kind="parallel"):
                return _of_kind(made, "serial")
        return made

    out: Stmt = s.map_children(lambda c: go(c) if c is s.body else c)
    for b in reversed(wide.values()):
        out = Allocate(b, out)
    return out
