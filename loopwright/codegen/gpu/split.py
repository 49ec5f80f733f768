"""SplitHostDevice: a lowered function becomes kernels, and the launches that make up a call."""

# Statements between loops over blocks and threads are kernels of one thread, so that every legal
# schedule runs: right, but slowly. Buffers around kernels, and large ones of single threads, lie in
# the device's global memory. As TVM's pass of this name.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from loopwright.codegen.code import SizeDefinitions, touches_memory, variables_of_extents
from loopwright.errors import CodegenError
from loopwright.ir.buffer import STACK_LIMIT, Buffer
from loopwright.ir.expr import Const, Dim, Expr, IfThenElse, Unary, Var
from loopwright.ir.stmt import (
    Allocate,
    Barrier,
    Check,
    For,
    Func,
    If,
    Let,
    Seq,
    SplitFunc,
    Stmt,
    Store,
    View,
    buffers_of,
    map_statements,
    seq,
)
from loopwright.ir.visitor import contains, free_vars, nodes

#: Axes of launches, x first.
AXES = ("x", "y", "z")


@dataclass(frozen=True, eq=False)
class SplitKernel:
    name: str
    #: Launch loops, as ``threads``; their bodies do not matter.
    blocks: tuple[For, ...]
    threads: tuple[For, ...]
    shared: tuple[Buffer, ...]  #: buffers that the threads of a block share
    body: Stmt  #: work of one thread
    parameters: tuple[Buffer, ...]  #: buffers in global memory that it touches
    sizes: tuple[Var, ...]  #: size variables that it reads
    written: frozenset[Buffer]  #: parameters that it writes

    def extents(self, which: str) -> tuple[Dim, Dim, Dim]:
        """Extents of the axes of ``"blockIdx"`` or ``"threadIdx"``, x first."""
        by_tag = {x.tag: x.extent for x in (*self.blocks, *self.threads)}
        x, y, z = (by_tag.get(f"{which}.{a}", 1) for a in AXES)
        return x, y, z

    @property
    def thread_count(self) -> int:
        return prod(x.count for x in self.threads)


@dataclass(frozen=True, eq=False)
class SplitProgram:
    func: Func
    kernels: tuple[SplitKernel, ...]  #: in the order in which they are launched
    buffers: tuple[Buffer, ...]  #: temporary buffers in global memory
    definitions: SizeDefinitions  #: of variables that are computed from sizes


def split_host_device(f: Func, language: str) -> SplitProgram:
    """Split a lowered function; refuses checks that leave the function, and kernels inside a loop
    or a condition. ``language`` is for messages."""
    splitter = _Splitter(f, language)
    splitter.host(f.body, ())
    splitter.flush()
    kernels, buffers = tuple(splitter.kernels), tuple(splitter.buffers)
    return SplitProgram(f, kernels, buffers, splitter.definitions)


def split_parts(f: Func, language: str) -> tuple[SplitProgram, tuple[SplitProgram, ...]]:
    """Split a lowered function and its parts, if any, whose kernels are those of the whole; a
    function with size variables stays whole."""
    if not isinstance(f, SplitFunc) or f.sizes:
        return split_host_device(f, language), ()
    parts = tuple(split_host_device(part, language) for part in (f.prepare, f.main))
    kernels = tuple(k for part in parts for k in part.kernels)
    buffers = (*f.kept, *(b for part in parts for b in part.buffers))
    return SplitProgram(f, kernels, buffers, SizeDefinitions()), parts


#: A definition or a view that stands around kernels.
_Around = Let | View


