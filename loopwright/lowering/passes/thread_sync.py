"""ThreadSync: barriers between accesses of shared memory that must not overlap."""

# A write and another access of a buffer conflict unless one thread is known to do both: then some
# index tells threads apart, as ``threadIdx.x * 4 + i`` does for i below 4. A statement that
# conflicts with an access since the last barrier, or of the iteration before, gets a barrier before
# it. One store does not conflict with itself, as a stage writes each element once; two do, such as
# that of a buffer's padding and that of its elements (TVM's ThreadSync puts no barrier there).

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from loopwright import dtypes
from loopwright.errors import LowerError
from loopwright.ir.affine import Affine, Interval, interval, to_affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Const, Expr, Var
from loopwright.ir.node import Node, node
from loopwright.ir.printer import print_expr
from loopwright.ir.stmt import (
    Allocate,
    AsyncGroup,
    Barrier,
    For,
    Func,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    is_launch,
    map_statements,
    seq,
)
from loopwright.ir.visitor import contains, free_vars, nodes, substitute
from loopwright.lowering.context import func_pass


@func_pass(opt_level=0, name="ThreadSync")
def thread_sync(f: Func) -> Func:
    """Put barriers into every kernel; an error where only some threads come to one, or in a
    vectorized loop."""
    return f.with_body(_go(f.body))


def _go(s: Stmt) -> Stmt:
    return _kernel(s, []) if is_launch(s) else map_statements(s, _go)


def _kernel(s: Stmt, threads: list[For]) -> Stmt:
    """A kernel: barriers go inside its launch loops and the buffers of a block."""
    if isinstance(s, Allocate) and s.buffer.is_shared:
        return map_statements(s, lambda c: _kernel(c, threads))
    if is_launch(s):
        inner = [*threads, s] if s.tag.startswith("threadIdx") else threads
        return map_statements(s, lambda c: _kernel(c, inner))
    return _Sync(threads, s).stmt(s, (), frozenset())[0]


#: Thread axes that conditions fix, with their values.
Pins = frozenset[tuple[Var, int]]


@node
class _Access(Node):
    buffer: Buffer
    indices: tuple[Expr, ...]
    #: Identity of the statement that writes; 0 for a read.
    store: int
    #: Thread axes that a condition around the access fixes.
    pins: Pins


#: Accesses with which a later statement may conflict.
Pending = tuple[_Access, ...]


