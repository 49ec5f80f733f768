"""The interpreter: the meaning of a function of the loop IR, and the slow oracle of the tests."""

# A function is written out as Python source, one scalar operation at a time, and run on NumPy
# arrays. Every access is checked against its buffer, allocations are filled with NaN (integers with
# a pattern), parallel and vector loops run one iteration after the other.
#
# Arithmetic is that of the dtype: each operation rounds, integers wrap, integer division by zero
# gives zero with no trap (as it does in padded lanes of compiled code). Values are NumPy scalars;
# arithmetic on axes that is known not to wrap runs on Python integers.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

import numpy as np

from loopwright import dtypes
from loopwright.errors import LowerError, RunError
from loopwright.ir.affine import Interval, exact, fits, interval
from loopwright.ir.buffer import AnyExpr, Buffer, Load
from loopwright.ir.expr import (
    COMPARE,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    IfThenElse,
    Select,
    Unary,
    Var,
    as_expr,
)
from loopwright.ir.interp.threads import Grid, Races
from loopwright.ir.interp.values import NAMES, getter, intrinsic
from loopwright.ir.kinds import WARP_SIZE
from loopwright.ir.sizes import Sizes, evaluate, solve
from loopwright.ir.stmt import (
    Allocate,
    AllReduce,
    AnyStmt,
    AsyncGroup,
    AsyncWait,
    Barrier,
    CallPacked,
    Check,
    For,
    Func,
    If,
    IntrinsicCall,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    View,
)


def interpret(
    f: Func,
    arrays: Sequence[np.ndarray[Any, Any]],
    sizes: Mapping[str, int] | None = None,
    thread_order: int | None = None,
    races: bool = False,
) -> None:
    """Run a function on NumPy arrays, one for each parameter; outputs are written in place.

    ``sizes`` has by name the size variables that no dimension tells. ``thread_order`` seeds a
    random order of blocks, and of the threads of a block between two barriers, so that a missing
    barrier shows (None: ascending). With ``races``, two threads that touch one element with no
    barrier between, one of them writing, are an error.
    """
    if len(arrays) != len(f.params):
        raise RunError(f"{f.name}: takes {len(f.params)} arrays, got {len(arrays)}")
    shapes = [(p.shape, a.shape) for p, a in zip(f.params, arrays, strict=True)]
    values = solve(f.sizes, shapes, sizes or {})
    missing = [v.name for v in f.sizes if v not in values]
    if missing:
        raise RunError(f"{f.name}: no array tells the size {missing[0]!r}; give it in sizes")
    for p, a in zip(f.params, arrays, strict=True):
        shape = tuple(evaluate(n, values) for n in p.shape)
        if a.shape != shape or a.dtype != np.dtype(p.dtype):
            raise RunError(
                f"{f.name}: {p.name} is {p.dtype}{list(shape)}, got {a.dtype}{list(a.shape)}"
            )
    run = prepare(f, Grid(thread_order, Races() if races else None))
    with np.errstate(all="ignore"):
        run(*arrays, *(values[v] for v in f.sizes))


def prepare(f: Func, grid: Grid | None = None) -> Callable[..., None]:
    """A function as Python, called with one array a parameter, then the sizes; nothing checks
    these."""
    return _PythonWriter(grid or Grid()).function(f)