class _Splitter:
    def __init__(self, f: Func, language: str) -> None:
        self.f, self.language = f, language
        self.kernels: list[SplitKernel] = []
        self.buffers: list[Buffer] = []
        self.definitions = SizeDefinitions()
        #: Statements of no kernel, which wait for more of their kind.
        self.loose: list[Stmt] = []
        #: Definitions and views around those.
        self.loose_around: tuple[_Around, ...] = ()

    def host(self, s: Stmt, around: tuple[_Around, ...]) -> None:
        match s:
            case Seq(stmts=stmts):
                for x in stmts:
                    self.host(x, around)
            case _ if _is_kernel(s):
                self.flush()
                self.launch(s, around)
            case _ if not any(isinstance(n, For) and n.kind == "thread" for n in nodes(s)):
                # Statements of no kernel that follow one another become one kernel.
                if self.loose and around != self.loose_around:
                    self.flush()
                self.loose.append(s)
                self.loose_around = around
            case Allocate(buffer=b, body=body):
                self.buffers.append(b)
                self.host(body, around)
            case Let(var=v, value=e, body=body) if not touches_memory(e):
                self.definitions.learn(v, e)
                self.host(body, (*around, s))
            case View(buffer=b, body=body):
                self.host(body, (*around, s))
            case _:
                what = f"loop {s.var.name!r}" if isinstance(s, For) else f"a {type(s).__name__}"
                raise CodegenError(
                    f"{self.language}: a kernel stands inside of {what} that no thread axis is "
                    "bound to; bind that loop too, or compute the stage at root"
                )

    def flush(self) -> None:
        if not self.loose:
            return
        body = self._with_global_buffers(seq(*self.loose))
        self.loose = []
        self._add((), (), (), body, self.loose_around)

    def _with_global_buffers(self, s: Stmt) -> Stmt:
        """A statement of one thread without its large buffers, which become global ones. One thread
        runs it, so that a buffer of a loop's body is never in use twice."""
        match s:
            case Let(var=v, value=e):
                self.definitions.learn(v, e)
            case Allocate(buffer=b, body=body) if b.symbolic or b.nbytes > STACK_LIMIT:
                self.buffers.append(b)
                return self._with_global_buffers(body)
        return map_statements(s, self._with_global_buffers)

    def launch(self, s: Stmt, around: tuple[_Around, ...]) -> None:
        axes: list[For] = []
        shared: list[Buffer] = []
        while True:
            match s:
                case For(kind="thread", body=body):
                    axes.append(s)
                case Allocate(buffer=b, body=body) if b.is_shared:
                    shared.append(b)
                case _:
                    break
            s = body
        blocks = tuple(x for x in axes if x.tag.startswith("blockIdx"))
        threads = tuple(x for x in axes if x.tag.startswith("threadIdx"))
        self._add(blocks, threads, tuple(shared), s, around)

    def _add(
        self,
        blocks: tuple[For, ...],
        threads: tuple[For, ...],
        shared: tuple[Buffer, ...],
        body: Stmt,
        around: Sequence[_Around],
    ) -> None:
        if contains(body, Check):  # it leaves a function early
            raise CodegenError(
                f"{self.language}: checks of bounds cannot leave a kernel; build without "
                "instrument_bound_checkers, or run the schedule on Target('interp'), which checks "
                "every access"
            )
        for x in reversed(around):
            match x:
                case Let(var=v, value=e) if v in _variables(body):
                    body = Let(v, e, body)
                case View(buffer=b, of=of, offset=offset) if b in buffers_of(body):
                    body = View(b, of, offset, body)
        own = {*shared, *(n.buffer for n in nodes(body) if isinstance(n, Allocate | View))}
        used = [b for b in _touched(body) if b not in own]
        variables = _variables(body) | variables_of_extents(used)
        written = {n.buffer for n in nodes(body) if isinstance(n, Store)}
        written |= {n.of for n in nodes(body) if isinstance(n, View)}
        self.kernels.append(
            SplitKernel(
                f"{self.f.name}_kernel{len(self.kernels)}",
                blocks,
                threads,
                shared,
                body,
                tuple(b for b in (*self.f.params, *self.buffers) if b in used),
                tuple(v for v in self.f.sizes if v in variables),
                frozenset(written),
            )
        )


def _is_kernel(s: Stmt) -> bool:
    """Whether a statement is launch loops, maybe with buffers of a block around them."""
    while isinstance(s, Allocate) and s.buffer.is_shared:
        s = s.body
    return isinstance(s, For) and s.kind == "thread"


def _touched(s: Stmt) -> list[Buffer]:
    """Buffers that a statement uses, those behind its views too."""
    behind = (n.of for n in nodes(s) if isinstance(n, View))
    return list(dict.fromkeys((*buffers_of(s), *behind)))


def _variables(s: Stmt) -> set[Var]:
    """Variables that a statement takes from outside, those of its buffers' extents too."""
    return free_vars(s) | variables_of_extents(_touched(s))


# ---------------------------------------------------------------- barriers
#
# Barriers out of conditions: every thread comes to each of them, whatever the condition.
#
# Under conditions that all threads of a block agree on they are legal, but compilers that run the
# threads one after the other take them apart badly: PoCL 3.1 never ends on one in a condition
# inside of two loops. So conditions move inwards, around what stands between barriers.


def with_unconditional_barriers(s: Stmt) -> Stmt:
    """A statement whose barriers stand under no conditions, but for those that read memory.

    ``if c: S[t] = A[t, i]; barrier(shared); B[t, i] = S[7 - t]`` becomes ``if c: S[t] = A[t, i]``,
    ``barrier(shared)``, ``if c: B[t, i] = S[7 - t]``.
    """
    s = map_statements(s, with_unconditional_barriers)
    if not isinstance(s, If) or not contains(s, Barrier) or touches_memory(s.cond):
        return s
    parts = [_under(s.cond, s.then)]
    if s.orelse is not None:
        parts.append(_under(Unary("not", s.cond, "bool"), s.orelse))
    return seq(*parts)


def _under(cond: Expr, s: Stmt) -> Stmt:
    if not contains(s, Barrier):
        return If(cond, s)
    match s:
        case Barrier():
            return s
        case Seq(stmts=stmts):
            return _sequence(cond, stmts)
        case Let(var=v, value=e, body=body) if touches_memory(e):
            # Where the condition does not hold, the value is not read.
            return Let(v, IfThenElse(cond, e, Const(0, e.dtype), e.dtype), _under(cond, body))
        case For() | Let() | Allocate() | View():
            return map_statements(s, lambda c: _under(cond, c))
    return If(cond, s)


def _sequence(cond: Expr, stmts: tuple[Stmt, ...]) -> Stmt:
    """Statements in order; those that follow one another without a barrier share a condition."""
    out: list[Stmt] = []
    for waits, group in groupby(stmts, lambda x: contains(x, Barrier)):
        xs = list(group)
        out += [_under(cond, x) for x in xs] if waits else [If(cond, seq(*xs))]
    return seq(*out)
