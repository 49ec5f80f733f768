"""Statements of the loop IR as text of a C-like language; its targets differ in few hooks."""

# Names stay those of the program where C allows it; the compiler is told to vectorise or to unroll
# plain loops.

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import assert_never

from loopwright import dtypes
from loopwright.codegen.c.expressions import ExpressionWriter, Prelude, Text, product_and_rest
from loopwright.codegen.code import Bytes, SizeDefinitions, buffer_bytes, has_blocks, larger
from loopwright.errors import CodegenError
from loopwright.ir.affine import Interval, interval
from loopwright.ir.buffer import STACK_LIMIT, Buffer, Load
from loopwright.ir.expr import Binary, Expr, Var
from loopwright.ir.interp.threads import launched_by
from loopwright.ir.node import same
from loopwright.ir.printer import unique
from loopwright.ir.stmt import (
    UNROLL_HINT,
    Allocate,
    AllReduce,
    AnyStmt,
    AsyncGroup,
    AsyncWait,
    Barrier,
    CallPacked,
    Check,
    For,
    If,
    IntrinsicCall,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    View,
)

#: Most bytes of all buffers together that are kept on the stack.
STACK_TOTAL = 1 << 16
#: Bounds of a number of which nothing is known.
UNKNOWN = (-(1 << 40), 1 << 40)
#: Binding strength of the operand of a sum.
_SUM = 12
#: Words that a program's names may not be.
RESERVED = frozenset(
    word
    for words in (
        "auto break case char const continue default do double else enum extern float for goto if",
        "inline int long register restrict return short signed sizeof static struct switch typedef",
        "union unsigned void volatile while asm typeof bool true false linux unix i386 main NAN",
        "INFINITY DOMAIN SING OVERFLOW UNDERFLOW TLOSS PLOSS args ws rc begin end closure",
        "memcpy memmove memset",
    )
    for word in words.split()
)
#: Prefixes of what the headers of C define.
_TAKEN = re.compile(r"_|lw_|M_|FP_|U?INT|HUGE|MATH|WCHAR|SIZE|PTRDIFF|SIG_|__")


class Identifiers:
    """C identifiers, unique in a function: the first of a name keeps it, others get a number."""

    def __init__(self, taken: set[str] | frozenset[str]) -> None:
        self._names: dict[Var | Buffer, str] = {}
        self._taken = set(taken)

    def __call__(self, x: Var | Buffer) -> str:
        if x not in self._names:
            self._names[x] = self.fresh(x.name)
        return self._names[x]

    def release(self, x: Var | Buffer) -> None:
        """End the scope of a variable or buffer: its identifier may be used again."""
        self._taken.discard(self._names.pop(x))

    def fresh(self, text: str) -> str:
        plain = re.sub(r"\W", "_", text, flags=re.ASCII) or "x"
        if plain[0].isdigit() or _TAKEN.match(plain):
            plain = f"x{plain}"
        return unique(plain, self._taken)