class _PythonWriter:
    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.barriers: list[str] | None = None  # scopes, of the kernel being written
        self.asynchronous = 0  # how many asynchronous groups are around
        self.in_warps = False  # whether that kernel's threads are lanes of warps
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {**NAMES, "_grid": grid, "_races": grid.races}
        self.inputs: frozenset[Buffer] = frozenset()
        self.names: dict[Var | Buffer, str] = {}
        self.ranges: dict[Var, Interval] = {}
        self.loops = 0
        self.kernels = 0

    def function(self, f: Func) -> Callable[..., None]:
        self.inputs = frozenset(f.inputs)
        params = ", ".join([*map(self.name, f.params), *map(self.name, f.sizes)])
        self.ranges |= Sizes.of_function(f.sizes, [n for p in f.params for n in p.shape]).ranges
        self.stmt(f.body, 1)
        source = f"def run({params}):\n" + "\n".join(self.lines or ["    pass"])
        try:
            code = compile(source, f"<interpreted {f.name}>", "exec")
        except (SyntaxError, RecursionError, MemoryError) as e:
            raise LowerError(f"{f.name} nests too deeply to be interpreted ({e})") from None
        exec(code, self.scope)
        run: Callable[..., None] = self.scope["run"]
        return run

    def name(self, x: Var | Buffer) -> str:
        return self.names.setdefault(x, f"x{len(self.names)}")

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def stmt(self, s: Stmt, d: int) -> None:
        if not isinstance(s, AnyStmt) or isinstance(s, AllReduce):
            raise LowerError(f"the interpreter does not know {type(s).__name__}")
        match s:
            case Seq(stmts=stmts):
                for x in stmts:
                    self.stmt(x, d)
                if not stmts:
                    self.put(d, "pass")
            case For():
                self.loop(s, d)
            case Let(var=v, value=e, body=b):
                self.let(v, e, d)
                self.stmt(b, d)
            case If(cond=c, then=t, orelse=o):
                self.put(d, f"if {self.expr(c)}:")
                self.stmt(t, d + 1)
                if o is not None:
                    self.put(d, "else:")
                    self.stmt(o, d + 1)
            case Store(buffer=b, indices=idx, value=v):
                self.put(d, "_i = (" + "".join(f"{self.index(i)}," for i in idx) + ")")
                self.check(b, d)
                which = f"{self.name(b)!r}, {b.name!r}, {b.scope!r}"
                if self.asynchronous and b.is_shared:
                    self.put(d, f"_async.store({self.name(b)}, _i, {self.expr(v)}, {which})")
                else:
                    self.put(d, f"{self.name(b)}[_i] = {self.expr(v)}")
                if self.watched(b):
                    self.put(d, f"_races.touch({which}, _i, True)")
            case Allocate(buffer=b, body=body):
                self.allocate(b, d)
                self.stmt(body, d)
            case Check(cond=c, text=text, values=values):
                arguments = "".join(f", {self.index(v)}" for v in values)
                self.put(d, f"if not {self.expr(c)}: _failed({text!r}{arguments})")
            case CallPacked(name=name, args=args):
                arguments = "".join(f", {self.passed(x)}" for x in args)
                self.put(d, f"_call_packed({name!r}{arguments})")
            case View(buffer=b, of=of, offset=k, body=body):
                where = f"{self.name(of)}, {k}, {b.shape!r}, {b.dtype!r}"
                self.put(d, f"{self.name(b)} = _view({where})")
                self.stmt(body, d)
            case Prefetch(indices=idx):  # a hint: its indices are computed, nothing is touched
                self.put(d, "_i = (" + "".join(f"{self.index(i)}," for i in idx) + ")")
            case Barrier(scope=scope):
                self.barrier(scope, d)
            case IntrinsicCall(body=body):
                self.stmt(body, d)
            case AsyncGroup(body=body):
                self.asynchronous += 1
                self.stmt(body, d)
                self.asynchronous -= 1
                self.put(d, "_async.commit()")
            case AsyncWait(pending=n):
                self.put(d, f"_async.wait({n})")
            case _:
                assert_never(s)

    def passed(self, x: Buffer | Expr | str) -> str:
        if isinstance(x, str):
            return repr(x)
        if isinstance(x, Buffer):
            return f"_input({self.name(x)})" if x in self.inputs else self.name(x)
        return self.expr(x)

    def let(self, v: Var, e: Expr, d: int) -> None:
        """Write a let: axis arithmetic as a Python integer of known range, else a NumPy scalar."""
        if e.dtype != v.dtype:
            raise LowerError(f"{v.name!r} is {v.dtype}; it cannot be bound to a value of {e.dtype}")
        bounds = interval(e, {}, self.ranges)
        if self.is_plain(e) and bounds is not None:
            self.put(d, f"{self.name(v)} = {self.plain(e)}")
            self.ranges[v] = bounds
        else:
            self.put(d, f"{self.name(v)} = {self.expr(e)}")
            self.ranges.pop(v, None)

    def loop(self, s: For, d: int) -> None:
        if s.kind == "thread" and s.tag.startswith(("blockIdx", "threadIdx")):
            self.kernel(s, d)
            return
        self.enter(s)
        self.loops += 1
        if self.loops % 15 == 0:  # Python nests at most 20 loops in one function
            self.put(d, f"def _f{self.loops}():")
            self.loop(s, d + 1)
            if self.barriers is not None:
                self.put(d + 1, "if False: yield")
            self.put(d, f"{'yield from ' if self.barriers is not None else ''}_f{self.loops}()")
        else:
            self.put(d, f"for {self.name(s.var)} in range({self.count(s)}):")
            self.stmt(s.body, d + 1)
        self.loops -= 1

    def enter(self, s: For) -> None:
        extent = interval(as_expr(s.extent), {}, self.ranges) or (1, 1 << 31)
        self.ranges[s.var] = (0, extent[1] - 1)

    def dim(self, n: Dim) -> str:
        return str(n) if isinstance(n, int) else self.index(n)

    def count(self, s: For) -> str:
        # Compiled code relies on there being one iteration.
        n = self.dim(s.extent)
        return n if isinstance(s.extent, int) else f"_at_least_one({n}, {s.var.name!r})"

    def kernel(self, s: For, d: int) -> None:
        if self.barriers is not None:
            raise LowerError(
                f"thread loop {s.var.name!r} stands inside a kernel; launch it outside"
            )
        self.barriers, outer = [], self.loops
        k, self.kernels = self.kernels, self.kernels + 1
        blocks, body = self.axes(s, "blockIdx")
        self.put(d, f"def _block{k}({', '.join(self.name(x.var) for x in blocks)}):")
        while isinstance(body, Allocate) and body.buffer.is_shared:
            self.allocate(body.buffer, d + 1)
            body = body.body
        threads, body = self.axes(body, "threadIdx")
        last = threads[-1] if threads else None
        self.in_warps = last is not None and (last.tag, last.extent) == ("threadIdx.x", WARP_SIZE)
        self.put(d + 1, f"def _thread({', '.join(self.name(x.var) for x in threads)}):")
        self.loops = 0
        self.put(d + 2, "_async = _AsyncStores(_races)")
        self.stmt(body, d + 2)
        self.put(d + 2, "_async.end()")
        self.put(d + 2, "if False: yield")
        self.put(d + 1, "return _thread")
        grid, block = (", ".join(self.count(x) for x in axes) for axes in (blocks, threads))
        self.put(d, f"_grid.run(_block{k}, [{grid}], [{block}], {self.barriers})")
        self.barriers, self.loops, self.in_warps = None, outer, False

    def allocate(self, b: Buffer, d: int) -> None:
        """Write new memory; that of a warp is made by the first of its lanes that comes here."""
        shape = "".join(f"{self.dim(n)}, " for n in b.shape)
        fresh = f"_fresh(({shape}), {b.dtype!r})"
        if b.scope == "warp":
            self.need_warps(f"{b.name!r}, a buffer of scope warp,")
            fresh = f"_grid.of_warp({self.name(b)!r}, lambda: {fresh})"
        self.put(d, f"{self.name(b)} = {fresh}")

    def need_warps(self, what: str) -> None:
        if not self.in_warps:
            raise LowerError(
                f"{what} needs a kernel whose threadIdx.x has {WARP_SIZE} threads, the lanes of a "
                "warp"
            )

    def axes(self, s: Stmt, prefix: str) -> tuple[list[For], Stmt]:
        out: list[For] = []
        while isinstance(s, For) and s.kind == "thread" and s.tag.startswith(prefix):
            self.enter(s)
            out.append(s)
            s = s.body
        return out, s

    def barrier(self, scope: str, d: int) -> None:
        if self.barriers is None:
            raise LowerError(f"barrier({scope}) stands outside of every kernel")
        if scope == "warp":
            self.need_warps("barrier(warp)")
        self.put(d, f"yield {len(self.barriers)}")
        self.barriers.append(scope)

    def watched(self, b: Buffer) -> bool:
        return self.barriers is not None and self.grid.races is not None and b.scope != "local"

    def index(self, e: Expr) -> str:
        return self.plain(e) if self.is_plain(e) else f"int({self.expr(e)})"

    def is_plain(self, e: Expr) -> bool:
        return exact(e, {}, self.ranges) and fits(e, {}, self.ranges)

    def plain(self, e: Expr) -> str:
        match e:
            case Var():
                return self.name(e)
            case Const(value=v):
                return f"({v})"
            case Cast(value=v):
                return self.plain(v)
            case Unary(a=a):
                return f"(-{self.plain(a)})"
            case Binary(op=op, a=a, b=b):
                return _binary(op, self.plain(a), self.plain(b))
        raise LowerError(f"{type(e).__name__} is not arithmetic on axes")

    def check(self, b: Buffer, d: int) -> None:
        if b.shape:
            shape = f"{self.name(b)}.shape" if b.symbolic else repr(b.shape)
            sizes = [f"{shape}[{k}]" if b.symbolic else n for k, n in enumerate(b.shape)]
            test = " and ".join(f"0 <= _i[{k}] < {n}" for k, n in enumerate(sizes))
            self.put(d, f"if not ({test}): _outside({b.name!r}, _i, {shape})")

    def expr(self, e: Expr) -> str:
        """Source of a value as a NumPy scalar of its dtype."""
        if not isinstance(e, AnyExpr):
            raise LowerError(f"the interpreter does not know {type(e).__name__}")
        match e:
            case Var():
                return self.name(e) if e not in self.ranges else f"_{e.dtype}({self.name(e)})"
            case Const(value=v, dtype=d):
                name = f"_c{len(self.scope)}"
                self.scope[name] = np.dtype(d).type(v)
                return name
            case Binary(dtype=d) if dtypes.is_int(d) and self.is_plain(e):
                return f"_cast({self.plain(e)}, {d!r})"
            case Cast(value=v, dtype=d):
                return f"_cast({self.expr(v)}, {d!r})"
            case Unary(op="-" | "~" | "not" as op, a=a):
                return f"({op}{' ' if op == 'not' else ''}{self.expr(a)})"
            case Unary(op=op):
                raise LowerError(f"the interpreter does not know the operation {op!r}")
            case Binary(op=op, a=a, b=b):
                if op in COMPARE and self.is_plain(a) and self.is_plain(b):
                    return _binary(op, self.plain(a), self.plain(b))
                return _binary(op, self.expr(a), self.expr(b))
            case Select(cond=c, a=a, b=b):
                return f"_select({self.expr(c)}, {self.expr(a)}, {self.expr(b)})"
            case IfThenElse(cond=c, a=a, b=b):
                return f"({self.expr(a)} if {self.expr(c)} else {self.expr(b)})"
            case Call(fn="reinterpret", args=(a,), dtype=d):
                return f"{self.expr(a)}.view({d!r})"
            case Call(fn=fn, args=args):
                self.scope[f"_call_{fn}"] = intrinsic(fn)
                return f"_call_{fn}({', '.join(self.expr(a) for a in args)})"
            case Load(buffer=b, indices=idx):
                races = self.grid.races if self.watched(b) else None
                get = f"_get{'' if races is None else '_watched'}_{self.name(b)}"
                if get not in self.scope:
                    self.scope[get] = getter(b, self.name(b), races)
                return f"{get}({self.name(b)}{''.join(f', {self.index(i)}' for i in idx)})"
            case _:
                assert_never(e)


def _binary(op: str, a: str, b: str) -> str:
    if op in ("and", "or"):  # both sides are evaluated, as in compiled code
        return f"({a} {'&' if op == 'and' else '|'} {b})"
    if op in ("+", "-", "*", "/", "&", "|", "^", *COMPARE):
        return f"({a} {op} {b})"
    name = {
        "//": "_floordiv", "%": "_floormod", "tdiv": "_truncdiv", "tmod": "_truncmod",
        "min": "_min", "max": "_max", "<<": "_shift_left", ">>": "_shift_right",
    }[op]  # fmt: skip
    return f"{name}({a}, {b})"
