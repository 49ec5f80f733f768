"""InstrumentBoundCheckers: every access of compiled code checks its indices first."""

from __future__ import annotations

from functools import reduce as fold

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, IfThenElse, Var, as_expr, binary, cast
from loopwright.ir.node import Node
from loopwright.ir.stmt import (
    Check,
    For,
    Func,
    If,
    IntrinsicCall,
    Let,
    Seq,
    Stmt,
    Store,
    map_statements,
    seq,
)
from loopwright.lowering.context import func_pass


@func_pass(opt_level=0, name="InstrumentBoundCheckers")
def instrument_bound_checkers(f: Func) -> Func:
    """Put a check before every statement for each access in it, under the guards around the access.

    Accesses that are proved to lie inside are checked, too. Vectorized loops run one by one, so
    that an error can name the iteration
    (``PassContext(config={"instrument_bound_checkers": True})``). The checks of ``B[i] = A[P[i]]``
    are those of ``P[i]``, then of ``A[P[i]]``, then of ``B[i]``.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> f = lw.lower(te.create_schedule(B.op), [A, B])
        >>> print(lw.transform.InstrumentBoundCheckers(f))
        def main(A: float32[4], B: out float32[4]):
          for i in range(4):
            check int64(i) >= int64(0) and int64(i) < int64(4)
            check int64(i) >= int64(0) and int64(i) < int64(4)
            B[i] = A[i] + 1.0
    """
    return f.with_body(_stmt(f.body, ()))


def _stmt(s: Stmt, loops: tuple[Var, ...]) -> Stmt:
    match s:
        case For():
            loop = s.of_kind("serial") if s.kind == "vectorized" else s
            return loop.with_body(_stmt(s.body, (*loops, s.var)))
        case Let(var=v, value=e, body=body):
            return seq(*_checks(e, loops), Let(v, e, _stmt(body, loops)))
        case If(cond=c, then=then, orelse=other):
            orelse = None if other is None else _stmt(other, loops)
            return seq(*_checks(c, loops), If(c, _stmt(then, loops), orelse))
        case Store(buffer=b, indices=indices, value=e):
            before = [c for x in (e, *indices) for c in _checks(x, loops)]
            return seq(*before, _check("store", b, indices, loops), s)
        case IntrinsicCall(body=body):  # its loops access the same elements
            return _stmt(body, loops)
    return map_statements(s, lambda c: _stmt(c, loops))


def _checks(e: Node, loops: tuple[Var, ...]) -> list[Stmt]:
    """Checks of the loads of an expression, in the order of evaluation."""
    if isinstance(e, IfThenElse):
        a, b = _checks(e.a, loops), _checks(e.b, loops)
        guarded = [If(e.cond, Seq(tuple(a)), Seq(tuple(b)) if b else None)] if a or b else []
        return [*_checks(e.cond, loops), *guarded]
    inner = [c for x in e.children() for c in _checks(x, loops)]
    if not isinstance(e, Load):
        return inner
    return [*inner, _check("load", e.buffer, e.indices, loops)]


def _check(what: str, b: Buffer, indices: tuple[Expr, ...], loops: tuple[Var, ...]) -> Stmt:
    sizes: list[Expr] = [cast(as_expr(n), "int64") for n in b.shape]
    at = [cast(i, "int64") for i in indices]
    inside = [
        binary("and", binary(">=", i, 0), binary("<", i, n)) for i, n in zip(at, sizes, strict=True)
    ]
    holds = fold(lambda x, y: binary("and", x, y), inside) if inside else as_expr(True)
    values = [*at, *sizes, *loops]
    slots = iter(range(len(values)))
    index = ", ".join(f"{{{next(slots)}}}" for _ in at)
    shape = ", ".join(f"{{{next(slots)}}}" for _ in sizes)
    where = ", ".join(f"{_plain(v.name)} = {{{next(slots)}}}" for v in loops)
    place = f" at {where}" if where else ""
    text = f"access outside {_plain(b.name)}: index [{index}], shape [{shape}] ({what}{place})"
    return Check(holds, text, tuple(values))


def _plain(name: str) -> str:
    return name.replace("{", "{{").replace("}", "}}")
