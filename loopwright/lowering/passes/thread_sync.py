"""Barriers between accesses of shared memory that must not overlap.

A write and another access of one buffer conflict, whichever comes first, unless they are known to
be done by one thread: some index tells threads apart, as ``threadIdx.x * 4 + i`` does where i is
below 4, whatever i it is on either side. A statement
that conflicts with one since the last barrier gets a barrier before it. What the end of a loop's
body leaves conflicts with the beginning of the next iteration, where the loop's own variables
differ. One store does not conflict with itself: a stage writes each element once. Two stores do
(TVM's ThreadSync lets them), such as the padding of a buffer and what comes over it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from loopwright import dtypes
from loopwright.errors import LowerError
from loopwright.ir.affine import Affine, Interval, interval, to_affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Const, Expr, Var
from loopwright.ir.node import Node
from loopwright.ir.printer import print_expr
from loopwright.ir.stmt import Allocate, Barrier, For, Func, If, Let, Seq, Stmt, Store, seq
from loopwright.ir.traversal import free_vars, substitute, walk
from loopwright.lowering.context import func_pass
from loopwright.lowering.nest.launch import is_launch


@func_pass(opt_level=0, name="ThreadSync")
def thread_sync(f: Func) -> Func:
    """Put barriers into every kernel.

    Raises:
        LowerError: threads would have to meet where only some of them come, or in a vector loop.
    """
    return f.with_body(_go(f.body))


def _go(s: Any) -> Any:
    if not isinstance(s, Stmt):
        return s
    return _kernel(s, []) if is_launch(s) else s.map_children(_go)


def _kernel(s: Any, threads: list[For]) -> Any:
    """A kernel: barriers go inside its launch loops and the buffers of a block."""
    if not isinstance(s, Stmt):
        return s
    if isinstance(s, Allocate) and s.buffer.scope == "shared":
        return s.map_children(lambda c: _kernel(c, threads))
    if is_launch(s):
        inner = [*threads, s] if s.tag.startswith("threadIdx") else threads
        return s.map_children(lambda c: _kernel(c, inner))
    return _Sync(threads, s).stmt(s, (), frozenset())[0]


Pins = frozenset[tuple[Var, int]]


@dataclass(frozen=True)
class _Access:
    """One read or write; ``pins`` are thread axes that a condition around it fixes.

    ``store`` is the identity of the statement that writes, 0 for a read.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    store: int
    pins: Pins


Pending = tuple[_Access, ...]


