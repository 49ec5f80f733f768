"""Statements and functions of the loop IR; vector and unrolled loops stay until code generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeGuard, TypeVar

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Dim, Expr, Var
from loopwright.ir.kinds import LoopKind, Scope
from loopwright.ir.node import Node, node
from loopwright.ir.reduction import Combiner
from loopwright.ir.sizes import SizeVar
from loopwright.ir.visitor import nodes

S = TypeVar("S", bound="Stmt")

#: A pragma of a loop: its name and its value.
Pragma = tuple[str, str | int | float | bool | None]
#: A pragma of serial loops: the compiler of the generated code should unroll this one.
UNROLL_HINT: Pragma = ("unroll", True)


class Stmt(Node):
    """Base class of statements; `str` shows one as it stands in a program."""

    __slots__ = ()
    #: Function of `str`; `loopwright.ir.printer` puts its function here.
    _source: ClassVar[Callable[[Any], str]]

    def __str__(self) -> str:
        return self._source()


def map_statements(s: S, f: Callable[[Stmt], Stmt]) -> S:
    """A statement with ``f(child)`` for each statement directly in it; expressions are kept."""
    return s.map_children(lambda c: f(c) if isinstance(c, Stmt) else c)


@node
class For(Stmt):
    """``for var in range(extent): body``; ``tag`` names the thread axis of a loop of kind
    ``thread``."""

    # The thread loops of a kernel enclose all of it: blockIdx, then buffers in shared memory, then
    # threadIdx. A loop tagged ``vthread`` stands anywhere until virtual threads are injected.
    # ``extent`` is never below 1; that of a vectorized or unrolled loop is an int.
    var: Var
    extent: Dim
    kind: LoopKind
    body: Stmt
    pragmas: tuple[Pragma, ...] = ()
    tag: str = ""

    @property
    def count(self) -> int:
        """The extent as a number; only of loops that have one, as those of vectors always do."""
        assert isinstance(self.extent, int)
        return self.extent

    def of_kind(self, kind: LoopKind) -> For:
        return For(self.var, self.extent, kind, self.body, self.pragmas, self.tag)

    def with_body(self, body: Stmt) -> For:
        """The loop with another body; itself when the body is the same object."""
        if body is self.body:
            return self
        return For(self.var, self.extent, self.kind, body, self.pragmas, self.tag)


def is_launch(s: object) -> TypeGuard[For]:
    """Whether a statement is a launch loop (not one of virtual threads)."""
    return isinstance(s, For) and s.kind == "thread" and s.tag != "vthread"


@node
class Let(Stmt):
    """Bind ``var`` to ``value``, computed once (in a vector loop: for each lane), in ``body``."""

    var: Var
    value: Expr
    body: Stmt


@node
class If(Stmt):
    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@node
class Store(Stmt):
    """``buffer[indices] = value``; ``nontemporal`` hints that no cache need keep the element."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    nontemporal: bool = False


@node
class Seq(Stmt):
    """Statements one after the other; an empty sequence does nothing."""

    stmts: tuple[Stmt, ...]


@node
class Allocate(Stmt):
    """``buffer`` exists, uninitialised, while ``body`` runs."""

    buffer: Buffer
    body: Stmt
    #: The variable of the loop around it, if the body is a `Seq` of two statements, the first of
    #: which fills the buffer: the pass InjectDoubleBuffer may give it ``copies`` places and run
    #: that statement ``copies - 1`` iterations ahead.
    halves: Var | None = None
    copies: int = 2


@node
class Check(Stmt):
    """Leave the function with an error, ``text.format(*values)``, unless ``cond`` holds."""

    cond: Expr
    text: str
    values: tuple[Expr, ...]


@node
class View(Stmt):
    """``buffer`` uses the memory of the uint8 buffer ``of`` from byte ``offset`` on. It begins
    uninitialised; data that another view has stored in the same bytes are lost."""

    buffer: Buffer
    of: Buffer
    offset: int
    body: Stmt


@node
class Prefetch(Stmt):
    """Bring the cache line of ``buffer[indices]``, which may lie outside, nearer: a hint. Vector
    code prefetches the line of its first lane."""

    buffer: Buffer
    indices: tuple[Expr, ...]


@node
class Barrier(Stmt):
    """Wait for all threads of the block and see what they wrote to ``scope``; of scope ``warp`` for
    the lanes of the warp."""

    scope: Scope


@node
class AsyncGroup(Stmt):
    """Group of stores to shared memory that take effect at once, or as late as `AsyncWait` asks."""

    body: Stmt


