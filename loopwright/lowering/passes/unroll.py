"""Turn ``auto_unroll_max_step`` pragmas into unrolled loops."""

from __future__ import annotations

from typing import Any

from loopwright.ir.stmt import UNROLL_HINT, For, Func, Seq, Stmt, Store
from loopwright.lowering.context import PassContext, func_pass


@func_pass(opt_level=0, name="UnrollLoop")
def unroll_loop(f: Func) -> Func:
    """Mark serial loops below a pragma as unrolled while their copies fit its limit.

    With ``unroll_explicit`` False they stay serial and carry a hint, which code generators hand to
    their compilers. A loop's cost is its extent times the stores in it (a vectorized loop counts
    once, as it becomes vector instructions). Loops are taken from the inside out. Outside all
    pragmas the limit is that of the context's ``unroll_max_step``.
    """
    limit = PassContext.current().config.get("unroll_max_step", 0)
    return f.with_body(_go(f.body, limit, True))


def _go(s: Any, limit: int, explicit: bool) -> Any:
    if not isinstance(s, Stmt) or isinstance(s, Store):
        return s
    if not isinstance(s, For):
        return s.map_children(lambda c: _go(c, limit, explicit))
    own = dict(s.pragmas)
    limit = int(own.get("auto_unroll_max_step", limit))
    explicit = bool(own.get("unroll_explicit", explicit))
    made = s.map_children(lambda c: _go(c, limit, explicit))
    known = isinstance(made.extent, int) and made.extent > 1
    if made.kind == "serial" and known and _cost(made) <= limit:
        if not explicit:
            hinted = (*made.pragmas, UNROLL_HINT)
            return For(made.var, made.extent, "serial", made.body, hinted, made.tag)
        return For(made.var, made.extent, "unrolled", made.body, made.pragmas, made.tag)
    return made


def _cost(s: Any) -> int:
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
