"""`Code`, the result of a code generator, workspaces of functions, and queries of loop IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from functools import reduce as fold
from typing import Any

from loopwright import dtypes
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import COMPARE, Binary, Cast, Expr, IfThenElse, Select, Var, binary, cast
from loopwright.ir.node import Node, same
from loopwright.ir.sizes import SizeVar
from loopwright.ir.stmt import Allocate, CallPacked, Check, For, Func, If, Stmt, Store, View
from loopwright.ir.visitor import contains, free_vars, nodes
from loopwright.runtime import Link

# ---------------------------------------------------------------- workspace
#
# Workspace of a function, as a number of bytes or a formula over its sizes, which generated code
# computes for its addresses and the manifest holds for whoever calls the function.

#: A number of bytes: an int, or an int64 expression over size variables.
Bytes = int | Expr


class SizeDefinitions:
    def __init__(self, by_variable: Mapping[Var, Expr] | None = None) -> None:
        self.by_variable = dict(by_variable or {})

    def learn(self, v: Var, value: Expr) -> None:
        if all(isinstance(w, SizeVar) or w in self.by_variable for w in free_vars(value)):
            self.by_variable[v] = value

    def definition(self, n: Bytes) -> Bytes:
        """A number of bytes over the size variables only."""
        return n if isinstance(n, int) else self._expand(n)

    def _expand(self, e: Any) -> Any:  # an expression gives an expression
        if isinstance(e, Var) and e in self.by_variable:
            return self._expand(self.by_variable[e])
        return e.map_children(self._expand)


def buffer_bytes(b: Buffer) -> Bytes:
    """Bytes of a buffer, rounded up to whole cache lines."""
    if not b.symbolic:
        return -(-b.nbytes // 64) * 64
    size = fold(lambda x, y: binary("*", x, y), [cast(n, "int64") for n in b.shape])
    return (size * dtypes.nbytes(b.dtype) + 63) // 64 * 64


def kept_offsets(buffers: Sequence[Buffer]) -> list[int]:
    """Offsets of the buffers between the parts of a function in the workspace of the whole, which
    begins with them; last, that of the parts' workspace."""
    offsets = [0]
    for b in buffers:
        offsets.append(offsets[-1] + -(-b.nbytes // 64) * 64)
    return offsets


def larger(a: Bytes, b: Bytes) -> Bytes:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if same(a, b) or same(b, 0) else b if same(a, 0) else binary("max", a, b)


#: A text of a program, or a function that writes it when somebody asks.
SourceText = str | Callable[[], str]


@dataclass(frozen=True, slots=True)
class CodePart:
    """One of the two functions in the code of a `loopwright.ir.stmt.SplitFunc`.

    Attributes:
        workspace_bytes: bytes that its caller provides.
        parallel_workspace_bytes: bytes of each worker of the pool, or more.
    """

    func: Func
    workspace_bytes: Bytes = 0
    parallel_workspace_bytes: Bytes = 0


def whole_workspace(kept: Sequence[Buffer], parts: Sequence[CodePart]) -> Bytes:
    """Bytes of workspace of a function that calls its parts: the buffers between them, then room
    for either."""
    first, second = (part.workspace_bytes for part in parts)
    return larger(first, second) + kept_offsets(kept)[-1]


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled function.

    Attributes:
        contents: of the artifact: an object file, or its counterpart of the target; or a function
            that generates it, once and in any thread.
        sources: texts by kind of source, the one that people ask for first.
        workspace_bytes: bytes that a caller provides.
        parallel_workspace_bytes: bytes of each worker of the pool.
        uses_pool: whether `lw_parallel_launch` must be bound when linking.
        checks: messages of the checks in it, by number.
        triple: LLVM's name of the machine whose code it is; empty for code of no machine.
        packed: names of the packed functions that it calls.
        link: links it in the process that compiled it, where that is less work than starting from
            ``contents``; None: as any artifact of its kind.
        parts: the two parts of a split function, which can be called beside the whole; empty for
            others, and where the target compiles the whole alone.
    """

    contents: bytes | Callable[[], bytes]
    sources: Mapping[str, SourceText]
    workspace_bytes: Bytes = 0
    parallel_workspace_bytes: Bytes = 0
    uses_pool: bool = False
    checks: tuple[str, ...] = ()
    triple: str = ""
    packed: tuple[str, ...] = ()
    link: Link | None = None
    parts: tuple[CodePart, ...] = ()

    @property
    def objects(self) -> bytes:
        return self.contents if isinstance(self.contents, bytes) else self.contents()

    def source(self, kind: str) -> str:
        """The text of one kind, written now if need be.

        Raises:
            KeyError: there is none of that kind.
        """
        text = self.sources[kind]
        return text if isinstance(text, str) else text()


#: Functions of floats; those of float32 have an ``f`` behind their name.
MATH_FUNCTIONS = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sinh", "cosh", "sin", "cos",
    "tan", "atan", "erf", "pow", "fmod",
})  # fmt: skip
#: Functions that generated code may call, or LLVM on its behalf: no kernel may have such a name.
C_FUNCTIONS = MATH_FUNCTIONS | {f"{n}f" for n in MATH_FUNCTIONS} | {"memcpy", "memmove", "memset"}


# ---------------------------------------------------------------- queries
#
# Queries of loop IR by code generators; answers asked for in every unrolled iteration are kept.


def touches_memory(e: Expr) -> bool:
    return contains(e, Load)


def has_nontemporal(s: Stmt) -> bool:
    return any(isinstance(n, Store) and n.nontemporal for n in nodes(s))


@lru_cache(maxsize=1024)
def has_blocks(s: Stmt) -> bool:
    """Whether a body cannot stand inside vector code: the loop around it then runs one by one."""
    return any(
        isinstance(n, Allocate | CallPacked | Check | View)
        or (isinstance(n, For) and n.kind in ("vectorized", "parallel", "thread"))
        for n in nodes(s)
    )


@lru_cache(maxsize=1024)
def widest(s: Stmt) -> int:
    """Bytes of the widest element that a body loads, stores or computes."""
    # Integers of loops do not count: addresses and tests of them are affine and need no vectors.
    widths = [1]

    def visit(n: Node) -> None:
        if isinstance(n, Load | Store):
            widths.append(_register_bytes(n.buffer.dtype))
        elif isinstance(n, Cast):
            widths.append(_register_bytes(n.dtype))
        for c in n.children():
            if not _of_loops(c):
                visit(c)

    visit(s)
    return max(widths)


def _of_loops(n: Node) -> bool:
    """Whether an expression is arithmetic on loops and sizes alone, or compares such."""
    if isinstance(n, Binary) and n.op in COMPARE:
        return _of_loops(n.a) and _of_loops(n.b)
    return isinstance(n, Expr) and n.dtype == "int64" and not touches_memory(n)


def _register_bytes(dtype: str) -> int:
    return 4 if dtype in dtypes.HALVES else dtypes.nbytes(dtype)


def has_guarded_accesses(s: Stmt) -> bool:
    return any(
        isinstance(n, If) or (isinstance(n, Select | IfThenElse) and touches_memory(n))
        for n in nodes(s)
    )


def variables_of_extents(buffers: Iterable[Buffer]) -> set[Var]:
    extents = (n for b in buffers for n in b.shape if isinstance(n, Expr))
    return set[Var]().union(*map(free_vars, extents))
