"""InjectDoubleBuffer: a buffer of two halves, filled for the next iteration while one is read.

The nest marks the allocations of stages with `double_buffer` (`Allocate.halves`). Before the loop
the first half is filled for iteration 0. Iteration i fills the other half for iteration i + 1, if
there is one, and then reads half i % 2. TVM's pass of this name does the same, with one difference:
here conditions that the loop tests before it fills the buffer are tested for i + 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopwright.errors import InternalError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var, as_expr, binary
from loopwright.ir.node import Node
from loopwright.ir.stmt import Allocate, AllReduce, For, Func, If, Let, Seq, Stmt, Store, seq
from loopwright.ir.traversal import substitute, walk
from loopwright.ir.visitor import map_statements
from loopwright.lowering.context import func_pass
from loopwright.lowering.passes.redirect import redirected


@func_pass(opt_level=0, name="InjectDoubleBuffer")
def inject_double_buffer(f: Func) -> Func:
    """Give marked buffers two halves.

    Where the pass is disabled, every iteration fills such a buffer and then reads it.
    """
    return f.with_body(_go(f.body))


@dataclass(frozen=True)
class _DoubleBuffer:
    """A marked buffer.

    Attributes:
        old: the buffer.
        new: the buffer of two halves that replaces it.
        fill: the statement that fills it.
        before: definitions, tests and allocations between the loop and ``fill``, outermost first.
    """

    old: Buffer
    new: Buffer
    fill: Stmt
    before: tuple[Stmt, ...]


def _go(s: Stmt) -> Stmt:
    s = map_statements(s, _go)
    if not isinstance(s, For):
        return s
    doubles: list[_DoubleBuffer] = []
    body = _take(s.body, s.var, (), frozenset(), doubles)
    return _pipelined(s, body, doubles) if doubles else s


def _take(
    s: Stmt,
    var: Var,
    before: tuple[Stmt, ...],
    written: frozenset[Buffer],
    doubles: list[_DoubleBuffer],
) -> Stmt:
    """The body of a loop without the statements that fill marked buffers.

    The buffers, with these statements, are appended to ``doubles``. One that is filled from what
    the same iteration has written before, ``written``, cannot be filled an iteration ahead: it
    stays as it is.
    """
    match s:
        case Let(var=v, value=e, body=body):
            return Let(v, e, _take(body, var, (*before, s), written, doubles))
        case If(cond=c, then=body, orelse=None):
            return If(c, _take(body, var, (*before, s), written, doubles))
        case Seq(stmts=stmts) if stmts:
            written = written.union(*map(_written, stmts[:-1]))
            return Seq((*stmts[:-1], _take(stmts[-1], var, before, written, doubles)))
        case Allocate(buffer=b, body=Seq(stmts=(fill, rest)), halves=v) if v is var and not _reads(
            fill, written
        ):
            doubles.append(_DoubleBuffer(b, _two_halves(b), fill, before))
            return _take(rest, var, before, written, doubles)
        case Allocate(buffer=b, body=body, halves=v):
            return Allocate(b, _take(body, var, (*before, s), written, doubles), v)
    return s  # the buffer of a marked allocation is filled further out or not at all


def _written(s: Stmt) -> set[Buffer]:
    """Buffers that a statement writes."""
    found: set[Buffer] = set()

    def visit(n: Node) -> None:
        match n:
            case Store(buffer=b):
                found.add(b)
            case AllReduce(buffers=bs):
                found.update(bs)

    walk(s, visit)
    return found


def _reads(s: Stmt, buffers: frozenset[Buffer]) -> bool:
    """Whether a statement reads one of some buffers."""
    found: list[Buffer] = []

    def visit(n: Node) -> None:
        if isinstance(n, Load) and n.buffer in buffers:
            found.append(n.buffer)

    walk(s, visit)
    return bool(found)


def _two_halves(b: Buffer) -> Buffer:
    strides = None if b.strides is None else (b.size, *b.strides)
    return Buffer(b.name, (2, *b.shape), b.dtype, b.scope, strides)


def _pipelined(loop: For, body: Stmt, doubles: list[_DoubleBuffer]) -> Stmt:
    var = loop.var
    half = Var("half")
    nxt = Var(var.name, var.dtype)
    more = binary("<", binary("+", var, 1), loop.extent)
    ahead = If(more, Let(nxt, binary("+", var, 1), _fill(doubles, var, nxt)))
    read = Let(half, binary("%", var, 2), _in_half(body, doubles, half))
    again = For(var, loop.extent, loop.kind, seq(ahead, read), loop.pragmas, loop.tag)
    first = Var(var.name, var.dtype)
    out = seq(Let(first, as_expr(0), _fill(doubles, var, first)), again)
    for x in reversed(doubles):
        out = Allocate(x.new, out)
    return out


def _fill(doubles: list[_DoubleBuffer], var: Var, value: Var) -> Stmt:
    """What fills the buffers for the iteration ``value``."""
    half = Var("half")
    parts = [_in_half(_at(x.before, x.fill, {var: value}), doubles, half) for x in doubles]
    return Let(half, binary("%", value, 2), _with_own_buffers(seq(*parts)))


def _with_own_buffers(s: Stmt) -> Stmt:
    """A statement with new buffers in place of those allocated in it, for another copy of it.

    Buffers in shared memory are kept, since all copies have one place in the block.
    """
    own: dict[Buffer, Buffer] = {}

    def visit(n: Node) -> None:
        if isinstance(n, Allocate) and n.buffer.scope != "shared":
            b = n.buffer
            own[b] = Buffer(b.name, b.shape, b.dtype, b.scope, b.strides)

    # Any: an expression gives an expression and a statement a statement.
    def go(n: Any) -> Any:
        n = n.map_children(go)
        match n:
            case Allocate(buffer=b, body=body, halves=v) if b in own:
                return Allocate(own[b], body, v)
            case Load(buffer=b, indices=idx, dtype=d) if b in own:
                return Load(own[b], idx, d)
            case Store(buffer=b, indices=idx, value=e) if b in own:
                return Store(own[b], idx, e)
            case AllReduce(combiner=c, buffers=bs, indices=idx, tags=tags):
                return AllReduce(c, tuple(own.get(b, b) for b in bs), idx, tags)
        return n  # touches no buffer that is replaced

    walk(s, visit)
    out: Stmt = go(s)
    return out


def _at(before: tuple[Stmt, ...], fill: Stmt, env: dict[Var, Expr]) -> Stmt:
    """``fill`` inside the definitions and tests ``before``, with ``env`` for their variables."""
    if not before:
        return substitute(fill, env)
    match before[0]:
        case Let(var=v, value=e):
            fresh = Var(v.name, v.dtype)
            value = substitute(e, env)
            return Let(fresh, value, _at(before[1:], fill, {**env, v: fresh}))
        case If(cond=c):
            return If(substitute(c, env), _at(before[1:], fill, env))
        case Allocate(buffer=b):  # of a stage that is computed in there, but stored further out
            inner = _at(before[1:], fill, env)
            return Allocate(b, inner) if _uses(inner, b) else inner
    raise InternalError(f"InjectDoubleBuffer: {type(before[0]).__name__} before a buffer is filled")


def _uses(s: Stmt, b: Buffer) -> bool:
    accesses: list[Node] = []
    walk(s, lambda n: accesses.append(n) if isinstance(n, Load | Store) and n.buffer is b else None)
    return bool(accesses)


def _in_half(s: Stmt, doubles: list[_DoubleBuffer], half: Var) -> Stmt:
    """A statement with accesses of the buffers in the half that the variable ``half`` names."""
    halves = {x.old: x.new for x in doubles}

    # Any: an expression gives an expression and a statement a statement.
    def go(n: Any) -> Any:
        return redirected(n.map_children(go), halves, lambda idx: (half, *idx))

    out: Stmt = go(s)
    return out
