"""InjectDoubleBuffer: a buffer of two halves, filled for the next iteration while one is read.

The nest marks the allocation of a stage that asked for it (`Allocate.halves`). Before the loop the
first half is filled for iteration 0; in iteration i the other half is filled for i + 1, if there is
one, and then half i % 2 is read. What TVM's pass of this name does, with one difference: conditions
that the loop tests before it fills the buffer are tested for i + 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopwright.errors import InternalError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var, as_expr, binary
from loopwright.ir.stmt import Allocate, AllReduce, For, Func, If, Let, Seq, Stmt, Store, seq
from loopwright.ir.traversal import substitute, walk
from loopwright.lowering.context import func_pass
from loopwright.lowering.passes.redirect import redirected


@func_pass(opt_level=0, name="InjectDoubleBuffer")
def inject_double_buffer(f: Func) -> Func:
    """Give marked buffers two halves; disabled, a buffer is filled and read in one iteration."""
    return f.with_body(_go(f.body))


@dataclass
class _Filled:
    """A marked buffer, its two halves, what fills it, and the definitions and tests before that."""

    old: Buffer
    new: Buffer
    fill: Stmt
    before: tuple[Stmt, ...]


def _go(s: Any) -> Any:
    if not isinstance(s, Stmt):
        return s
    made = s.map_children(_go)
    if not isinstance(made, For):
        return made
    found: list[_Filled] = []
    body = _take(made.body, made.var, (), found)
    return _pipelined(made, body, found) if found else made


def _take(s: Any, var: Var, before: tuple[Stmt, ...], found: list[_Filled]) -> Any:
    """The body of a loop without what fills marked buffers, which is put into ``found``."""
    match s:
        case Let(var=v, value=e, body=body):
            return Let(v, e, _take(body, var, (*before, s), found))
        case If(cond=c, then=body, orelse=None):
            return If(c, _take(body, var, (*before, s), found))
        case Seq(stmts=stmts) if stmts:
            return Seq((*stmts[:-1], _take(stmts[-1], var, before, found)))
        case Allocate(buffer=b, body=Seq(stmts=(fill, rest)), halves=v) if v is var:
            found.append(_Filled(b, _two_halves(b), fill, before))
            return _take(rest, var, before, found)
        case Allocate(buffer=b, body=body, halves=v):
            return Allocate(b, _take(body, var, (*before, s), found), v)
    return s


def _two_halves(b: Buffer) -> Buffer:
    strides = None if b.strides is None else (b.size, *b.strides)
    return Buffer(b.name, (2, *b.shape), b.dtype, b.scope, strides)


def _pipelined(loop: For, body: Stmt, found: list[_Filled]) -> Stmt:
    var = loop.var
    half = Var("half")
    nxt = Var(var.name, var.dtype)
    more = binary("<", binary("+", var, 1), loop.extent)
    ahead = If(more, Let(nxt, binary("+", var, 1), _fill(found, var, nxt)))
    read = Let(half, binary("%", var, 2), _in_half(body, found, half))
    again = For(var, loop.extent, loop.kind, seq(ahead, read), loop.pragmas, loop.tag)
    first = Var(var.name, var.dtype)
    out = seq(Let(first, as_expr(0), _fill(found, var, first)), again)
    for x in reversed(found):
        out = Allocate(x.new, out)
    return out


def _fill(found: list[_Filled], var: Var, value: Var) -> Stmt:
    """What fills the buffers for the iteration ``value``."""
    half = Var("half")
    parts = [_in_half(_at(x.before, x.fill, {var: value}), found, half) for x in found]
    return Let(half, binary("%", value, 2), _with_own_buffers(seq(*parts)))


def _with_own_buffers(s: Stmt) -> Stmt:
    """A statement whose buffers are its own: another copy of it allocates others.

    Those in shared memory stay one, for all copies have the same place in the block.
    """
    own: dict[Buffer, Buffer] = {}

    def visit(n: Any) -> None:
        if isinstance(n, Allocate) and n.buffer.scope != "shared":
            b = n.buffer
            own[b] = Buffer(b.name, b.shape, b.dtype, b.scope, b.strides)

    def go(n: Any) -> Any:
        made = n.map_children(go)
        match made:
            case Allocate(buffer=b, body=body, halves=v) if b in own:
                return Allocate(own[b], body, v)
            case Load(buffer=b, indices=idx, dtype=d) if b in own:
                return Load(own[b], idx, d)
            case Store(buffer=b, indices=idx, value=e) if b in own:
                return Store(own[b], idx, e)
            case AllReduce(combiner=c, buffers=bs, indices=idx, tags=tags):
                return AllReduce(c, tuple(own.get(b, b) for b in bs), idx, tags)
        return made

    walk(s, visit)
    out: Stmt = go(s)
    return out


def _at(before: tuple[Stmt, ...], fill: Stmt, env: dict[Var, Expr]) -> Stmt:
    """A statement behind definitions and tests, all for another value of the loop."""
    if not before:
        moved: Stmt = substitute(fill, env)
        return moved
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
    found: list[Any] = []
    walk(s, lambda n: found.append(n) if isinstance(n, Load | Store) and n.buffer is b else None)
    return bool(found)


def _in_half(s: Any, found: list[_Filled], half: Var) -> Any:
    """A statement or expression in which the buffers are those of two halves."""
    halves = {x.old: x.new for x in found}

    def go(n: Any) -> Any:
        return redirected(n.map_children(go), halves, lambda idx: (half, *idx))

    return go(s)
