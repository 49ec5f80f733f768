"""UnrollLoop: serial loops become unrolled ones where a pragma or the context allows it."""

from __future__ import annotations

from loopwright.ir.stmt import UNROLL_HINT, For, Func, Seq, Stmt, Store
from loopwright.ir.visitor import map_statements
from loopwright.lowering.context import PassContext, func_pass


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
        >>> with lw.PassContext(disabled_pass=["UnrollLoop"]):
        ...     f = lw.lower(s, [A, B])
        ...
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
    return f.with_body(_go(f.body, PassContext.current().count("unroll_max_step", 0), True))


def _go(s: Stmt, limit: int, explicit: bool) -> Stmt:
    if isinstance(s, Store):
        return s
    if isinstance(s, For):
        pragmas = dict(s.pragmas)
        limit = int(pragmas.get("auto_unroll_max_step", limit) or 0)
        explicit = bool(pragmas.get("unroll_explicit", explicit))
    s = map_statements(s, lambda c: _go(c, limit, explicit))
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
    if isinstance(s, Seq):
        return sum(_cost(c) for c in s.stmts)
    return sum(_cost(c) for c in s.children() if isinstance(c, Stmt))