class CFamilyWriter(ExpressionWriter):
    def __init__(self, prelude: Prelude, names: Identifiers, language: str = "c") -> None:
        super().__init__(prelude)
        #: Identifiers of this function.
        self.names, self.language = names, language
        self.lines: list[str] = []
        self.depth = 1
        #: C types of the variables in scope.
        self.bound: dict[Var, str] = {}
        #: Buffers in scope.
        self.buffers: dict[Buffer, None] = {}
        #: Parameters of the program that are only read.
        self.inputs: frozenset[Buffer] = frozenset()
        #: Bytes of workspace that the function needs; with sizes maybe an expression.
        self.workspace: Bytes = 0
        #: Definitions of what was computed from sizes.
        self.sizes = SizeDefinitions()
        self._used: Bytes = 0
        self._stack = 0
        self.contracts = prelude.has_fma

    @abstractmethod
    def hint(self, s: For) -> str | None:
        """The line before a loop that tells the compiler what to do with it."""

    @abstractmethod
    def launch(self, s: For) -> bool:
        """Write a parallel loop for threads of a CPU; False: it is to be a serial one."""

    @abstractmethod
    def prefetch(self, b: Buffer, indices: tuple[Expr, ...]) -> None:
        """Write that the line of an element, which may lie outside of its buffer, will be read."""

    @abstractmethod
    def instruction(self, s: IntrinsicCall) -> bool:
        """Write an instruction; False: there is none, and its plain form is to be written."""

    # The rest is as code of devices has it.

    def check(self, s: Check) -> None:
        raise CodegenError(f"{self.language}: a kernel cannot be left by a check")

    def barrier(self, s: Barrier) -> None:
        raise CodegenError(f"{self.language}: no code for {type(s).__name__}")

    def call_packed(self, s: CallPacked) -> None:
        """Write the call of a packed function; code of devices cannot have one."""
        raise CodegenError(
            f"{self.language}: call_packed {s.name!r} stands in code of a device; call it on the "
            "host, before or after the kernel"
        )

    def async_group(self, body: Stmt) -> None:
        """Write copies that may arrive later; written as they stand they arrive at once."""
        with self.block(""):
            self.stmt(body)

    def async_wait(self, s: AsyncWait) -> None:
        """Write the wait for such copies, where they do not arrive at once."""

    def name(self, x: Var | Buffer) -> str:
        return self.names(x)

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.put(f"{head} {{".strip())
        self.depth += 1
        yield
        self.depth -= 1
        self.put("}")

    def stmt(self, s: Stmt) -> None:
        if not isinstance(s, AnyStmt) or isinstance(s, AllReduce):
            raise CodegenError(f"{self.language}: no code for {type(s).__name__}")
        match s:
            case Barrier():
                self.barrier(s)
            case Seq(stmts=stmts):
                self._sequence(stmts)
            case Store(buffer=b, indices=idx, value=v):
                self._store(b, idx, v)
            case For():
                self.for_loop(s)
            case If():
                with self.block(f"if ({self.expr(s.cond).text})"):
                    self.stmt(s.then)
                if s.orelse is not None:
                    with self.block("else"):
                        self.stmt(s.orelse)
            case Let(var=v, value=e, body=body):
                self._let(v, e, body)
            case Allocate(buffer=b, body=body):
                self.allocate(b, body)
            case Prefetch(buffer=b, indices=idx):
                self.prefetch(b, idx)
            case Check():
                self.check(s)
            case CallPacked():
                self.call_packed(s)
            case View(buffer=b, of=of, offset=k, body=body):
                self.view(b, of, k)
                self.stmt(body)
                self.leave(b)
            case AsyncGroup(body=body):
                self.async_group(body)
            case AsyncWait():
                self.async_wait(s)
            case IntrinsicCall(body=body):
                if not self.instruction(s):
                    self.stmt(body)
            case _:
                assert_never(s)

    def _sequence(self, stmts: Sequence[Stmt]) -> None:
        """Statements in order; the names that one declares are its own, unless it is the last."""
        for k, x in enumerate(stmts):
            last = x
            while isinstance(last, Seq) and last.stmts:
                last = last.stmts[-1]
            alone = isinstance(last, Allocate | Let | View) and k < len(stmts) - 1
            with self.block("") if alone else nullcontext():
                self.stmt(x)

    def _store(self, b: Buffer, idx: tuple[Expr, ...], v: Expr) -> None:
        at = self.element(b, idx)
        single = dtypes.bits(b.dtype) >= 32
        single &= self.prelude.dialect.wraps or dtypes.is_float(b.dtype)
        match v:
            case Binary(op="+", a=Load(buffer=c, indices=at_c), b=x) if (
                single and c is b and same(at_c, idx)
            ) and not (self.contracts and product_and_rest(v)):
                self.put(f"{at} += {self.expr(x).text};")
            case _:
                self.put(f"{at} = {self.stored(v).text};")

    def _let(self, v: Var, e: Expr, body: Stmt) -> None:
        """Keep arithmetic on axes in a type for indices, all else in its own dtype."""
        if e.dtype != v.dtype:
            raise CodegenError(f"{self.language}: {v.name!r} is {v.dtype}, not {e.dtype}")
        self.sizes.learn(v, e)
        bounds = interval(e, {}, self.ranges) if dtypes.is_int(e.dtype) else None
        if bounds is not None and self.is_plain(e):
            text, kind = self.plain(e), self.index_type(bounds)
            self.ranges[v] = bounds
        else:
            text, kind = self.expr(e), self.prelude.dialect.type(v.dtype)
            self.ranges.pop(v, None)
        self.bound[v] = kind
        self.put(f"const {kind} {self.name(v)} = {text.text};")
        self.stmt(body)
        self.leave(v)

    def for_loop(self, s: For) -> None:
        if s.kind == "thread":
            raise CodegenError(
                f"{self.language}: {launched_by(s)}; thread axes are for GPU targets, on a CPU use "
                "parallel, vectorize or unroll"
            )
        if s.kind == "parallel" and not self.in_vector and self.launch(s):
            return
        vector = s.kind == "vectorized" and not self.in_vector and not has_blocks(s.body)
        unrolled = s.kind == "unrolled" or UNROLL_HINT in s.pragmas
        hint = self.hint(s) if unrolled or vector else None
        if hint:
            self.put(hint)
        self.in_vector |= vector
        self.loop(s, "0", self.count(s.extent).text)
        self.in_vector &= not vector

    def loop(self, s: For, first: str, end: str) -> None:
        i = self.name(s.var)
        self.enter(s)
        with self.block(f"for ({self.bound[s.var]} {i} = {first}; {i} < {end}; ++{i})"):
            self.stmt(s.body)
        self.leave(s.var)

    def enter(self, s: For) -> None:
        most = interval(s.extent, {}, self.ranges) if isinstance(s.extent, Expr) else None
        last = s.extent - 1 if isinstance(s.extent, int) else most[1] - 1 if most else UNKNOWN[1]
        self.ranges[s.var] = (0, last)
        self.bound[s.var] = self.index_type((0, last))

    def index_type(self, bounds: Interval) -> str:
        """The type of a variable that holds arithmetic on axes between some bounds."""
        return self.prelude.dialect.type("int64")

    def count(self, n: int | Expr) -> Text:
        return Text(str(n)) if isinstance(n, int) else self.index(n)

    def extents(self, b: Buffer) -> list[str]:
        """Extents of a buffer as an array of C: one with gaps is a row of all its elements."""
        if b.strides is not None:
            return [str(b.size)]
        return [self.count(n).text for n in b.shape] or ["1"]

    def declared(self, b: Buffer, head: str) -> str:
        extents = "".join(f"[{n}]" for n in self.extents(b))
        return f"{self.prelude.dialect.memory_type(b.dtype)} {head}{extents}"

    def pointer(self, b: Buffer, name: str) -> str:
        rows = "".join(f"[{n}]" for n in self.extents(b)[1:])
        place = f"(*{name}){rows}" if rows else f"*{name}"
        return f"{self.prelude.dialect.memory_type(b.dtype)} {place}"

    def allocate(self, b: Buffer, body: Stmt) -> None:
        """Make a small buffer an array of the block, a larger one a piece of the workspace."""
        if not b.symbolic and b.nbytes <= STACK_LIMIT and self._stack + b.nbytes <= STACK_TOTAL:
            self._stack += b.nbytes
            self.buffers[b] = None
            self.put(f"_Alignas(64) {self.declared(b, self.name(b))};")
            self.stmt(body)
            self.leave(b)
            return
        start = self._used
        self._place(b, f"ws + {self.count(start).inside(_SUM)}")
        self._used = start + buffer_bytes(b)
        self.workspace = larger(self.workspace, self._used)
        self.stmt(body)
        self._used = start
        self.leave(b)

    def view(self, b: Buffer, of: Buffer, offset: int) -> None:
        self._place(b, f"{self.name(of)} + {offset}")

    def _place(self, b: Buffer, at: str) -> None:
        self.buffers[b] = None
        self.put(f"{self.pointer(b, self.name(b))} = ({self.pointer(b, '')})({at});")

    def leave(self, x: Var | Buffer) -> None:
        if isinstance(x, Var):
            self.bound.pop(x)
        else:
            self.buffers.pop(x)
        self.names.release(x)

    def spare(self, size: Bytes) -> str:
        """Workspace of a launch that runs inline; free again after it."""
        self.workspace = larger(self.workspace, self._used + size)
        return f"ws + {self.count(self._used).inside(_SUM)}"
