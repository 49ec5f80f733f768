"""Well-formedness of functions of the loop IR, which every pass may rely on and must keep."""

# Checked are names (a variable is defined before it is used and once on each path, a buffer exists
# where it is touched), accesses (one integer index for each dimension, element types), types of
# expressions, loops (extent, kind), and that the iterations of a parallel or vectorized loop write
# different elements. Bounds are not checked: `instrument_bound_checkers` does that while a program
# runs.

from __future__ import annotations

from typing import NoReturn, assert_never

from loopwright import dtypes
from loopwright.errors import LowerError, TensorError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import (
    COMPARE,
    OPERATIONS,
    Binary,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Read,
    Select,
    Unary,
    Var,
)
from loopwright.ir.instructions import INSTRUCTIONS
from loopwright.ir.kinds import LOOP_KINDS
from loopwright.ir.node import Node, same
from loopwright.ir.printer import print_expr, print_stmt
from loopwright.ir.reduction import Reduce
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


def verify(f: Func, when: str = "") -> None:
    """Refuse a malformed function; ``when`` says what was done to it last: ``"after pass P"``."""
    if len(f.params) != len(f.outputs):
        _Verifier(f, when).fail(f"{len(f.params)} parameters, but {len(f.outputs)} output marks")
    verifier = _Verifier(f, when)
    for v in f.sizes:
        verifier.define(v, frozenset())
    for p in f.params:
        verifier.define_buffer(p)
    verifier.stmt(f.body)