class _Sync:
    """Puts barriers into one kernel with the given thread loops.

    Attributes:
        varying: variables that may differ between threads at one time, or stand for two values
            (what fills a double buffer stands in two places).
        twice: those that are defined in two places.
        ranges, forms: bounds of variables, and definitions that are affine.
        rests: definitions ``form % n``, such as the half of a double buffer.
    """

    def __init__(self, threads: list[For], body: Stmt) -> None:
        self.extents = {x.var: x.extent for x in threads if x.extent > 1}
        self.varying: set[Var] = set(self.extents)
        self.ranges: dict[Var, Interval] = {x.var: (0, x.extent - 1) for x in threads}
        self.forms: dict[Var, Affine] = {}
        self.rests: dict[Var, tuple[Affine, int]] = {}
        self.barriers = 0
        made: Counter[Var] = Counter()
        walk(body, lambda n: made.update([n.var]) if isinstance(n, For | Let) else None)
        self.twice = {v for v, n in made.items() if n > 1}
        self.varying |= self.twice
        walk(body, self._survey)

    def _survey(self, n: Any) -> None:
        """Note what is known of a variable; definitions come before their uses."""
        if isinstance(n, For) and isinstance(n.extent, int):
            self._learn(n.var, (0, n.extent - 1))
        if not isinstance(n, Let) or not dtypes.is_int(n.var.dtype):
            return
        if free_vars(n.value) & self.varying or _loads(n.value):
            self.varying.add(n.var)
        if n.var in self.twice:
            return
        match n.value:
            case Binary(op="%", a=a, b=Const(value=m)):
                rest = self._form(a)
                self.rests |= {} if rest is None else {n.var: (rest, m)}
        form = self._form(n.value)
        self._learn(n.var, interval(n.value, self.forms, self.ranges))
        if form is not None:
            self.forms[n.var] = form

    def _learn(self, v: Var, bounds: Interval | None) -> None:
        if bounds is not None:
            self.ranges[v] = bounds

    def _form(self, e: Expr) -> Affine | None:
        return to_affine(e, self.forms, self.ranges)

    def stmt(self, s: Stmt, pending: Pending, pins: Pins) -> tuple[Stmt, Pending]:
        """The statement with barriers, and the accesses that are open after it.

        ``pending`` are those open before it.
        """
        match s:
            case Barrier():
                return s, ()
            case Seq(stmts=stmts):
                out = []
                for c in stmts:
                    made, pending = self.stmt(c, pending, pins)
                    out.append(made)
                return seq(*out), pending
            case Let(var=v, value=e, body=body) if not _together(s):
                before, pending = self._before(_reads(e, pins), pending)
                made, pending = self.stmt(body, pending, pins)
                return seq(*before, Let(v, e, made)), pending
            case Allocate(buffer=b, body=body):
                made, pending = self.stmt(body, pending, pins)
                return Allocate(b, made), pending
            case If():
                return self._branch(s, pending, pins)
            case For() if any(a.store for a in _accesses(s, pins)):
                return self._loop(s, pending, pins)
        before, pending = self._before(_accesses(s, pins), pending)
        return seq(*before, s), pending

    def _before(self, new: Pending, pending: Pending) -> tuple[list[Stmt], Pending]:
        """A barrier if some access conflicts with one before it, and what is open then."""
        if not any(self._conflict(a, b) for a in pending for b in new):
            return [], tuple(dict.fromkeys((*pending, *new)))
        self.barriers += 1
        return [Barrier("shared")], new

    def _branch(self, s: If, pending: Pending, pins: Pins) -> tuple[Stmt, Pending]:
        differs = bool(free_vars(s.cond) & self.varying) or _loads(s.cond)
        if not differs:
            # One barrier before the branch serves both ways through it.
            before, _ = self._before(_accesses(s, pins), pending)
            pending = () if before else pending
            then, after = self.stmt(s.then, pending, pins)
            orelse = s.orelse
            other = pending
            if orelse is not None:
                orelse, other = self.stmt(orelse, pending, pins)
            return seq(*before, If(s.cond, then, orelse)), tuple(dict.fromkeys((*after, *other)))
        inner = pins | _pinned(s.cond)
        new = _accesses(s, pins, inner)
        before, pending = self._before(new, pending)
        had = self.barriers
        for body, known in ((s.then, inner), (s.orelse, pins)):
            if body is not None:
                self.stmt(body, (), known)
        if self.barriers > had:
            names = ", ".join(dict.fromkeys(a.buffer.name for a in new))
            raise LowerError(
                f"lower: the threads of a block must meet while they use {names}, but only some of "
                f"them come there (if {print_expr(s.cond)}); compute the stage in shared memory "
                "outside of that condition, or make the extents of the thread axes equal"
            )
        return seq(*before, s), pending

    def _loop(self, s: For, pending: Pending, pins: Pins) -> tuple[Stmt, Pending]:
        had = self.barriers
        _, left = self.stmt(s.body, (), pins)
        carried = self._renamed(left, s)
        self.barriers = had
        alone, after_alone = self.stmt(s.body, carried, pins)
        inside = self.barriers
        self.barriers = had
        body, after = self.stmt(s.body, tuple(dict.fromkeys((*pending, *carried))), pins)
        before: list[Stmt] = []
        if self.barriers > inside:  # one before the loop serves, and costs less
            before, body, after = [Barrier("shared")], alone, after_alone
            self.barriers = inside + 1
        if inside > had and s.kind == "vectorized":
            raise LowerError(
                f"lower: the threads of a block must meet in the vectorized loop {s.var.name!r}; "
                "vectorize another loop"
            )
        return seq(*before, For(s.var, s.extent, s.kind, body, s.pragmas, s.tag)), after

    # ------------------------------------------------------------ conflicts

    def _conflict(self, a: _Access, b: _Access) -> bool:
        if a.buffer is not b.buffer or a.store == b.store:
            return False
        fixed = {v for v, _ in a.pins & b.pins}
        left = set(self.extents) - fixed
        for i, j in zip(a.indices, b.indices, strict=True):
            x, y = self._form(i), self._form(j)
            if x is not None and y is not None:
                if self._other_half(x, y):
                    return False
                left -= self._told(x, y, set(self.extents) - fixed)
        return bool(left)

    def _told(self, x: Affine, y: Affine, threads: set[Var]) -> set[Var]:
        """Thread variables that are the same in two threads of which this index is the same."""
        own = sorted((abs(c), v.name, v) for v, c in x.terms.items() if v in threads)
        if any(x.terms.get(v, 0) != y.terms.get(v, 0) for v in threads):
            return set()
        reach = self._gap(x, y, threads)
        for c, _, v in own:
            if reach is None or c <= reach:
                return set()
            reach += c * (self.extents[v] - 1)
        return {v for _, _, v in own}

    def _other_half(self, x: Affine, y: Affine) -> bool:
        """Whether two indices are remainders of numbers that differ by no multiple."""
        one, other = (self._rest(form) for form in (x, y))
        if one is None or other is None:
            return False
        (a, m), (b, n) = one, other
        apart = a - b
        return m == n and not apart.terms and apart.const % m != 0 and not self._differs(a)

    def _rest(self, x: Affine) -> tuple[Affine, int] | None:
        return next((self.rests.get(v) for v in x.terms if x == Affine.of(v)), None)

    def _differs(self, x: Affine) -> bool:
        return any(v in self.varying for v in x.terms)

    def _gap(self, x: Affine, y: Affine, threads: set[Var]) -> int | None:
        """How far two indices may be from each other by all that is not ``threads``."""
        lo = hi = x.const - y.const
        for v in (x.terms | y.terms).keys() - threads:
            c, d = x.terms.get(v, 0), y.terms.get(v, 0)
            # A variable is one value in all threads, or may differ; those of a launch that are
            # not in ``threads`` were fixed by the conditions around both accesses.
            parts = (c, -d) if v in self.varying and v not in self.extents else (c - d,)
            for k in parts:
                if k and v not in self.ranges:
                    return None
                ends = [k * n for n in self.ranges[v]] if k else [0]
                lo, hi = lo + min(ends), hi + max(ends)
        return max(abs(lo), abs(hi))

    def _renamed(self, pending: Pending, loop: For) -> Pending:
        """Accesses of an earlier iteration: variables of the loop, and in it, differed then."""
        own: dict[Var, Expr] = {}
        then: dict[Var, Affine] = {}

        def visit(n: Any) -> None:
            if not isinstance(n, For | Let):
                return
            own[n.var] = w = Var(n.var.name, n.var.dtype)
            then[n.var] = Affine.of(w)
            self._learn(w, self.ranges.get(n.var))
            self.varying |= {w} if n.var in self.varying else set()
            if n.var in self.forms:  # what it is made of has been renamed before
                self.forms[w] = self.forms[n.var].substitute(then)
            if n.var in self.rests:
                form, m = self.rests[n.var]
                self.rests[w] = form.substitute(then), m

        walk(loop, visit)
        return tuple(
            _Access(a.buffer, tuple(substitute(i, own) for i in a.indices), a.store, a.pins)
            for a in pending
        )


