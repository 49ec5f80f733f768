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