class _Sync:
    def __init__(self, threads: list[For], body: Stmt) -> None:
        #: Extents of the thread axes of more than one thread.
        self.extents = {x.var: x.count for x in threads if x.count > 1}
        #: Variables whose values may differ between threads at one time, or between two places of
        #: the program.
        self.varying: set[Var] = set(self.extents)
        self.ranges: dict[Var, Interval] = {x.var: (0, x.count - 1) for x in threads}
        #: Definitions that are affine.
        self.forms: dict[Var, Affine] = {}
        #: Definitions ``form % n``, such as the place of an iteration in a double buffer.
        self.remainders: dict[Var, tuple[Affine, int]] = {}
        #: Number of barriers so far.
        self.barriers = 0
        definitions = Counter(n.var for n in nodes(body) if isinstance(n, For | Let))
        #: Variables that are defined in two places, as in the copies of what fills a double buffer.
        self.twice = {v for v, n in definitions.items() if n > 1}
        self.varying |= self.twice
        for n in nodes(body):
            self._survey(n)

    def _survey(self, n: Node) -> None:
        if isinstance(n, For) and isinstance(n.extent, int):
            self._learn(n.var, (0, n.extent - 1))
        if not isinstance(n, Let) or not dtypes.is_int(n.var.dtype):
            return
        if free_vars(n.value) & self.varying or contains(n.value, Load):
            self.varying.add(n.var)
        if n.var in self.twice:
            return
        match n.value:
            case Binary(op="%", a=a, b=Const(value=m)):
                divided = self._form(a)
                self.remainders |= {} if divided is None else {n.var: (divided, m)}
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
        """A statement with its barriers, and the accesses since the last barrier after it."""
        match s:
            case Barrier(scope="warp"):
                return s, pending
            case Barrier():
                self.barriers += 1
                return s, ()
            case Seq(stmts=stmts):
                out = []
                for c in stmts:
                    synced, pending = self.stmt(c, pending, pins)
                    out.append(synced)
                return seq(*out), pending
            case Let(var=v, value=e, body=body) if not _reads_then_writes(s):
                before, pending = self._before(_reads(e, pins), pending)
                synced, pending = self.stmt(body, pending, pins)
                return seq(*before, Let(v, e, synced)), pending
            case Allocate(buffer=b, body=body):
                synced, pending = self.stmt(body, pending, pins)
                return Allocate(b, synced), pending
            case AsyncGroup(body=body):
                synced, pending = self.stmt(body, pending, pins)
                return AsyncGroup(synced), pending
            case If():
                if free_vars(s.cond) & self.varying or contains(s.cond, Load):
                    return self._divergent_branch(s, pending, pins)
                # One barrier before the branch serves both ways through it.
                before, _ = self._before(_accesses(s, pins), pending)
                pending = () if before else pending
                then, after = self.stmt(s.then, pending, pins)
                orelse, other = s.orelse, pending
                if orelse is not None:
                    orelse, other = self.stmt(orelse, pending, pins)
                return seq(*before, If(s.cond, then, orelse)), tuple(
                    dict.fromkeys((*after, *other))
                )
            case For() if any(a.store for a in _accesses(s, pins)):
                return self._loop(s, pending, pins)
        before, pending = self._before(_accesses(s, pins), pending)
        return seq(*before, s), pending

    def _before(self, new: Pending, pending: Pending) -> tuple[list[Stmt], Pending]:
        """A barrier if a new access conflicts with a pending one, and what is pending then."""
        if not any(self._conflict(a, b) for a in pending for b in new):
            return [], tuple(dict.fromkeys((*pending, *new)))
        self.barriers += 1
        return [Barrier("shared")], new

    def _divergent_branch(self, s: If, pending: Pending, pins: Pins) -> tuple[Stmt, Pending]:
        """A branch that only some of the threads take: no barrier may stand in it."""
        inner = pins | _pinned(s.cond)
        new = _accesses(s, pins)
        before, pending = self._before(new, pending)
        had = self.barriers
        self.stmt(s.then, (), inner)
        if s.orelse is not None:
            self.stmt(s.orelse, (), pins)
        if self.barriers > had:
            names = ", ".join(dict.fromkeys(a.buffer.name for a in new))
            raise LowerError(
                f"lower: the threads of a block must meet while they use {names}, but only some of "
                f"them come there (if {print_expr(s.cond)}); compute the stage in shared memory "
                "outside of that condition, or make the extents of the thread axes equal"
            )
        return seq(*before, s), pending

    def _loop(self, s: For, pending: Pending, pins: Pins) -> tuple[Stmt, Pending]:
        # Its body is tried twice: ``alone``, after accesses of the iteration before, and after
        # those before the loop as well. If the latter needs more barriers, one before it serves.
        had = self.barriers
        _, left = self.stmt(s.body, (), pins)
        carried = self._renamed(left, s)
        self.barriers = had
        alone, after_alone = self.stmt(s.body, carried, pins)
        inside = self.barriers
        self.barriers = had
        body, after = self.stmt(s.body, tuple(dict.fromkeys((*pending, *carried))), pins)
        before: list[Stmt] = []
        if self.barriers > inside:
            before, body, after = [Barrier("shared")], alone, after_alone
            self.barriers = inside + 1
        if inside > had and s.kind == "vectorized":
            raise LowerError(
                f"lower: the threads of a block must meet in the vectorized loop {s.var.name!r}; "
                "vectorize another loop"
            )
        return seq(*before, s.with_body(body)), after

    def _conflict(self, a: _Access, b: _Access) -> bool:
        """Whether two threads may touch one element by these accesses, and one of them writes."""
        if a.buffer is not b.buffer or a.store == b.store:
            return False
        threads = set(self.extents) - {v for v, _ in a.pins & b.pins}
        # Thread axes that may differ between two threads that touch one element.
        differing = set(threads)
        for i, j in zip(a.indices, b.indices, strict=True):
            x, y = self._form(i), self._form(j)
            if x is None or y is None:
                continue
            apart = x - y
            # At a constant distance, as places filled before a loop are.
            if not apart.terms and apart.const != 0 and not self._differs(x):
                return False
            if self._in_other_place(x, y):
                return False
            differing -= self._determined(x, y, threads)
        return bool(differing)

    def _determined(self, x: Affine, y: Affine, threads: set[Var]) -> set[Var]:
        """Thread axes that must be equal in two threads whose indices x and y are equal."""
        own = sorted((abs(c), v.name, v) for v, c in x.terms.items() if v in threads)
        if any(x.terms.get(v, 0) != y.terms.get(v, 0) for v in threads):
            return set()
        reach = self._gap(x, y, threads)
        for c, _, v in own:
            if reach is None or c <= reach:
                return set()
            reach += c * (self.extents[v] - 1)
        return {v for _, _, v in own}

    def _in_other_place(self, x: Affine, y: Affine) -> bool:
        """Whether two indices are different remainders, as the places of a double buffer are."""
        one, other = (
            next((self.remainders.get(v) for v in form.terms if form == Affine.of(v)), None)
            for form in (x, y)
        )
        # A number below the divisor is its own remainder.
        one = one or (other and self._itself(x, other[1]))
        other = other or (one and self._itself(y, one[1]))
        if one is None or other is None:
            return False
        (a, m), (b, n) = one, other
        apart = a - b
        return m == n and not apart.terms and apart.const % m != 0 and not self._differs(a)

    def _itself(self, x: Affine, divisor: int) -> tuple[Affine, int] | None:
        known = all(v in self.ranges for v in x.terms)
        low, high = x.bounds(self.ranges) if known else (-1, divisor)
        return (x, divisor) if low >= 0 and high < divisor else None

    def _differs(self, x: Affine) -> bool:
        return any(v in self.varying for v in x.terms)

    def _gap(self, x: Affine, y: Affine, threads: set[Var]) -> int | None:
        """The largest distance of two indices, thread axes aside; None if that is not known."""
        lo = hi = x.const - y.const
        for v, k in self._differences(x, y, threads):
            if v not in self.ranges:
                return None
            ends = [k * n for n in self.ranges[v]]
            lo, hi = lo + min(ends), hi + max(ends)
        return max(abs(lo), abs(hi))

    def _differences(self, x: Affine, y: Affine, threads: set[Var]) -> Iterator[tuple[Var, int]]:
        """The terms of ``x - y`` over other variables than ``threads``."""
        # A variable that may differ between the two gives a term for each of them. Thread axes that
        # are not in ``threads`` do not differ: conditions around both accesses fix them.
        for v in (x.terms | y.terms).keys() - threads:
            c, d = x.terms.get(v, 0), y.terms.get(v, 0)
            differs = v in self.varying and v not in self.extents
            yield from ((v, k) for k in ((c, -d) if differs else (c - d,)) if k)

    def _renamed(self, pending: Pending, loop: For) -> Pending:
        """The accesses as those of an earlier iteration: variables of the loop, and those defined
        in it, are replaced by others, as they had other values then."""
        own: dict[Var, Expr] = {}
        then: dict[Var, Affine] = {}
        for n in (n for n in nodes(loop) if isinstance(n, For | Let)):
            own[n.var] = w = Var(n.var.name, n.var.dtype)
            then[n.var] = Affine.of(w)
            self._learn(w, self.ranges.get(n.var))
            self.varying |= {w} if n.var in self.varying else set()
            if n.var in self.forms:  # its variables have been renamed before
                self.forms[w] = self.forms[n.var].substitute(then)
            if n.var in self.remainders:
                form, m = self.remainders[n.var]
                self.remainders[w] = form.substitute(then), m
        return tuple(
            _Access(a.buffer, tuple(substitute(i, own) for i in a.indices), a.store, a.pins)
            for a in pending
        )