def _together(s: Stmt) -> bool:
    """Whether it reads everything into variables and then writes, as a reduction of tuples does.

    It is one statement then: nothing that it writes does it read.
    """
    while isinstance(s, Let):
        s = s.body
    stores = s.stmts if isinstance(s, Seq) else (s,)
    return all(isinstance(x, Store) and not _reads(x, frozenset()) for x in stores)


def _loads(e: Node) -> bool:
    found: list[Any] = []
    walk(e, lambda n: found.append(n) if isinstance(n, Load) else None)
    return bool(found)


def _reads(e: Node, pins: Pins) -> Pending:
    found: list[_Access] = []

    def visit(n: Any) -> None:
        if isinstance(n, Load) and n.buffer.scope == "shared":
            found.append(_Access(n.buffer, n.indices, 0, pins))

    walk(e, visit)
    return tuple(dict.fromkeys(found))


def _accesses(s: Any, pins: Pins, inner: Pins | None = None) -> Pending:
    """Accesses of shared memory in a statement; ``inner`` pins hold inside a branch's ``then``."""
    match s:
        case If(cond=c, then=then, orelse=orelse):
            known = pins | _pinned(c) if inner is None else inner
            other = () if orelse is None else _accesses(orelse, pins)
            out = (*_reads(c, pins), *_accesses(then, known), *other)
        case Store(buffer=b, indices=idx):
            own = (_Access(b, idx, id(s), pins),) if b.scope == "shared" else ()
            out = (*_reads(s, pins), *own)
        case _:
            parts = [
                _accesses(c, pins) if isinstance(c, Stmt) else _reads(c, pins) for c in s.children()
            ]
            out = tuple(a for p in parts for a in p)
    return tuple(dict.fromkeys(out))


def _pinned(cond: Expr) -> Pins:
    """Variables that a condition fixes: ``v == n``, or ``v < 1`` (thread variables start at 0)."""
    match cond:
        case Binary(op="and", a=a, b=b):
            return _pinned(a) | _pinned(b)
        case Binary(op="==", a=Var() as v, b=Const(value=n)):
            return frozenset({(v, int(n))})
        case Binary(op="<", a=Var() as v, b=Const(value=1)):
            return frozenset({(v, 0)})
    return frozenset()
