"""The work limit of lowering, the setting ``code_limit`` of a `PassContext`.

A few words of a trace, such as a loop unrolled 10**9 times by a pragma, can ask for more than any
compiler finishes. So every node of the loop IR is counted, for each copy that unrolled and
vectorized loops make of it, before a code generator writes it. Primitives have limits of their own,
which name the step: `loopwright.schedule.primitives.annotate`, `loopwright.schedule.bounds.infer`.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.errors import LowerError, TooMuchCodeError
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr
from loopwright.ir.node import Node
from loopwright.ir.stmt import UNROLL_HINT, Allocate, For, Func, Stmt
from loopwright.lowering.context import PassContext

#: Most nodes of a program that is written out, unless the context says otherwise. Kernels of the
#: operators have up to 116 000 (conv2d, dense and others under random configurations). LLVM needs
#: 0.1 to 0.3 ms for each node: a program at the limit takes it about a minute.
CODE_LIMIT = 1 << 18
#: Largest buffer inside of a program, in bytes: the memory that one process can address.
BUFFER_LIMIT = 1 << 47
#: A vectorized loop is written out in pieces of the native length, which is at least about this.
_PIECE = 16


@dataclass(frozen=True, slots=True)
class _Copies:
    """Number of times a statement is written, and the loop that makes most copies of it."""

    number: int = 1
    loop: str = ""
    most: int = 1

    def inside(self, s: For) -> _Copies:
        unrolled = s.kind == "unrolled" or UNROLL_HINT in s.pragmas
        if not isinstance(s.extent, int) or not (unrolled or s.kind == "vectorized"):
            return self
        n = s.extent if unrolled else -(-s.extent // _PIECE)
        if n <= self.most:
            return _Copies(self.number * n, self.loop, self.most)
        kind = "unrolled" if unrolled else "vectorized"
        return _Copies(self.number * n, f"{kind} loop {s.var.name!r} of {s.extent}", n)


def check_work(f: Func) -> None:
    """Refuse a function of too much code; the error names the loop with most copies and the
    limit."""
    _Count(f.name, PassContext.current().count("code_limit", CODE_LIMIT)).stmt(f.body, _Copies())


class _Count:
    def __init__(self, name: str, limit: int) -> None:
        self.name, self.limit = name, limit
        self.nodes = 0
        # The sizes of expressions, which programs share; they are kept so that ids stay theirs.
        self.sizes: dict[int, tuple[Expr, int]] = {}

    def stmt(self, s: Node, copies: _Copies) -> None:
        """Count a statement that is written so many times."""
        self.add(1, copies)
        if isinstance(s, Allocate):
            self.buffer(s.buffer)
        inside = copies.inside(s) if isinstance(s, For) else copies
        for c in s.children():
            if isinstance(c, Stmt):
                self.stmt(c, inside)
            elif isinstance(c, Expr):
                self.add(self.size(c), copies)

    def add(self, nodes: int, copies: _Copies) -> None:
        self.nodes += nodes * copies.number
        if self.nodes <= self.limit:
            return
        most = f"; most copies are made by the {copies.loop}" if copies.loop else ""
        raise TooMuchCodeError(
            f"lower: {self.name!r} would be written out to more than {self.limit} nodes of the IR"
            f"{most}; unroll, vectorize or inline less, or raise the limit with "
            "PassContext(config={'code_limit': ...})"
        )

    def size(self, e: Expr) -> int:
        """Nodes of an expression, written out where parts of it are shared."""
        if id(e) not in self.sizes:
            parts = [c for c in e.children() if isinstance(c, Expr)]
            self.sizes[id(e)] = e, 1 + sum(map(self.size, parts))
        return self.sizes[id(e)][1]

    def buffer(self, b: Buffer) -> None:
        if not b.symbolic and b.nbytes > BUFFER_LIMIT:
            raise LowerError(
                f"lower: the buffer {b.name!r} of {self.name!r} would take {b.nbytes} bytes (limit "
                f"{BUFFER_LIMIT}); compute it at a loop further inside, or align it to less"
            )
