"""Bodies of computes that are more than one expression: reductions, and tuples of values."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    IfThenElse,
    IterVar,
    Read,
    Select,
    Unary,
    Var,
)
from loopwright.ir.node import Node, node
from loopwright.ir.traversal import substitute


@node
class Combiner(Node):
    """A commutative, associative reducer of one or more values at once.

    ``result`` combines the variables ``lhs`` and ``rhs``. All fields but the name have one
    entry for each output.
    """

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]

    def combine(self, a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
        """``result`` with ``a`` for ``lhs`` and ``b`` for ``rhs``."""
        env = dict(zip((*self.lhs, *self.rhs), (*a, *b), strict=True))
        return tuple(substitute(e, env) for e in self.result)


@node
class Reduce(Expr):
    """The reduction of ``source`` (one expression for each output) over ``axes``; a whole body.

    Only points where ``where`` holds are combined. ``init`` gives starting values in place of the
    combiner's identity. ``dtype`` is that of output 0.
    """

    combiner: Combiner
    source: tuple[Expr, ...]
    axes: tuple[IterVar, ...]
    where: Expr | None
    init: tuple[Expr, ...] | None
    dtype: str

    @property
    def start(self) -> tuple[Expr, ...]:
        """Starting value of each output: ``init``, or the combiner's identity."""
        return self.combiner.identity if self.init is None else self.init

    def outputs(self) -> tuple[Reduced, ...]:
        """Outputs one by one, as calling a reducer of tuples gives them."""
        return tuple(Reduced(self, k, e.dtype) for k, e in enumerate(self.source))


@node
class Reduced(Expr):
    """One output of a reduction of tuples, while a compute is being described."""

    reduce: Reduce
    index: int
    dtype: str


@node
class Tuple(Expr):
    """The body of a compute with several outputs: one value for each, of any dtype.

    ``dtype`` is that of output 0.
    """

    values: tuple[Expr, ...]
    dtype: str


#: Every class of expressions over tensors in the body of a compute. A `match` over it that forgets
#: one does not pass the type checker.
AnyTensorExpr = (
    Var | Const | Read | Binary | Cast | Select | IfThenElse | Unary | Call | Reduce | Tuple
)


def outputs_of(body: Expr) -> tuple[Expr, ...]:
    """One expression for each output of a body; of a reduction what it combines."""
    if isinstance(body, Reduce):
        return body.source
    return body.values if isinstance(body, Tuple) else (body,)
