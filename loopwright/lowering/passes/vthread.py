"""Virtual threads: the body of a vthread loop for each of them, what they share done once.

TVM's InjectVirtualThread. A statement that depends on the virtual thread, by an index, a value, a
condition or a buffer that differs between virtual threads, is repeated in an unrolled loop over
them; statements that follow each other share one. Others, such as the filling of a shared buffer,
run once, so that the loop is spread over the body. Buffers allocated inside whose contents differ
get a leading dimension, one slice a virtual thread, where the loop was spread past them.
"""

from __future__ import annotations

from typing import Any

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var
from loopwright.ir.node import Node
from loopwright.ir.stmt import Allocate, AllReduce, For, Func, If, Let, Seq, Stmt, Store, seq
from loopwright.ir.traversal import substitute, walk
from loopwright.lowering.context import func_pass
from loopwright.lowering.passes.redirect import redirected


@func_pass(opt_level=0, name="InjectVirtualThread")
def inject_virtual_thread(f: Func) -> Func:
    """Replace vthread loops, the innermost first."""
    return f.with_body(_go(f.body))


def _go(s: Any) -> Any:
    if not isinstance(s, Stmt):
        return s
    made = s.map_children(_go)
    if not (isinstance(made, For) and made.tag == "vthread"):
        return made
    return _Spread(made).stmt(made.body)


class _Spread:
    """Spreads one vthread loop over its body."""

    def __init__(self, loop: For) -> None:
        self.var, self.count = loop.var, loop.extent
        self.vars: set[Var] = {loop.var}
        self.buffers: set[Buffer] = set()
        self.inside: set[Buffer] = set()
        walk(loop.body, self._collect)
        before = -1
        while before != len(self.vars) + len(self.buffers):
            before = len(self.vars) + len(self.buffers)
            self._taint(loop.body, False)

    def _collect(self, n: Any) -> None:
        if isinstance(n, Allocate):
            self.inside.add(n.buffer)

    # ------------------------------------------------------------ what differs

    def differs(self, *es: Node) -> bool:
        """Whether expressions differ between virtual threads."""
        found = False

        def visit(n: Any) -> None:
            nonlocal found
            found |= n in self.vars if isinstance(n, Var) else False
            found |= isinstance(n, Load) and n.buffer in self.buffers

        for e in es:
            walk(e, visit)
        return found

    def _taint(self, s: Any, under: bool) -> None:
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
        for c in s.children():
            if isinstance(c, Stmt):
                self._taint(c, under)

    def _each(self, s: Any, under: bool = False) -> list[bool]:
        """For every statement that writes, whether it differs."""
        match s:
            case Store(buffer=b, indices=idx, value=e):
                return [under or b in self.buffers or self.differs(*idx, e)]
            case AllReduce(buffers=bs, indices=idx):
                return [under or bool(set(bs) & self.buffers) or self.differs(*idx)]
            case If(cond=c):
                under |= self.differs(c)
        inner = [c for c in s.children() if isinstance(c, Stmt)]
        return [x for c in inner for x in self._each(c, under)]

    def _meets(self, s: Stmt) -> bool:
        """Whether threads meet in it: it fills shared memory or reduces."""
        found: list[Any] = []

        def visit(n: Any) -> None:
            shared = isinstance(n, Store) and n.buffer.scope == "shared"
            if shared or isinstance(n, AllReduce):
                found.append(n)

        walk(s, visit)
        return bool(found)

    # ------------------------------------------------------------ spreading

    def stmt(self, s: Stmt) -> Stmt:
        """The statement for all virtual threads."""
        if isinstance(s, Seq):
            return self._sequence(s)
        each = self._each(s)
        if not any(each):
            return s
        if all(each) and not self._meets(s):
            return self._repeat(s)
        match s:
            case For() | Allocate(buffer=Buffer()) if self._is_common(s):
                return s.map_children(lambda c: self.stmt(c) if isinstance(c, Stmt) else c)
            case Allocate(buffer=b, body=body):
                wide = Buffer(b.name, (self.count, *b.shape), b.dtype, b.scope)
                self.buffers.add(wide)
                return Allocate(wide, self.stmt(_widened(body, b, wide, self.var)))
            case Let(var=v, value=e, body=body):
                if not self.differs(e):
                    return Let(v, e, self.stmt(body))
                return self.stmt(substitute(body, {v: e}))
            case If(cond=c) if not self.differs(c):
                return s.map_children(lambda c: self.stmt(c) if isinstance(c, Stmt) else c)
        # Also where virtual threads differ about a condition: one after the other they are a loop.
        return self._repeat(s)

    def _is_common(self, s: Stmt) -> bool:
        return isinstance(s, For) or (isinstance(s, Allocate) and s.buffer not in self.buffers)

    def _sequence(self, s: Seq) -> Stmt:
        out: list[Stmt] = []
        group: list[Stmt] = []
        for c in s.stmts:
            if all(self._each(c)) and not self._meets(c):
                group.append(c)
                continue
            if group:
                out.append(self._repeat(seq(*group)))
                group = []
            out.append(self.stmt(c))
        return seq(*out, *([self._repeat(seq(*group))] if group else []))

    def _repeat(self, s: Stmt) -> Stmt:
        fresh = Var(self.var.name)
        body: Stmt = substitute(s, {self.var: fresh})
        return For(fresh, self.count, "unrolled", body) if self.count > 1 else body


def _widened(s: Any, old: Buffer, new: Buffer, v: Var) -> Any:
    """Accesses of a buffer turned into accesses of a virtual thread's slice."""

    def go(n: Any) -> Any:
        made = redirected(n.map_children(go), {old: new}, lambda idx: (v, *idx))
        if isinstance(made, AllReduce) and old in made.buffers:
            buffers = tuple(new if b is old else b for b in made.buffers)
            # Of several buffers, widened one after the other, the first brings the index.
            narrow = len(made.indices) == len(old.shape)
            indices = (v, *made.indices) if narrow else made.indices
            return AllReduce(made.combiner, buffers, indices, made.tags)
        return made

    return go(s)
