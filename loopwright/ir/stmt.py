"""Statements and functions of the loop IR.

Loops start at 0. ``vectorized`` and ``unrolled`` stay kinds of a loop until code generation.
"""

from __future__ import annotations

from typing import Any

from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var
from loopwright.ir.node import Node, node


class Stmt(Node):
    """Base class of statements."""

    __slots__ = ()


@node
class For(Stmt):
    """``for var in range(extent): body``; ``pragmas`` is a tuple of (key, value).

    ``kind`` is serial, vectorized, unrolled, parallel or thread; a thread loop has a ``tag``.
    """

    var: Var
    extent: int
    kind: str
    body: Stmt
    pragmas: tuple[tuple[str, Any], ...] = ()
    tag: str = ""


@node
class Let(Stmt):
    """Bind ``var`` to ``value``, of the same dtype (any), in ``body``.

    The value is computed once, where the statement stands: inside a vector loop once a lane.
    """

    var: Var
    value: Expr
    body: Stmt


@node
class If(Stmt):
    """Run ``then`` when ``cond`` holds, else ``orelse`` (may be None)."""

    cond: Expr
    then: Stmt
    orelse: Any = None


@node
class Store(Stmt):
    """``buffer[indices] = value``."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@node
class Seq(Stmt):
    """Statements one after the other; empty does nothing."""

    stmts: tuple[Stmt, ...]


@node
class Allocate(Stmt):
    """``buffer`` exists, uninitialised, while ``body`` runs."""

    buffer: Buffer
    body: Stmt


@node
class Func(Node):
    """A lowered function: buffer parameters (``outputs[i]`` tells which are written) and a body."""

    name: str
    params: tuple[Buffer, ...]
    outputs: tuple[bool, ...]
    body: Stmt

    def with_body(self, body: Stmt) -> Func:
        """This function with another body; itself when the body is the same object."""
        return self.map_children(lambda _: body)

    def __str__(self) -> str:
        from loopwright.ir.printer import print_func

        return print_func(self)


def seq(*stmts: Stmt) -> Stmt:
    """Sequence that flattens nested sequences and unwraps a single statement."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
