"""Scans: reductions of which each place combines all elements up to it, as running sums do.

Written out, such a reduction is a triangle of quadratic size. Its elements do not depend on the
place, so that it may be computed in blocks (Blelloch, CMU-CS-90-190), as
`loopwright.schedule.primitives.rfactor` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopwright.ir.affine import to_affine
from loopwright.ir.expr import Binary, Expr, IfThenElse, IterVar, Select, Var
from loopwright.ir.node import same
from loopwright.ir.reduction import Reduce
from loopwright.ir.traversal import free_vars

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
    """A reduction of one output, without ``init``, along ``over`` as a scan; None if it is none.

    The condition is ``where``, or that of a `Select` or an `IfThenElse` which else gives the
    identity of the combiner.
    """
    sizes = [x.extent for x in (*axes, *reduction.axes)]
    if len(reduction.source) != 1 or reduction.init is not None:
        return None
    if not all(isinstance(n, int) for n in sizes):
        return None
    (source,), (identity,) = reduction.source, reduction.combiner.identity
    if isinstance(source, Select | IfThenElse):
        found = _compared(axes, reduction, over, source.cond, source.a)
        if found is not None and same(source.b, identity):
            return found if found.place.var not in _read_by(reduction.where) else None
    if reduction.where is None:
        return None
    return _compared(axes, reduction, over, reduction.where, source)


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
    if places[0].var in _read_by(element):
        return None
    signs = rest.terms[over.var], rest.terms[places[0].var]
    if signs not in ((-1, 1), (1, -1)):
        return None
    forward = signs == (-1, 1)
    offset = rest.const if forward else -rest.const
    return Scan(places[0], over, forward, offset, condition, element)


def _read_by(e: Expr | None) -> set[Var]:
    return set() if e is None else set(free_vars(e))
