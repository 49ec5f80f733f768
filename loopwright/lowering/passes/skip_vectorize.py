"""SkipVectorize: the iterations of vectorized loops run one by one."""

from __future__ import annotations

from loopwright.ir.stmt import For, Func, IntrinsicCall, Stmt, Store
from loopwright.ir.visitor import map_statements
from loopwright.lowering.context import func_pass


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
    if isinstance(s, For) and s.kind == "vectorized":
        return s.of_kind("serial")
    return s