def _reads_then_writes(s: Stmt) -> bool:
    """Whether a statement reads all before it writes, as a reduction of tuples does."""
    while isinstance(s, Let):
        s = s.body
    stores = s.stmts if isinstance(s, Seq) else (s,)
    return all(isinstance(x, Store) and not _reads(x, frozenset()) for x in stores)


def _reads(n: Node, pins: Pins) -> Pending:
    loads = (x for x in nodes(n) if isinstance(x, Load) and x.buffer.is_shared)
    return tuple(dict.fromkeys(_Access(x.buffer, x.indices, 0, pins) for x in loads))


def _accesses(s: Stmt, pins: Pins) -> Pending:
    match s:
        case If(cond=c, then=then, orelse=orelse):
            other = () if orelse is None else _accesses(orelse, pins)
            out = (*_reads(c, pins), *_accesses(then, pins | _pinned(c)), *other)
        case Store(buffer=b, indices=idx):
            own = (_Access(b, idx, id(s), pins),) if b.is_shared else ()
            out = (*_reads(s, pins), *own)
        case _:
            parts = [
                _accesses(c, pins) if isinstance(c, Stmt) else _reads(c, pins) for c in s.children()
            ]
            out = tuple(a for p in parts for a in p)
    return tuple(dict.fromkeys(out))


def _pinned(cond: Expr) -> Pins:
    """Variables that a condition fixes: ``v == n``, or ``v < 1`` (thread axes start at 0)."""
    match cond:
        case Binary(op="and", a=a, b=b):
            return _pinned(a) | _pinned(b)
        case Binary(op="==", a=Var() as v, b=Const(value=n)):
            return frozenset({(v, int(n))})
        case Binary(op="<", a=Var() as v, b=Const(value=1)):
            return frozenset({(v, 0)})
    return frozenset()