class _Verifier:
    def __init__(self, f: Func, when: str) -> None:
        self.f, self.when = f, when
        self.buffers: set[Buffer] = set()
        # Defined variables, each with the variables of loops on which its value depends.
        self.vars: dict[Var, frozenset[Var]] = {}
        self.at: Node = f
        # Loops whose iterations run at once, with the buffers that exist outside them.
        self.apart: list[tuple[For, set[Buffer]]] = []
        self.guards: list[frozenset[Var]] = []
        self.launches = 0

    def fail(self, what: str) -> NoReturn:
        when = f" {self.when}" if self.when else ""
        text = print_stmt(self.at).partition("\n")[0] if isinstance(self.at, Stmt) else ""
        shown = f", in: {text}" if text else ""
        raise LowerError(f"verify{when}: function {self.f.name!r}: {what}{shown}")

    # ------------------------------------------------------------ names

    def define_buffer(self, b: Buffer) -> None:
        if b in self.buffers:
            self.fail(f"buffer {b.name!r} is allocated where it already exists")
        if any(isinstance(n, int) and n < 0 for n in b.shape):
            self.fail(f"buffer {b.name!r} has the shape {list(b.shape)}")
        for n in b.shape:
            if isinstance(n, Expr):
                self.value(n)
        self.buffers.add(b)

    def define(self, v: Var, depends: frozenset[Var]) -> None:
        if v in self.vars:
            self.fail(f"variable {v.name!r} is defined where it already is")
        self.vars[v] = depends

    def depends(self, *es: Expr) -> frozenset[Var]:
        loops: set[Var] = set()
        stack: list[Node] = list(es)
        while stack:
            e = stack.pop()
            if isinstance(e, Var):
                loops |= self.vars.get(e, frozenset())
            else:
                stack.extend(e.children())
        return frozenset(loops)

    # ------------------------------------------------------------ statements

    def stmt(self, s: Node) -> None:
        outer, self.at = self.at, s
        if isinstance(s, AnyStmt):
            self.known(s)
        else:  # a statement of an extension
            self.other(s)
        self.at = outer

    def known(self, s: AnyStmt) -> None:
        match s:
            case For():
                self.loop(s)
            case Let(var=v, value=e, body=body):
                self.value(e)
                if v.dtype != e.dtype:
                    self.fail(f"{v.name!r} is {v.dtype}, its value {e.dtype}")
                self.define(v, self.depends(e))
                self.stmt(body)
                del self.vars[v]
            case If(cond=c, then=then, orelse=other):
                self.value(c)
                self.typed(c, "bool", "the condition")
                self.guards.append(self.depends(c))
                self.stmt(then)
                if other is not None:
                    self.stmt(other)
                self.guards.pop()
            case Store(buffer=b, indices=indices, value=e):
                self.value(e)
                self.access(b, indices)
                self.typed(e, b.dtype, f"the value stored in {b.name!r}")
                self.own_place(b, indices)
            case Allocate(buffer=b, body=body):
                self.define_buffer(b)
                self.stmt(body)
                self.buffers.discard(b)
            case Check(cond=c):
                self.other(s)
                self.typed(c, "bool", "the condition")
            case View(buffer=b, of=of, offset=k, body=body):
                if of not in self.buffers:
                    self.fail(f"buffer {of.name!r} is touched where it does not exist")
                if of.dtype != "uint8" or k < 0 or k + b.nbytes > of.nbytes:
                    self.fail(f"{b.name!r} ({b.nbytes} bytes) at {k} is not inside {of!r}")
                self.define_buffer(b)
                self.stmt(body)
                self.buffers.discard(b)
            case Prefetch(buffer=b, indices=indices):
                self.access(b, indices)
            case Barrier():
                self.in_kernel("a barrier")
            case AllReduce(buffers=buffers, indices=indices):
                self.in_kernel("a reduction across threads")
                for b in buffers:
                    self.access(b, indices)
            case AsyncGroup():
                self.in_kernel("an asynchronous copy")
                self.other(s)
            case AsyncWait():
                self.in_kernel("the wait for asynchronous copies")
            case IntrinsicCall(name=name, operands=operands):
                self.instruction(name, operands)
                self.other(s)
            case CallPacked(buffers=buffers):
                for b in buffers:
                    if b not in self.buffers:
                        self.fail(f"buffer {b.name!r} is touched where it does not exist")
                    if b.strides is not None:
                        self.fail(f"buffer {b.name!r} has gaps, and is passed to a function")
                self.other(s)
            case Seq():
                self.other(s)
            case _:
                assert_never(s)

    def instruction(self, name: str, operands: tuple[Expr, ...]) -> None:
        instruction = INSTRUCTIONS.get(name)
        if instruction is None:
            self.fail(f"the instruction {name!r} is unknown")
        types = [x.dtype if isinstance(x, Load) else type(x).__name__ for x in operands]
        want = [x.dtype for x in instruction.operands]
        if types != want:
            self.fail(f"the operands of {name!r} are {', '.join(types)}, not {', '.join(want)}")

    def other(self, s: Node) -> None:
        if not isinstance(s, Stmt):
            self.fail(f"a {type(s).__name__} stands where a statement belongs")
        for c in s.children():
            if isinstance(c, Expr):
                self.value(c)
            else:
                self.stmt(c)

    def loop(self, s: For) -> None:
        if s.kind not in LOOP_KINDS:
            self.fail(f"loop {s.var.name!r} is of the unknown kind {s.kind!r}")
        if isinstance(s.extent, int) and s.extent < 1:
            self.fail(f"loop {s.var.name!r} has the extent {s.extent}")
        if isinstance(s.extent, Expr):
            self.value(s.extent)
            if s.kind in ("vectorized", "unrolled"):
                self.fail(f"the {s.kind} loop {s.var.name!r} has no constant extent")
        if (s.kind == "thread") != bool(s.tag):
            self.fail(f"loop {s.var.name!r} is {s.kind} and has the thread tag {s.tag!r}")
        if not dtypes.is_int(s.var.dtype):
            self.fail(f"the variable of loop {s.var.name!r} is {s.var.dtype}")
        self.define(s.var, frozenset({s.var}))
        launch = s.kind == "thread" and s.tag != "vthread"
        apart = (launch or s.kind in ("parallel", "vectorized")) and not same(s.extent, 1)
        self.launches += launch
        if apart:
            self.apart.append((s, set(self.buffers)))
        self.stmt(s.body)
        if apart:
            self.apart.pop()
        self.launches -= launch
        del self.vars[s.var]

    def in_kernel(self, what: str) -> None:
        if not self.launches:
            self.fail(f"{what} stands outside of every kernel")

    def own_place(self, b: Buffer, indices: tuple[Expr, ...]) -> None:
        """Refuse a store by which iterations that run at once all write one element."""
        if not self.apart:
            return
        on = self.depends(*indices).union(*self.guards)
        for s, outside in self.apart:
            if b in outside and s.var not in on:
                self.fail(
                    f"every iteration of the {s.kind} loop {s.var.name!r} writes the same element "
                    f"of {b.name!r}"
                )

    # ------------------------------------------------------------ expressions

    def value(self, e: Node) -> None:
        if not isinstance(e, Expr):
            self.fail(f"a {type(e).__name__} stands where an expression belongs")
        match e:
            case Var():
                if e not in self.vars:
                    self.fail(f"variable {e.name!r} is used where it is not defined")
                return
            case Const(value=v, dtype=d):
                lo, hi = dtypes.limits(d)
                if not dtypes.is_float(d) and not lo <= v <= hi:
                    self.fail(f"the literal {v!r} is no {d}")
                return
            case Load(buffer=b, indices=indices, dtype=d):
                self.access(b, indices)
                if d != b.dtype:
                    self.fail(f"an element of {b.name!r} ({b.dtype}) is loaded as {d}")
                return
            case Read() | Reduce():
                self.fail(f"a {type(e).__name__} is left from the tensor expression")
        for c in e.children():
            self.value(c)
        self.types(e)

    def types(self, e: Expr) -> None:
        match e:
            case Binary(op=op, a=a, b=b, dtype=d):
                if op not in OPERATIONS:
                    self.fail(f"the operation {op!r} is unknown")
                if a.dtype != b.dtype:
                    self.fail(f"{op!r} of {a.dtype} and {b.dtype}: {print_expr(e)}")
                if op in ("and", "or"):
                    self.typed(a, "bool", f"an operand of {op!r}")
                if d != ("bool" if op in COMPARE else a.dtype):
                    self.fail(f"{op!r} of {a.dtype} is marked {d}: {print_expr(e)}")
            case Unary(op=op, a=a, dtype=d):
                if d != a.dtype or (op == "not" and d != "bool"):
                    self.fail(f"{op!r} of {a.dtype} is marked {d}: {print_expr(e)}")
            case Select(cond=c, a=a, b=b, dtype=d) | IfThenElse(cond=c, a=a, b=b, dtype=d):
                self.typed(c, "bool", "the condition")
                self.typed(a, d, "what a choice takes")
                self.typed(b, d, "what a choice takes")
            case Cast(dtype=d):
                try:
                    dtypes.check(d)
                except TensorError as error:
                    self.fail(str(error))

    def typed(self, e: Expr, dtype: str, what: str) -> None:
        if e.dtype != dtype:
            self.fail(f"{what} is {e.dtype}, not {dtype}: {print_expr(e)}")

    def access(self, b: Buffer, indices: tuple[Expr, ...]) -> None:
        if b not in self.buffers:
            self.fail(f"buffer {b.name!r} is touched where it does not exist")
        if len(indices) != len(b.shape):
            self.fail(f"{b.name!r} has {len(b.shape)} dimensions, an access {len(indices)} indices")
        for i in indices:
            self.value(i)
            if not dtypes.is_int(i.dtype):
                self.fail(f"an index of {b.name!r} is {i.dtype}: {print_expr(i)}")
