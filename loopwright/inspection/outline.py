"""Outline of a loop nest: the loops around each statement, a line for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loopwright.ir import Func
from loopwright.ir.stmt import For, If, Seq, Stmt, Store

#: Characters of a condition that are shown.
_CONDITION = 60


def outline(func: Func) -> str:
    """Loops of a function with their extents and marks, and the tensors that they write.

    Loops that stand directly within each other share a line. Indices and arithmetic are left out,
    and so are guards that stand in front of the same loops in any case.

    Args:
        func: a lowered function.

    Returns:
        Lines of text, indented by nesting.

    Example:
        >>> A = te.placeholder((64, 32), name="A")
        >>> B = te.compute((64, 32), lambda i, j: A[i, j] * 2, name="B")
        >>> s = te.create_schedule(B.op)
        >>> outer, inner = s[B].split(B.op.axis[1], factor=8)
        >>> s[B].vectorize(inner)
        >>> print(lw.inspection.outline(lw.lower(s, [A, B])))
        B: i 64, j.0 4, j.1 8 vectorized
    """
    return "\n".join(_lines(func.body, []))


def _lines(stmt: Stmt, loops: Sequence[str]) -> Iterator[str]:
    """Lines of a statement inside of loops that have no line yet."""
    match stmt:
        case For():
            yield from _lines(stmt.body, [*loops, _loop(stmt)])
        case Seq():
            yield from _under(", ".join(loops), stmt.stmts)
        case If(orelse=None):
            yield from _lines(stmt.then, loops)
        case If() if _alike(stmt):
            yield from _lines(stmt.then, loops)
        case If():
            condition = str(stmt.cond)
            shown = condition if len(condition) <= _CONDITION else f"{condition[:_CONDITION]}..."
            yield from _under(", ".join([*loops, f"if {shown}"]), [stmt.then])
            assert stmt.orelse is not None
            yield from _under("else", [stmt.orelse])
        case Store():
            yield f"{stmt.buffer.name}: {', '.join(loops)}" if loops else stmt.buffer.name
        case _:
            body = getattr(stmt, "body", None)
            if isinstance(body, Stmt):
                yield from _lines(body, loops)
            else:
                name = type(stmt).__name__
                yield f"{name}: {', '.join(loops)}" if loops else name


def _alike(branches: If) -> bool:
    """Whether both branches have the same loops, as those of whole tiles and of edges have."""
    assert branches.orelse is not None
    return [*_lines(branches.then, [])] == [*_lines(branches.orelse, [])]


def _under(head: str, parts: Sequence[Stmt]) -> Iterator[str]:
    """Lines of consecutive statements, below those of the loops around them."""
    if head:
        yield head
    indent = "  " if head else ""
    yield from (f"{indent}{line}" for part in parts for line in _lines(part, []))


def _loop(loop: For) -> str:
    text = f"{loop.var.name} {loop.extent}"
    mark = "" if loop.kind == "serial" else loop.tag or loop.kind
    return text if mark in ("", loop.var.name) else f"{text} {mark}"
