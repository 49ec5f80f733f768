"""InjectVirtualThread: statements that depend on the virtual thread, by an index, a value, a
condition or a buffer, go into unrolled loops over it; others, such as those that fill a shared
buffer, run once. A buffer whose contents differ, allocated between two such loops, gets a leading
dimension with a slice for each virtual thread. As TVM's pass of this name."""

from __future__ import annotations

from typing import Any

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var
from loopwright.ir.node import Node
from loopwright.ir.stmt import (
    Allocate,
    AllReduce,
    AsyncGroup,
    AsyncWait,
    Barrier,
    For,
    Func,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    seq,
)
from loopwright.ir.traversal import substitute, walk
from loopwright.ir.visitor import map_statements
from loopwright.lowering.context import func_pass
from loopwright.lowering.passes.redirect import redirected


@func_pass(opt_level=0, name="InjectVirtualThread")
def inject_virtual_thread(f: Func) -> Func:
    """Replace vthread loops, the innermost first."""
    return f.with_body(_go(f.body))


def _go(s: Stmt) -> Stmt:
    s = map_statements(s, _go)
    if not (isinstance(s, For) and s.tag == "vthread"):
        return s
    return _Spread(s).stmt(s.body)


class _Spread:
    def __init__(self, loop: For) -> None:
        self.var, self.count = loop.var, loop.count
        #: Variables whose values differ between virtual threads.
        self.vars: set[Var] = {loop.var}
        #: Buffers whose contents differ between them.
        self.buffers: set[Buffer] = set()
        #: All buffers that are allocated in the loop.
        self.inside: set[Buffer] = set()
        walk(loop.body, self._collect)
        before = -1
        while before != len(self.vars) + len(self.buffers):
            before = len(self.vars) + len(self.buffers)
            self._mark_differing(loop.body, False)

    def _collect(self, n: Node) -> None:
        if isinstance(n, Allocate):
            self.inside.add(n.buffer)

    # ------------------------------------------------------------ what differs

    def differs(self, *es: Node) -> bool:
        differing: list[Node] = []

        def visit(n: Node) -> None:
            own = isinstance(n, Var) and n in self.vars
            if own or (isinstance(n, Load) and n.buffer in self.buffers):
                differing.append(n)

        for e in es:
            walk(e, visit)
        return bool(differing)

    def _mark_differing(self, s: Stmt, under: bool) -> None:
        """Mark variables and buffers that differ; ``under``: inside a condition that does."""
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
        common: list[Node] = []

        def visit(n: Node) -> None:
            shared = isinstance(n, Store) and n.buffer.is_shared
            if shared or isinstance(n, AllReduce | AsyncWait | Barrier):
                common.append(n)

        walk(s, visit)
        return bool(common)

    # ------------------------------------------------------------ spreading

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
        out: list[Stmt] = []
        group: list[Stmt] = []
        for c in s.stmts:
            if all(self._each_differs(c)) and not self._is_common(c):
                group.append(c)
                continue
            if group:
                out.append(self._repeat(seq(*group)))
                group = []
            out.append(self.stmt(c))
        return seq(*out, *([self._repeat(seq(*group))] if group else []))

    def _repeat(self, s: Stmt) -> Stmt:
        """An unrolled loop over the virtual threads."""
        fresh = Var(self.var.name)
        body = substitute(s, {self.var: fresh})
        return For(fresh, self.count, "unrolled", body) if self.count > 1 else body


def _widened(s: Stmt, old: Buffer, new: Buffer, v: Var) -> Stmt:
    """A statement with accesses of a virtual thread's slice of ``new`` in place of ``old``."""

    # Any: an expression gives an expression and a statement a statement.
    def go(n: Any) -> Any:
        n = redirected(n.map_children(go), {old: new}, lambda idx: (v, *idx))
        if not isinstance(n, AllReduce) or old not in n.buffers:
            return n
        buffers = tuple(new if b is old else b for b in n.buffers)
        # Several buffers are widened one after the other; only the first adds the index.
        narrow = len(n.indices) == len(old.shape)
        indices = (v, *n.indices) if narrow else n.indices
        return AllReduce(n.combiner, buffers, indices, n.tags)

    out: Stmt = go(s)
    return out
