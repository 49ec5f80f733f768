"""Random stages with several outputs, and reductions of tuples; see `random_program`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from loopwright import dtypes, te
from loopwright.ir.expr import Expr, IterVar, Var
from loopwright.testing.random.expr import DTYPES, INTS, AxisInScope, Expressions, Known
from loopwright.testing.random.values import Info, constant, info_of_dtype

MAX_POINTS = 2500
#: A value with what is known of it.
Made = tuple[Expr, Info]


class Tuples(Expressions):
    """Makes stages of known tensors, alone or several in one nest."""

    def compute(self, shape: tuple[int, ...], make: Callable[[], Made], name: str) -> Known:
        """A stage whose element ``make()`` builds over ``self.axes``."""
        return self.compute_several(shape, lambda: [make()], name)[0]

    def compute_several(
        self, shape: tuple[int, ...], make: Callable[[], Sequence[Made]], name: str
    ) -> list[Known]:
        """A stage with one output for each value that ``make()`` builds over ``self.axes``."""
        infos: list[Info] = []

        def body(*vars_: Var) -> tuple[Expr, ...]:
            outer = self.axes
            self.axes = [AxisInScope(v, e) for v, e in zip(vars_, shape, strict=True)]
            values = make()
            self.axes = outer
            infos.extend(info for _, info in values)
            return tuple(value for value, _ in values)

        result = te.compute(shape, body, name=self._name(name))
        tensors = result if isinstance(result, tuple) else (result,)
        return [Known(t, info) for t, info in zip(tensors, infos, strict=True)]

    def reduction_domain(self) -> tuple[tuple[int, ...], list[IterVar]]:
        """A shape and reduction axes of bounded size, often those of a tensor to read."""
        self.focus = self.source() if self.d.chance(60) else None
        shape = self.shape(limit=120)
        extents = [self.d.pick((1, 2, 3, 4, 5, 7, 8, 13)) for _ in range(self.d.pick((1, 1, 2)))]
        if self.focus:
            whole = self.focus.tensor.static_shape
            cut = self.d.integer(0, max(0, len(whole) - 1))
            shape, extents = whole[:cut], list(whole[cut:]) or extents
        while prod(extents) * prod(shape) > MAX_POINTS:
            extents.pop()
        extents = extents or [1]
        return shape, [te.reduce_axis((0, e), name=f"r{i}") for i, e in enumerate(extents)]

    # ------------------------------------------------------------ stages

    def several(self) -> list[Known]:
        """Two or three values of any dtype in one nest."""
        self.focus = self.source() if self.d.chance(75) else None
        shape = self.focus.tensor.static_shape if self.focus else self.shape()
        types = [self.d.pick(DTYPES) for _ in range(self.d.pick((2, 2, 3)))]
        return self.compute_several(
            shape, lambda: [self.value(t, self.d.integer(0, 2)) for t in types], "Q"
        )

    def tuple_reduction(self) -> list[Known]:
        """A reduction of tuples: argmax, argmin, or sums and extremes side by side."""
        shape, axes = self.reduction_domain()
        make = self._arg_reduction if self.d.chance(50) else self._side_by_side
        return self.compute_several(shape, lambda: make(axes), "Z")

    def _condition(self, axes: list[IterVar]) -> dict[str, Any]:
        """Bring the axes into scope; sometimes only some of their points are combined."""
        self.axes = self.axes + [AxisInScope(a.var, a.count) for a in axes]
        return {"where": self.condition(1)} if self.d.chance(30) else {}

    def _arg_reduction(self, axes: list[IterVar]) -> list[Made]:
        """The place and the value of an extreme; ties, NaN and repeated indices are welcome."""
        index, kind = (
            self.d.pick(INTS),
            self.d.pick([t for t in DTYPES if t not in ("bool", *dtypes.HALVES)]),
        )
        start: list[Made] = []
        if self.d.chance(30):
            start = [self.value(index, 1), constant(self.d, kind)]
        where = self._condition(axes)
        at, (value, info) = self.value(index, self.d.integer(0, 1)), self.value(kind, 1)
        if not info.exact:
            value, info = constant(self.d, kind)
        if where and not start:  # the identity of floats is infinite
            start = [constant(self.d, index), constant(self.d, kind)]
        if start:
            where["init"] = tuple(e for e, _ in start)
            info = info.join(start[1][1])
        reducer = te.argmax if self.d.chance(50) else te.argmin
        reduced = reducer((at[0], value), axis=axes, **where)
        return [(reduced[0], info_of_dtype(index)), (reduced[1], info)]

    def _side_by_side(self, axes: list[IterVar]) -> list[Made]:
        """Outputs that each have a reducer of their own, in one reduction."""
        n = prod(a.count for a in axes)
        types = [
            self.d.pick([t for t in DTYPES if t not in ("bool", *dtypes.HALVES)])
            for _ in range(self.d.pick((2, 2, 3)))
        ]
        kinds = [self.d.pick(("sum", "min", "max")) for _ in types]
        start = [constant(self.d, t) for t in types]
        where = self._condition(axes)
        source = [self.value(t, self.d.integer(0, 2)) for t in types]
        infos = [
            p.sum(n, t).add(q, t) if kind == "sum" else p.join(q)
            for kind, (_, p), (_, q), t in zip(kinds, source, start, types, strict=True)
        ]
        reducer = te.comm_reducer(
            lambda x, y: tuple(map(_combine, kinds, x, y)),
            lambda *ts: tuple(map(_identity, kinds, ts)),
            name="side_by_side",
        )
        values = tuple(e for e, _ in source)
        reduced = reducer(values, axis=axes, init=tuple(e for e, _ in start), **where)
        return list(zip(reduced, infos, strict=True))


def _combine(kind: str, x: Expr, y: Expr) -> Expr:
    return x + y if kind == "sum" else te.min(x, y) if kind == "min" else te.max(x, y)


def _identity(kind: str, dtype: str) -> Expr:
    if kind == "sum":
        return te.const(0, dtype)
    lo, hi = dtypes.limits(dtype)
    return te.const(hi if kind == "min" else lo, dtype)
