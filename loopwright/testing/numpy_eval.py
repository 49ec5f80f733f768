"""The results of a DAG by NumPy alone: the reference that shares no code with the lowering.

Every operation is evaluated at once on index grids, straight from its expression tree. Nothing here
knows of schedules, bounds, buffers or loops, and no simplification is done, so a mistake in those
cannot hide in both. A reduction is spread out over all its points: for small shapes.

Rules of the compiler that differ from NumPy: integer division by zero gives 0; a float converted to
an integer is truncated, out of range it is cut to the nearest limit, and NaN gives 0. Axes are
int32. An index made of axes alone is computed in unbounded integers: nothing in it wraps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import numpy as np

from loopwright.errors import InternalError
from loopwright.ir.expr import Binary, Call, Cast, Const, Expr, IfThenElse, Read, Select, Unary, Var
from loopwright.ir.interp.arrays import Array, binary, cast, intrinsic
from loopwright.ir.reduction import AnyTensorExpr, Reduce, Tuple, outputs_of
from loopwright.ir.visitor import contains
from loopwright.te import ArgId, Dag, OpNode, arg_id

_DIVISIONS = ("//", "%", "tdiv", "tmod")
#: Operations on axes that are those of whole numbers.
_WHOLE = ("+", "-", "*", "min", "max", *_DIVISIONS)


def evaluate(dag: Dag, inputs: Mapping[int, Array] | Mapping[ArgId, Array]) -> dict[ArgId, Array]:
    """Values of all operations of a DAG by index, ``(index, k)`` for output k > 0, from the arrays
    of its placeholders by index; an unguarded read outside a tensor is an `InternalError`.
    """
    values: dict[ArgId, Array] = {}
    values.update(inputs.items())
    with np.errstate(all="ignore"):
        for i, op in enumerate(dag.ops):
            results = [] if op.is_placeholder else _Evaluation(op, values).result()
            values.update({arg_id(i, k): value for k, value in enumerate(results)})
    return values


class _Evaluation:
    """One operation over its whole domain: spatial axes first, then the reduction's."""

    def __init__(self, op: OpNode, values: Mapping[ArgId, Array]) -> None:
        self.op, self.values = op, values
        axes = [*op.axes, *op.reduce_axes]
        self.domain = tuple(a.count for a in axes)
        self.grid: dict[Var, Array] = {}
        for d, a in enumerate(axes):
            shape = [1] * len(axes)
            shape[d] = self.domain[d]
            self.grid[a.var] = np.arange(shape[d], dtype=np.int32).reshape(shape)
        self._whole: dict[Expr, Array | None] = {}

    def result(self) -> list[Array]:
        body = self.op.body
        assert body is not None
        everywhere = np.ones((), bool)
        if not isinstance(body, Reduce):
            return [self._spread(self.value(e, everywhere), e.dtype) for e in outputs_of(body)]
        where = everywhere if body.where is None else self.value(body.where, everywhere)
        points = [self._spread(self.value(e, where), e.dtype) for e in body.source]
        active = self._spread(where, "bool")
        start = body.combiner.identity if body.init is None else body.init
        return self._fold(body, points, active, [self.value(e, everywhere) for e in start])

    def _spread(self, x: Array, dtype: str) -> Array:
        return np.ascontiguousarray(np.broadcast_to(x, self.domain).astype(dtype)).reshape(
            self.domain
        )

    def _fold(
        self, body: Reduce, points: list[Array], active: Array, start: list[Array]
    ) -> list[Array]:
        """Combine the points one after the other, in the order of the axes."""
        n = len(self.op.axes)
        types = [e.dtype for e in body.source]
        own = self.op.static_shape
        shape = (*own, *[1] * (len(self.domain) - n))
        acc = [
            np.broadcast_to(x, shape).reshape(own).astype(t)
            for x, t in zip(start, types, strict=True)
        ]
        points = [p.reshape(*own, -1) for p in points]
        active = active.reshape(*own, -1)
        c = body.combiner
        for k in range(active.shape[-1]):
            env = dict(zip((*c.lhs, *c.rhs), (*acc, *(p[..., k] for p in points)), strict=True))
            new = [self.value(e, np.ones((), bool), env) for e in c.result]
            acc = [
                np.where(active[..., k], x, old).astype(t)
                for x, old, t in zip(new, acc, types, strict=True)
            ]
        return acc

    def value(self, e: Expr, mask: Array, env: Mapping[Var, Array] | None = None) -> Array:
        """The value of an expression; reads need to be in bounds only where ``mask`` holds."""

        def go(x: Expr) -> Array:
            return self.value(x, mask, env)

        if not isinstance(e, AnyTensorExpr) or isinstance(e, Reduce | Tuple):
            raise InternalError(f"no reference for {type(e).__name__}")
        match e:
            case Var():
                return self.grid[e] if e in self.grid else (env or {})[e]
            case Const(value=v, dtype=d):
                return np.array(v, d)
            case Cast(value=x, dtype=d):
                return cast(go(x), d)
            case Unary(op="-", a=a):
                return -go(a)
            case Unary(op="~", a=a):
                return np.invert(go(a))
            case Unary(a=a):
                return np.logical_not(go(a))
            case Binary(op=op, a=a, b=b):
                return binary(op, go(a), go(b))
            case Select(cond=c, a=a, b=b):
                return np.where(go(c), go(a), go(b))
            case IfThenElse(cond=c, a=a, b=b):
                cond = go(c)
                return np.where(
                    cond, self.value(a, mask & cond, env), self.value(b, mask & ~cond, env)
                )
            case Call(fn="reinterpret", args=(a,), dtype=d):
                return np.asarray(go(a), order="C").view(d)
            case Call(fn=fn, args=args):
                return cast(np.asarray(intrinsic(fn, [go(a) for a in args])), e.dtype)
            case Read():
                return self._read(e, mask, env)
            case _:
                assert_never(e)

    def _read(self, e: Read, mask: Array, env: Mapping[Var, Array] | None) -> Array:
        source = self.values[arg_id(e.source, e.value_index)]
        indices = []
        for d, (i, n) in enumerate(zip(e.indices, source.shape, strict=True)):
            whole = self.whole(i)
            index = self.value(i, mask, env).astype(np.int64) if whole is None else whole
            outside = ((index < 0) | (index >= n)) & mask
            if outside.any():
                raise InternalError(
                    f"{self.op.name} reads outside dimension {d} of operation {e.source}"
                )
            indices.append(np.clip(index, 0, n - 1))
        return source[tuple(np.broadcast_arrays(*indices))] if indices else source

    def whole(self, e: Expr) -> Array | None:
        """The unbounded integers of arithmetic on axes alone; None for all else."""
        if e not in self._whole:
            signed = e.dtype in ("int32", "int64")
            self._whole[e] = self._whole_of(e) if signed else None
        return self._whole[e]

    def _whole_of(self, e: Expr) -> Array | None:
        match e:
            case Var():
                return self.grid[e].astype(np.int64) if e in self.grid else None
            case Const(value=v):
                return np.array(v, np.int64)
            case Cast(value=a, dtype=d):
                x = self.whole(a)
                return x if x is not None and np.array_equal(x, x.astype(d)) else None
            case Unary(op="-", a=a):
                x = self.whole(a)
                return None if x is None else -x
            case Select(cond=c, a=a, b=b):
                x, y = self.whole(a), self.whole(b)
                if x is None or y is None or contains(c, Read):
                    return None
                return np.where(self.value(c, np.ones((), bool)), x, y)
            case Binary(op=op, a=a, b=b) if op in _WHOLE:
                x, y = self.whole(a), self.whole(b)
                positive = y is not None and bool((y > 0).all())
                if x is None or y is None or (op in _DIVISIONS and not positive):
                    return None
                return binary(op, x, y)
        return None
