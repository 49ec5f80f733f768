"""Passes on threads of kernels: virtual threads, memory of warps, and reductions across threads."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from loopwright.errors import LowerError
from loopwright.ir.affine import Affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var, as_expr, binary
from loopwright.ir.kinds import WARP_LANES, WARP_SIZE
from loopwright.ir.node import Node
from loopwright.ir.printer import print_expr
from loopwright.ir.sizes import evaluate
from loopwright.ir.stmt import (
    Allocate,
    AllReduce,
    AsyncGroup,
    AsyncWait,
    Barrier,
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
from loopwright.ir.visitor import free_vars, map_nodes, nodes, substitute
from loopwright.lowering.context import func_pass
from loopwright.lowering.nest.buffers import allocated
from loopwright.lowering.nest.reductions import combine_into
from loopwright.lowering.passes.storage_rewrite import redirected

# ---------------------------------------------------------------- InjectVirtualThread
#
# Statements that depend on the virtual thread, by an index, a value, a condition or a buffer, go
# into unrolled loops over it; others, such as those that fill a shared buffer, run once. A buffer
# whose contents differ, allocated between two such loops, gets a leading dimension with a slice for
# each virtual thread. As TVM's pass of this name.


@func_pass(opt_level=0, name="InjectVirtualThread")
def inject_virtual_thread(f: Func) -> Func:
    """Replace vthread loops, the innermost first."""
    return f.with_body(_spread(f.body))


def _spread(s: Stmt) -> Stmt:
    s = map_statements(s, _spread)
    return _Spread(s).stmt(s.body) if isinstance(s, For) and s.tag == "vthread" else s


class _Spread:
    def __init__(self, loop: For) -> None:
        self.var, self.count = loop.var, loop.count
        #: Variables whose values differ between virtual threads.
        self.vars: set[Var] = {loop.var}
        #: Buffers whose contents differ between them.
        self.buffers: set[Buffer] = set()
        #: All buffers that are allocated in the loop.
        self.inside = {n.buffer for n in nodes(loop.body) if isinstance(n, Allocate)}
        before = -1
        while before != len(self.vars) + len(self.buffers):
            before = len(self.vars) + len(self.buffers)
            self._mark_differing(loop.body, False)

    def differs(self, *es: Node) -> bool:
        return any(
            (isinstance(n, Var) and n in self.vars)
            or (isinstance(n, Load) and n.buffer in self.buffers)
            for e in es
            for n in nodes(e)
        )

    def _mark_differing(self, s: Stmt, under: bool) -> None:
        match s:
            case Let(var=v, value=e):
                self.vars |= {v} if self.differs(e) else set()
            case If(cond=c):
                under |= self.differs(c)
            case Store(buffer=b, indices=idx, value=e) if under or self.differs(*idx, e):
                self.buffers |= {b} & self.inside
            case AllReduce(buffers=bs, indices=idx):  # all of them or none: they share the indices
                if under or self.differs(*idx) or set(bs) & self.buffers:
                    self.buffers |= set(bs) & self.inside
        for inner in s.children():
            if isinstance(inner, Stmt):
                self._mark_differing(inner, under)

    def _each_differs(self, s: Stmt, under: bool = False) -> list[bool]:
        """For every statement that writes, whether it differs; ``under`` as above."""
        match s:
            case Store(buffer=b, indices=idx, value=e):
                return [under or b in self.buffers or self.differs(*idx, e)]
            case AllReduce(buffers=bs, indices=idx):
                return [under or bool(set(bs) & self.buffers) or self.differs(*idx)]
            case If(cond=c):
                under |= self.differs(c)
        inner = [c for c in s.children() if isinstance(c, Stmt)]
        return [x for c in inner for x in self._each_differs(c, under)]

    def _is_common(self, s: Stmt) -> bool:
        """Whether all threads of the block do it together: fill shared memory, reduce, or wait."""
        return any(
            isinstance(n, AllReduce | AsyncWait | Barrier)
            or (isinstance(n, Store) and n.buffer.is_shared)
            for n in nodes(s)
        )

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Seq):
            return self._sequence(s)
        each = self._each_differs(s)
        if not any(each):
            return s
        if all(each) and not self._is_common(s):
            return self._repeat(s)
        match s:
            case For() | AsyncGroup():
                return map_statements(s, self.stmt)
            case Allocate(buffer=b) if b not in self.buffers:
                return map_statements(s, self.stmt)
            case Allocate(buffer=b, body=body):
                wide = Buffer(b.name, (self.count, *b.shape), b.dtype, b.scope)
                self.buffers.add(wide)
                return Allocate(wide, self.stmt(_widened(body, b, wide, self.var)))
            case Let(var=v, value=e, body=body):
                if not self.differs(e):
                    return Let(v, e, self.stmt(body))
                return self.stmt(substitute(body, {v: e}))
            case If(cond=c) if not self.differs(c):
                return map_statements(s, self.stmt)
        # Also a branch that only some of the virtual threads take.
        return self._repeat(s)

    def _sequence(self, s: Seq) -> Stmt:
        def repeats(c: Stmt) -> bool:
            return all(self._each_differs(c)) and not self._is_common(c)

        out: list[Stmt] = []
        for repeated, group in groupby(s.stmts, repeats):
            xs = list(group)
            out += [self._repeat(seq(*xs))] if repeated else map(self.stmt, xs)
        return seq(*out)

    def _repeat(self, s: Stmt) -> Stmt:
        fresh = Var(self.var.name)
        body = substitute(s, {self.var: fresh})
        return For(fresh, self.count, "unrolled", body) if self.count > 1 else body


def _widened(s: Stmt, old: Buffer, new: Buffer, v: Var) -> Stmt:
    def change(n: Node) -> Node:
        n = redirected(n, {old: new}, lambda idx: (v, *idx))
        if not isinstance(n, AllReduce) or old not in n.buffers:
            return n
        buffers = tuple(new if b is old else b for b in n.buffers)
        # Several buffers are widened one after the other; only the first adds the index.
        indices = (v, *n.indices) if len(n.indices) == len(old.shape) else n.indices
        return AllReduce(n.combiner, buffers, indices, n.tags)

    return map_nodes(s, Node, change)


# ---------------------------------------------------------------- LowerWarpMemory
#
# Buffers that the lanes of a warp share become registers of each lane.
# Every thread touches the registers of its own lane only, ``[threadIdx.x // 4, threadIdx.x % 4,
# ...]``, which this pass proves; so the first two dimensions go. Buffers inside of `IntrinsicCall`
# stay: the interpreter runs these, and code generators write the instruction. TVM's pass of this
# name also makes shuffles of other accesses.


@func_pass(opt_level=0, name="LowerWarpMemory")
def lower_warp_memory(f: Func) -> Func:
    """Keep the registers of a warp's buffers in each lane.

    ``C[threadIdx.x // 4, threadIdx.x % 4, r, 0]`` of a buffer float32[8, 4, 2, 2] of scope warp
    becomes ``C[r, 0]`` of a local buffer float32[2, 2].
    """
    return f.with_body(_statement(f.body, None))


def _statement(s: Stmt, lane: Var | None) -> Stmt:
    lane = s.var if is_launch(s) and s.tag == "threadIdx.x" else lane
    match s:
        case IntrinsicCall():
            return s
        case Allocate(buffer=b, body=body) if b.scope == "warp":
            if lane is None:
                raise LowerError(f"lower: {b.name!r} is spread over a warp, and there is none")
            new = Buffer(b.name, b.shape[2:], b.dtype, "local", b.strides and b.strides[2:])
            return _statement(Allocate(new, _Registers(b, new, lane).rewrite(body, {})), lane)
    return map_statements(s, lambda c: _statement(c, lane))


class _Registers:
    def __init__(self, old: Buffer, new: Buffer, lane: Var) -> None:
        self.old, self.new, self.lane = old, new, lane

    # Any: an expression gives an expression and a statement a statement.
    def rewrite(self, n: Any, lets: Mapping[Var, Expr]) -> Any:
        match n:
            case Let(var=v, value=e, body=body):
                value = self.rewrite(e, lets)
                return Let(v, value, self.rewrite(body, {**lets, v: substitute(value, dict(lets))}))
            case IntrinsicCall(name=name, operands=operands, body=body):
                # Operands begin at the registers of lane 0.
                firsts = tuple(
                    Load(self.new, x.indices[2:], x.dtype) if x.buffer is self.old else x
                    for x in operands
                )
                return IntrinsicCall(name, firsts, self.rewrite(body, lets))
        n = n.map_children(lambda c: self.rewrite(c, lets))
        match n:
            case Load(buffer=b, indices=idx, dtype=d) if b is self.old:
                return Load(self.new, self._own(idx, lets), d)
            case Store(buffer=b, indices=idx, value=e) if b is self.old:
                return Store(self.new, self._own(idx, lets), e)
        return n

    def _own(self, indices: tuple[Expr, ...], lets: Mapping[Var, Expr]) -> tuple[Expr, ...]:
        """The indices without those of the lane, which must be those of the running thread."""
        position = [substitute(i, dict(lets)) for i in indices[:2]]
        width = WARP_LANES[1]
        if not all(free_vars(i) <= {self.lane} for i in position) or any(
            tuple(evaluate(i, {self.lane: k}) for i in position) != (k // width, k % width)
            for k in range(WARP_SIZE)
        ):
            shown = ", ".join(print_expr(i) for i in position)
            raise LowerError(
                f"lower: {self.old.name!r} is spread over the lanes of a warp, and a thread "
                f"touches [{shown}] of it, where its own is [threadIdx.x // {width}, threadIdx.x % "
                f"{width}]; split the loops as its layout does, fuse those of extents 8 and 4 and "
                "bind them to threadIdx.x, or tensorize the stage"
            )
        return indices[2:]


# ---------------------------------------------------------------- LowerThreadAllreduce
#
# Each `AllReduce` becomes a tree of combinations in shared memory: threads store their values in a
# row, halves of which are combined until one value is left, which all threads of the group read.
# `thread_sync` inserts the barriers. As TVM's pass of this name.


@func_pass(opt_level=0, name="LowerThreadAllreduce")
def lower_thread_allreduce(f: Func) -> Func:
    """Replace every `AllReduce` by loads and stores of shared memory."""
    return f.with_body(_combined(f.body, []))


def _combined(s: Stmt, axes: list[For]) -> Stmt:
    if isinstance(s, AllReduce):
        return _tree(s, axes)
    inner = [*axes, s] if is_launch(s) and s.tag.startswith("threadIdx") else axes
    return map_statements(s, lambda c: _combined(c, inner))


def _flat(axes: list[For]) -> tuple[Expr, int]:
    """The index of a thread over several thread axes, row-major, and the number of threads."""
    out, count = Affine(0), 1
    for x in axes:
        out = out * x.count + Affine.of(x.var)
        count *= x.count
    return out.to_expr(), count


def _tree(s: AllReduce, axes: list[For]) -> Stmt:
    lane, lanes = _flat([x for x in axes if x.tag in s.tags])
    group, groups = _flat([x for x in axes if x.tag not in s.tags])
    if lanes == 1:
        return seq()
    rows = [Buffer(f"{b.name}.row", (groups, lanes), b.dtype, "shared") for b in s.buffers]
    at = (group, lane)
    steps: list[Stmt] = [
        Store(r, at, Load(b, s.indices, b.dtype)) for r, b in zip(rows, s.buffers, strict=True)
    ]
    count = lanes
    while count > 1:
        half = 1 << ((count - 1).bit_length() - 1)
        # The value at ``lane`` of each row is combined with the one ``half`` places further.
        far_at = (group, binary("+", lane, half))
        near, far = ([Load(r, i, r.dtype) for r in rows] for i in (at, far_at))
        step = combine_into(rows, at, s.combiner, near, far, s.buffers[0].name)
        steps.append(If(binary("<", lane, count - half), step))
        count = half
    first = (group, as_expr(0))
    steps += [
        Store(b, s.indices, Load(r, first, b.dtype)) for r, b in zip(rows, s.buffers, strict=True)
    ]
    return allocated(rows, seq(*steps))
