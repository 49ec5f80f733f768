"""Bodies of computes that are more than one expression: reductions, and tuples of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopwright.ir.affine import to_affine
from loopwright.ir.expr import Binary, Expr, IfThenElse, IterVar, PureExpr, Read, Select, Var
from loopwright.ir.node import Node, node, same
from loopwright.ir.visitor import free_vars, substitute


@node
class Combiner(Node):
    """A commutative, associative reducer of one or more values at once; ``result`` combines ``lhs``
    and ``rhs``, and all fields but the name have one entry for each output."""

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]

    def combine(self, a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
        env = dict(zip((*self.lhs, *self.rhs), (*a, *b), strict=True))
        return tuple(substitute(e, env) for e in self.result)


@node
class Reduce(Expr):
    """The reduction of ``source`` (one expression for each output) over ``axes``; a whole body.
    ``init`` gives starting values in place of the identity; ``dtype`` is that of output 0."""

    combiner: Combiner
    source: tuple[Expr, ...]
    axes: tuple[IterVar, ...]
    #: Only points where this holds are combined.
    where: Expr | None
    init: tuple[Expr, ...] | None
    dtype: str

    @property
    def start(self) -> tuple[Expr, ...]:
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
    """The body of a compute with several outputs; ``dtype`` is that of output 0."""

    values: tuple[Expr, ...]
    dtype: str


#: Every class of expressions over tensors in the body of a compute. A `match` over it that forgets
#: one does not pass the type checker.
AnyTensorExpr = PureExpr | Read | Reduce | Tuple


def outputs_of(body: Expr) -> tuple[Expr, ...]:
    """One expression for each output of a body; of a reduction what it combines."""
    if isinstance(body, Reduce):
        return body.source
    return body.values if isinstance(body, Tuple) else (body,)


# ---------------------------------------------------------------- scans
#
# A scan is a reduction of which each place combines all elements up to it, as running sums do.
# Written out, it is a triangle of quadratic size. Its elements do not depend on the place, so that
# it may be computed in blocks (Blelloch, CMU-CS-90-190), as
# `loopwright.schedule.primitives.rfactor` does.

#: Comparisons with the sides as they are read, and how much smaller the first one must be.
_LESS = {"<=": 0, "<": 1}
_MORE = {">=": 0, ">": 1}


@dataclass(frozen=True, eq=False)
class Scan:
    """A reduction over ``k`` up to each place ``j``, or from it on."""

    #: Axis ``j`` of the result.
    place: IterVar
    #: Axis ``k`` of the reduction.
    over: IterVar
    #: Whether it combines ``k <= j + offset``; else ``k >= j + offset``.
    forward: bool
    offset: int
    #: The comparison as it is written.
    condition: Expr
    #: The combined value, which does not depend on the place.
    element: Expr

    @property
    def range(self) -> tuple[int, int]:
        """First place of ``k`` that some result needs, and the one behind the last."""
        if self.forward:
            return 0, min(self.over.count, self.place.count + self.offset)
        return max(0, self.offset), self.over.count


def scan_of(axes: Sequence[IterVar], reduction: Reduce, over: IterVar) -> Scan | None:
    """A reduction of one output, without ``init``, along ``over`` as a scan; None if it is none."""
    # The condition is ``where``, or that of a `Select` or an `IfThenElse` which else gives the
    # identity of the combiner.
    extents = [x.extent for x in (*axes, *reduction.axes)]
    single = len(reduction.source) == 1 and reduction.init is None
    if not single or not all(isinstance(n, int) for n in extents):
        return None
    where, (source,), (identity,) = reduction.where, reduction.source, reduction.combiner.identity
    if isinstance(source, Select | IfThenElse):
        scan = _compared(axes, reduction, over, source.cond, source.a)
        if scan is not None and same(source.b, identity):
            return None if where is not None and scan.place.var in free_vars(where) else scan
    return None if where is None else _compared(axes, reduction, over, where, source)


def _compared(
    axes: Sequence[IterVar], reduction: Reduce, over: IterVar, condition: Expr, element: Expr
) -> Scan | None:
    """The scan of a condition that compares an axis of the result with ``over``, or None."""
    if not isinstance(condition, Binary) or condition.op not in {*_LESS, *_MORE}:
        return None
    less, more = condition.a, condition.b
    if condition.op in _MORE:
        less, more = more, less
    ranges = {x.var: (0, x.count - 1) for x in (*axes, *reduction.axes)}
    first, second = to_affine(less, {}, ranges), to_affine(more, {}, ranges)
    if first is None or second is None:
        return None
    rest = second - first - (_LESS | _MORE)[condition.op]  # holds where it is not negative
    places = [x for x in axes if x.var in rest.terms]
    if len(places) != 1 or set(rest.terms) != {over.var, places[0].var}:
        return None
    if places[0].var in free_vars(element):
        return None
    signs = rest.terms[over.var], rest.terms[places[0].var]
    if signs not in ((-1, 1), (1, -1)):
        return None
    forward = signs == (-1, 1)
    offset = rest.const if forward else -rest.const
    return Scan(places[0], over, forward, offset, condition, element)
