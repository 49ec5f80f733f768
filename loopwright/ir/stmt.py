"""Statements and functions of the loop IR.

Loops start at 0. ``vectorized`` and ``unrolled`` stay kinds of a loop until code generation.
"""

from __future__ import annotations

from typing import Any

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var
from loopwright.ir.node import Node, node
from loopwright.ir.reduction import Combiner

#: A pragma of serial loops: the compiler of the generated code should unroll this one.
UNROLL_HINT = ("unroll", True)


class Stmt(Node):
    """Base class of statements."""

    __slots__ = ()


@node
class For(Stmt):
    """``for var in range(extent): body``; ``pragmas`` is a tuple of (key, value).

    ``kind`` is serial, vectorized, unrolled, parallel or thread; a thread loop has a ``tag``. The
    thread loops of a kernel enclose all of it: blockIdx, then buffers in shared memory, then
    threadIdx. A loop tagged vthread stands anywhere until virtual threads are injected.
    ``extent`` is a positive int, or an expression over size variables that is never below 1; that
    of a vectorized or unrolled loop is an int.
    """

    var: Var
    extent: Any
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
    """``buffer`` exists, uninitialised, while ``body`` runs.

    With ``halves`` (the variable of the loop around it) the body is a `Seq` of two statements, the
    first of which fills the buffer: InjectDoubleBuffer may let it run an iteration ahead.
    """

    buffer: Buffer
    body: Stmt
    halves: Var | None = None


@node
class Check(Stmt):
    """Leave the function with an error unless ``cond`` holds.

    ``text`` is the message, with ``{0}`` and so on for the integers in ``values``.
    """

    cond: Expr
    text: str
    values: tuple[Expr, ...]


@node
class View(Stmt):
    """``buffer`` lies in ``of``, bytes of their own scope, from ``offset`` on, in ``body``.

    It begins uninitialised. What another view has in the same bytes is lost.
    """

    buffer: Buffer
    of: Buffer
    offset: int
    body: Stmt


@node
class Prefetch(Stmt):
    """Bring the cache line of ``buffer[indices]`` nearer: a hint, which changes no value.

    The indices may lie outside of the buffer, and in vector code it is the first lane's line.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]


@node
class Barrier(Stmt):
    """Every thread of a block waits here for the others, and sees what they wrote to ``scope``."""

    scope: str


@node
class AllReduce(Stmt):
    """``buffer[indices]`` of each thread becomes the combination over all threads of ``tags``.

    ``buffers`` are local, one for each result of the combiner; threads that differ only in the
    axes ``tags`` (names of thread axes) form a group. Every thread of the block runs it.
    """

    combiner: Combiner
    buffers: tuple[Buffer, ...]
    indices: tuple[Expr, ...]
    tags: tuple[str, ...]


@node
class IntrinsicCall(Stmt):
    """What instruction ``name`` of `loopwright.ir.instructions` does to its operands.

    ``operands`` are the elements where they begin. ``body`` means the same: it is what the
    interpreter runs, and what code generators write that have no such instruction.
    """

    name: str
    operands: tuple[Load, ...]
    body: Stmt


@node
class Func(Node):
    """A lowered function: buffer parameters (``outputs[i]`` tells which are written) and a body.

    ``sizes`` are the size variables, passed after the buffers.
    """

    name: str
    params: tuple[Buffer, ...]
    outputs: tuple[bool, ...]
    body: Stmt
    sizes: tuple[Any, ...] = ()

    def __str__(self) -> str:
        from loopwright.ir.printer import print_func

        return print_func(self)

    def with_body(self, body: Stmt) -> Func:
        """This function with another body; itself when the body is the same object."""
        if body is self.body:
            return self
        values = {n: getattr(self, n) for n in self._fields}
        return Func(**{**values, "body": body})


def seq(*stmts: Stmt) -> Stmt:
    """Sequence that flattens nested sequences and unwraps a single statement."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