@node
class AsyncWait(Stmt):
    """A thread goes on when all of its groups but the last ``pending`` have taken effect."""

    pending: int


@node
class AllReduce(Stmt):
    """``buffer[indices]`` of each thread becomes the combination over all threads of its group:
    those that differ only in the thread axes ``tags``. Every thread of the block runs it."""

    combiner: Combiner
    #: Local ones, one for each result of the combiner.
    buffers: tuple[Buffer, ...]
    indices: tuple[Expr, ...]
    tags: tuple[str, ...]


@node
class IntrinsicCall(Stmt):
    """Instruction ``name`` of `loopwright.ir.instructions`, applied to operands that begin at these
    elements; ``body`` has its meaning as loops, for all who do not write the instruction."""

    name: str
    operands: tuple[Load, ...]
    body: Stmt


@node
class CallPacked(Stmt):
    """Call the packed function that this process knows as ``name``; its result is dropped."""

    # An argument is a whole row-major buffer, which the function may write unless it is an input of
    # the program; a scalar; or a text. The effects of the function are not known: passes keep the
    # statement in its place. An exception leaves the program.
    name: str
    args: tuple[Buffer | Expr | str, ...]

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(x for x in self.args if isinstance(x, Buffer))


@node
class Func(Node):
    """A lowered function: a body over buffers, which are its parameters.

    ``outputs[i]`` tells whether parameter i is written. ``sizes`` are the size variables, which are
    passed after the buffers.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> f = lw.lower(te.create_schedule(B.op), [A, B])
        >>> print(f.name, [p.name for p in f.params], f.outputs)
        main ['A', 'B'] (False, True)
    """

    #: Function of `str`; `loopwright.ir.printer` puts its function here.
    _source: ClassVar[Callable[[Any], str]]

    name: str
    params: tuple[Buffer, ...]
    outputs: tuple[bool, ...]
    body: Stmt
    sizes: tuple[SizeVar, ...] = ()

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """The parameters that are only read."""
        return tuple(p for p, out in zip(self.params, self.outputs, strict=True) if not out)

    def __str__(self) -> str:
        return self._source()

    def _repr_html_(self) -> str:
        from loopwright.presenting import html_block, html_text

        return html_block(f"Loop nest of {self.name}", html_text(str(self)))

    def with_body(self, body: Stmt) -> Func:
        """This function with another body; itself when the body is the same object."""
        if body is self.body:
            return self
        return Func(self.name, self.params, self.outputs, body, self.sizes)


#: Suffixes of the names of the two parts of a function.
PREPARE, PREPARED = "_prepare", "_prepared"


class SplitFunc(Func):
    """A function in two parts, one after the other, of which the first needs constants alone."""

    # ``prepare`` takes the constants that it reads and writes the ``kept`` buffers; ``main`` takes
    # the other arguments, those constants that it reads itself, and the kept buffers behind them.
    # As a `Func` it is the whole and does both; with another body it is a plain `Func`. Of
    # ``whole``, which gives name, parameters, outputs and sizes, the body does not matter.
    __slots__ = ("kept", "main", "prepare")
    prepare: Func
    main: Func
    kept: tuple[Buffer, ...]

    def __init__(self, whole: Func, prepare: Func, main: Func, kept: tuple[Buffer, ...]) -> None:
        body: Stmt = seq(prepare.body, main.body)
        for b in reversed(kept):
            body = Allocate(b, body)
        super().__init__(whole.name, whole.params, whole.outputs, body, whole.sizes)
        for name, value in (("prepare", prepare), ("main", main), ("kept", kept)):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return f"{self.prepare}\n\n{self.main}"


#: Every class of statements. A `match` over it that forgets one does not pass the type checker.
AnyStmt = (
    For | Let | If | Store | Seq | Allocate | Check | View | Prefetch | Barrier | AllReduce
    | IntrinsicCall | CallPacked | AsyncGroup | AsyncWait
)  # fmt: skip


def seq(*stmts: Stmt) -> Stmt:
    """A sequence with nested sequences flattened; of one statement that statement itself."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def buffers_of(s: Stmt) -> list[Buffer]:
    """Buffers that a statement uses, in order, on which signatures of functions depend."""
    seen: dict[Buffer, None] = {}
    for n in nodes(s):
        if isinstance(n, Load | Store | Prefetch):
            seen.setdefault(n.buffer)
        elif isinstance(n, CallPacked):
            seen.update(dict.fromkeys(n.buffers))
    return list(seen)
