"""SkipVectorize: the iterations of vectorized loops run one by one."""

from __future__ import annotations

from loopwright.ir.stmt import For, Func, IntrinsicCall, Stmt, Store
from loopwright.ir.visitor import map_statements
from loopwright.lowering.context import func_pass


@func_pass(opt_level=0, name="SkipVectorize")
def skip_vectorize(f: Func) -> Func:
    """Make vectorized loops serial, for ``PassContext(config={"disable_vectorize": True})``.

    Instructions, most of which work on vectors, are replaced by the loops that do the same.

    Example:
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> io, ii = s[B].split(B.op.axis[0], factor=4)
        >>> s[B].vectorize(ii)
        >>> with lw.PassContext(opt_level=0):
        ...     f = lw.lower(s, [A, B])
        ...
        >>> print(f)
        def main(A: float32[64], B: out float32[64]):
          for i.0 in range(16):
            for i.1 in vectorized(4):
              B[i.0 * 4 + i.1] = A[i.0 * 4 + i.1] + 1.0
        >>> print(lw.transform.SkipVectorize(f))
        def main(A: float32[64], B: out float32[64]):
          for i.0 in range(16):
            for i.1 in range(4):
              B[i.0 * 4 + i.1] = A[i.0 * 4 + i.1] + 1.0
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
