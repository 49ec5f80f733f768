"""InjectDoubleBuffer: a buffer of n places, filled for later iterations while one is read."""

# The nest marks allocations with `double_buffer` (`Allocate.halves`). Before the loop places 0 to
# n - 2 are filled; iteration i fills place (i + n - 1) % n for iteration i + n - 1, if there is
# one, and reads place i % n. Two places are TVM's pass of this name, except that conditions before
# a fill are tested here for the later iteration. More are the software pipelines of Triton and
# CUTLASS. In kernels, copies from global to shared memory may arrive asynchronously (`AsyncGroup`).
# Each place is waited for at the beginning of its iteration, in front of the barrier at which the
# threads of the block meet.

from __future__ import annotations

from dataclasses import dataclass

from loopwright.errors import InternalError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var, as_expr, binary
from loopwright.ir.node import Node
from loopwright.ir.stmt import (
    Allocate,
    AllReduce,
    AsyncGroup,
    AsyncWait,
    Barrier,
    CallPacked,
    For,
    Func,
    If,
    IntrinsicCall,
    Let,
    Seq,
    Stmt,
    Store,
    is_launch,
    map_statements,
    seq,
)
from loopwright.ir.visitor import map_nodes, nodes, substitute
from loopwright.lowering.context import func_pass
from loopwright.lowering.nest.buffers import allocated
from loopwright.lowering.passes.storage_rewrite import redirected


@func_pass(opt_level=0, name="InjectDoubleBuffer")
def inject_double_buffer(f: Func) -> Func:
    """Give marked buffers a place for each of several iterations.

    Where the pass is disabled, every iteration fills such a buffer and then reads it.

    ``for i in range(8): B = alloc(float32[4], shared); fill(B, i); read(B)`` with 3 ``copies`` is
    after it::

        B = alloc(float32[3, 4], shared)
        fill(B[0], 0)
        fill(B[1], 1)
        for i in range(8):
          if i + 2 < 8:
            fill(B[(i + 2) % 3], i + 2)
          read(B[i % 3])

    In a kernel, where copies from global memory fill B::

        async: fill(B[0], 0)
        async: fill(B[1], 1)
        for i in range(8):
          wait(pending=1)
          barrier(shared)
          async:
            if i + 2 < 8:
              fill(B[(i + 2) % 3], i + 2)
          read(B[i % 3])
    """
    return f.with_body(_go(f.body, False))


@dataclass(frozen=True)
class _DoubleBuffer:
    old: Buffer
    new: Buffer  #: replaces it, with a place for each of ``copies`` iterations
    copies: int
    fill: Stmt  #: fills the buffer
    #: Definitions, tests and allocations between the loop and ``fill``, outermost first.
    before: tuple[Stmt, ...]


def _go(s: Stmt, in_kernel: bool) -> Stmt:
    inside = in_kernel or is_launch(s)
    s = map_statements(s, lambda c: _go(c, inside))
    if not isinstance(s, For):
        return s
    doubles: list[_DoubleBuffer] = []
    body = _take(s, s.body, (), frozenset(), doubles)
    if not doubles:
        return s
    return _pipelined(s, body, doubles, in_kernel and _can_arrive_later(doubles))


def _take(
    loop: For,
    s: Stmt,
    before: tuple[Stmt, ...],
    written: frozenset[Buffer],
    doubles: list[_DoubleBuffer],
) -> Stmt:
    """The body of a loop without the fills of marked buffers, which go to ``doubles``."""
    # A buffer that is filled from what the same iteration has written before, ``written``, cannot
    # be filled an iteration ahead: it stays as it is.
    match s:
        case Let(var=v, value=e, body=body):
            return Let(v, e, _take(loop, body, (*before, s), written, doubles))
        case If(cond=c, then=body, orelse=None):
            return If(c, _take(loop, body, (*before, s), written, doubles))
        case Seq(stmts=stmts) if stmts:
            stored = {n.buffer for s in stmts[:-1] for n in nodes(s) if isinstance(n, Store)}
            reduced = (n.buffers for s in stmts[:-1] for n in nodes(s) if isinstance(n, AllReduce))
            written = written.union(stored, *reduced)
            return Seq((*stmts[:-1], _take(loop, stmts[-1], before, written, doubles)))
        case Allocate(buffer=b, body=Seq(stmts=(fill, rest)), halves=v, copies=n) if (
            v is loop.var
            and not any(isinstance(x, Load) and x.buffer in written for x in nodes(fill))
        ):
            n = min(n, loop.extent) if isinstance(loop.extent, int) else n
            doubles.append(_DoubleBuffer(b, _with_places(b, n), n, fill, before))
            return _take(loop, rest, before, written, doubles)
        case Allocate(buffer=b, body=body, halves=v, copies=n):
            return Allocate(b, _take(loop, body, (*before, s), written, doubles), v, n)
    return s  # the buffer of a marked allocation is filled further out or not at all


def _with_places(b: Buffer, n: int) -> Buffer:
    if b.scope == "warp":  # the first two dimensions stay the lane
        return Buffer(b.name, (*b.shape[:2], n, *b.shape[2:]), b.dtype, b.scope)
    strides = None if b.strides is None else (b.size, *b.strides)
    return Buffer(b.name, (n, *b.shape), b.dtype, b.scope, strides)


def _can_arrive_later(doubles: list[_DoubleBuffer]) -> bool:
    # All of them are shared and have one number of places, copies from global memory fill them, and
    # nothing that fills them reads shared memory or makes threads meet.
    if len({x.copies for x in doubles}) != 1 or not all(x.new.is_shared for x in doubles):
        return False
    copies = False
    for n in (n for x in doubles for n in nodes(x.fill)):
        match n:
            case Store(buffer=b, value=Load(buffer=source)) if b.is_shared:
                copies |= (source.scope, source.dtype) == ("global", b.dtype)
            case Load(buffer=b) if b.is_shared:
                return False
            case AllReduce() | Barrier() | IntrinsicCall():
                return False
    return copies


def _pipelined(loop: For, body: Stmt, doubles: list[_DoubleBuffer], asynchronous: bool) -> Stmt:
    """The loop with its buffers filled ahead; those of one number of places share the tests."""
    # With asynchronous copies each iteration begins by waiting for those of its own place, and for
    # what the other threads waited for; the copies of ``n - 2`` iterations stay on their way.
    groups: dict[int, list[_DoubleBuffer]] = {}
    for x in doubles:
        groups.setdefault(x.copies, []).append(x)
    first: list[Stmt] = []
    ahead: list[Stmt] = []
    for n, group in groups.items():
        fills = [_fill_first(group, loop, k) for k in range(n - 1)]
        at, v = binary("+", loop.var, n - 1), Var(loop.var.name, loop.var.dtype)
        later: Stmt = If(binary("<", at, loop.extent), Let(v, at, _fill(group, loop.var, v)))
        if asynchronous:
            fills, later = [AsyncGroup(x) for x in fills], AsyncGroup(later)
            ahead += [AsyncWait(n - 2), Barrier("shared")]
        first += fills
        ahead.append(later)
        place = _place(n)
        body = Let(place, binary("%", loop.var, n), _in_place(body, group, place))
    again = For(loop.var, loop.extent, loop.kind, seq(*ahead, body), loop.pragmas, loop.tag)
    return allocated((x.new for x in doubles), seq(*first, again))


def _place(n: int) -> Var:
    return Var("half" if n == 2 else "place")


def _fill_first(group: list[_DoubleBuffer], loop: For, k: int) -> Stmt:
    v = Var(loop.var.name, loop.var.dtype)
    fill = Let(v, as_expr(k, v.dtype), _fill(group, loop.var, v))
    if k == 0 or isinstance(loop.extent, int):
        return fill
    return If(binary("<", as_expr(k, v.dtype), loop.extent), fill)


def _fill(group: list[_DoubleBuffer], var: Var, value: Var) -> Stmt:
    n = group[0].copies
    place = _place(n)
    parts = [_in_place(_at(x.before, x.fill, {var: value}), group, place) for x in group]
    return Let(place, binary("%", value, n), _with_own_buffers(seq(*parts)))


def _with_own_buffers(s: Stmt) -> Stmt:
    """A copy of a statement with buffers of its own, but for those in shared memory, which have one
    place in the block."""
    own = {
        b: Buffer(b.name, b.shape, b.dtype, b.scope, b.strides)
        for b in (n.buffer for n in nodes(s) if isinstance(n, Allocate))
        if not b.is_shared
    }

    def change(n: Node) -> Node:
        match n:
            case Allocate(buffer=b, body=body, halves=v, copies=count) if b in own:
                return Allocate(own[b], body, v, count)
            case AllReduce(combiner=c, buffers=bs, indices=idx, tags=tags):
                return AllReduce(c, tuple(own.get(b, b) for b in bs), idx, tags)
            case CallPacked(name=name, args=args):
                mine = (own.get(x, x) if isinstance(x, Buffer) else x for x in args)
                return CallPacked(name, tuple(mine))
        return redirected(n, own, lambda idx: idx)

    return map_nodes(s, Node, change)


def _at(before: tuple[Stmt, ...], fill: Stmt, env: dict[Var, Expr]) -> Stmt:
    """``fill`` inside the definitions and tests ``before``, with ``env`` for their variables."""
    if not before:
        return substitute(fill, env)
    match before[0]:
        case Let(var=v, value=e):
            fresh = Var(v.name, v.dtype)
            return Let(fresh, substitute(e, env), _at(before[1:], fill, {**env, v: fresh}))
        case If(cond=c):
            return If(substitute(c, env), _at(before[1:], fill, env))
        case Allocate(buffer=b):  # of a stage that is computed in there, but stored further out
            inner = _at(before[1:], fill, env)
            used = any(isinstance(n, Load | Store) and n.buffer is b for n in nodes(inner))
            return Allocate(b, inner) if used else inner
    raise InternalError(f"InjectDoubleBuffer: {type(before[0]).__name__} before a buffer is filled")


def _in_place(s: Stmt, group: list[_DoubleBuffer], place: Var) -> Stmt:
    new = {x.old: x.new for x in group if x.old.scope != "warp"}
    of_warps = {x.old: x.new for x in group if x.old.scope == "warp"}

    def change(n: Node) -> Node:
        n = redirected(n, new, lambda idx: (place, *idx))
        return redirected(n, of_warps, lambda idx: (*idx[:2], place, *idx[2:]))

    return map_nodes(s, Node, change)
