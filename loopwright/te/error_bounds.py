"""Elements of a program's outputs, and bounds on their rounding errors in any right schedule.

NumPy computes chosen elements, floats in float64, and beside each a bound on the error in whatever
order a schedule adds up (running error analysis: Wilkinson, "Error analysis revisited", 1986). It
is infinite where nothing can be said: a type may overflow, or a comparison, a floor or a conversion
may go either way. An infinity or a NaN that an operand brings in is no error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from loopwright import dtypes
from loopwright.errors import LoopwrightError
from loopwright.ir import expr as ir
from loopwright.ir.interp.arrays import Array, binary, cast, intrinsic
from loopwright.ir.reduction import Combiner, Reduce, outputs_of
from loopwright.ir.visitor import contains, nodes
from loopwright.te.dag import Dag

#: Half a unit in the last place of 1, the smallest normal number, and a power of two that is out of
#: range; float64 cannot tell its own overflow, so that its range ends before it.
_FORMATS = {
    "float64": (2.0**-53, 2.0**-1022, 2.0**1023),
    "float32": (2.0**-24, 2.0**-126, 2.0**128),
    "bfloat16": (2.0**-8, 2.0**-126, 2.0**128),
    "float16": (2.0**-11, 2.0**-14, 2.0**16),
}
#: Errors of a division or a root, and of a function, in half units of the last place.
_DIVIDED, _FUNCTION = 5.0, 16.0
#: Errors that a sum makes beside those of its additions: a rounded result, a start from another
#: buffer.
_SUM = 16.0
#: Elements that are computed at a time: they stay in the cache.
_CHUNK = 1 << 16
#: So many times fewer elements than a tensor has are sorted rather than marked.
_FEW = 8
#: Nodes of an expression for which each of its elements counts once more.
_NODES = 16
#: A longer reduction is combined as a tree, where its reducer allows any order. Of infinities
#: and NaN nothing is known then: with them few reducers do.
_LONG = 256
#: A fold over a reduction takes about as long as this many elements for each of its steps.
_STEP = 256


class Estimate(NamedTuple):
    """Values and bounds on their errors."""

    #: Floats as float64.
    value: Array
    #: float64; None: every right schedule gives just these values.
    error: Array | None = None


class TooMuchWorkError(LoopwrightError):
    """More elements would have to be computed than were allowed."""


class Elements:
    """Computes elements of the outputs of a program of known sizes from arrays of placeholders.

    ``budget`` limits the elements of all operations and reductions. ``finite``: nothing is known of
    infinities and NaN, as under ``-fastmath``. Without `why_in_order` a long reduction by an
    unusual reducer is combined term by term, which costs more.
    """

    def __init__(
        self,
        dag: Dag,
        inputs: Mapping[int, Array],
        budget: int,
        *,
        finite: bool = False,
        why_in_order: Callable[[Combiner], str] = lambda c: "not known",
    ) -> None:
        self._dag, self._inputs, self._left, self.finite = dag, inputs, budget, finite
        self._why_in_order = why_in_order
        #: Known elements of each operation and output, their values and their errors.
        self._known: dict[tuple[int, int], tuple[Array, Array, Array]] = {}

    def at(self, op: int, output: int, places: Array) -> Estimate:
        """Elements of an output at row-major ``places``, int64, within the budget."""
        node = self._dag.ops[op]
        if node.is_placeholder:
            array = self._inputs[op].reshape(-1)[places]
            return Estimate(array.astype(np.float64) if dtypes.is_float(node.dtype) else array)
        if (op, output) not in self._known:
            size = math.prod(node.static_shape)
            fresh = np.empty(size, _stored(node.dtypes[output])), np.empty(size)
            self._known[op, output] = np.zeros(size, bool), *fresh
        done, values, errors = self._known[op, output]
        if places.size * _FEW < done.size:
            wanted = np.unique(places)
        else:
            needed = np.zeros(done.size, bool)
            needed[places] = True
            wanted = np.flatnonzero(needed)
        self._compute(op, output, wanted[~done[wanted]])
        error = errors[places]
        return Estimate(values[places], error if error.any() else None)

    def _compute(self, op: int, output: int, places: Array) -> None:
        node = self._dag.ops[op]
        assert node.body is not None
        terms = math.prod(a.count for a in node.reduce_axes)
        length = sum(1 for e in outputs_of(node.body) for _ in nodes(e))
        self._left -= places.size * terms * (1 + length // _NODES)
        if self._left < 0:
            raise TooMuchWorkError("too many elements")
        done, values, errors = self._known[op, output]
        step = max(1, _CHUNK // terms)
        for i in range(0, places.size, step):
            some = places[i : i + step]
            result = self._chunk(op, output, some)
            values[some], errors[some] = result.value, _error(result)
            done[some] = True

    def _chunk(self, op: int, output: int, places: Array) -> Estimate:
        node = self._dag.ops[op]
        assert node.body is not None
        spatial = np.unravel_index(places, node.static_shape) if node.static_shape else ()
        axes = {a.var: x[:, None] for a, x in zip(node.axes, spatial, strict=True)}
        counts = [a.count for a in node.reduce_axes]
        inner = np.unravel_index(np.arange(math.prod(counts)), counts) if counts else ()
        axes |= {a.var: x[None, :] for a, x in zip(node.reduce_axes, inner, strict=True)}
        shape = places.size, math.prod(counts)
        e = _Expressions(self, axes)
        if not isinstance(node.body, Reduce):
            return _columns(_spread(e.of(outputs_of(node.body)[output]), shape), 0)
        return self._reduced(node.body, output, e, shape)

    def _reduced(
        self, red: Reduce, output: int, e: _Expressions, shape: tuple[int, int]
    ) -> Estimate:
        sources = [_spread(e.of(s), shape) for s in red.source]
        active = None if red.where is None else _spread(e.of(red.where), shape)
        starts = [_columns(_spread(e.of(s), (shape[0], 1)), 0) for s in red.start]
        result, dtype = red.combiner.result[0], red.source[0].dtype
        simple = isinstance(result, ir.Binary) and {result.a, result.b} == {
            *red.combiner.lhs,
            *red.combiner.rhs,
        }
        if len(sources) == 1 and simple and (active is None or active.error is None):
            assert isinstance(result, ir.Binary)
            keep = np.ones(shape, bool) if active is None else active.value
            if result.op == "+":
                return _sum(sources[0], starts[0], keep, dtype)
            if result.op in ("min", "max"):
                return _extreme(result.op, sources[0], starts[0], keep)
            if result.op == "*" and dtypes.is_float(dtype):
                return _product(sources[0], starts[0], keep, dtype)
        if shape[1] > _LONG and active is None and not self._why_in_order(red.combiner):
            folds = [_tree(red.combiner, sources, starts, step) for step in (1, -1)]
            agreed = _agreed(folds[0][output], folds[1][output])
            unsure = ~np.logical_and.reduce([np.isfinite(x.value).all(1) for x in sources])
            return Estimate(agreed.value, np.where(unsure, np.inf, _error(agreed)))
        self._left -= shape[1] * _STEP
        if self._left < 0:
            raise TooMuchWorkError("too many steps of a reduction")
        order = range(shape[1])
        folds = [_fold(red.combiner, sources, active, starts, o) for o in (order, order[::-1])]
        return _agreed(folds[0][output], folds[1][output])

    def read(self, e: ir.Read, axes: _Expressions) -> Estimate:
        """The element that a read names; any one where it is out of bounds: a condition decides."""
        source, places, wrong = self._dag.ops[e.source], np.zeros((), np.int64), None
        for i, n in zip(e.indices, source.static_shape, strict=True):
            index = axes.index(i)
            if index.error is not None:
                wrong = _more(wrong, index.error)
            places = places * n + np.clip(index.value.astype(np.int64), 0, n - 1)
        element = self.at(e.source, e.value_index, places)
        return element if wrong is None else Estimate(element.value, _more(element.error, wrong))


class _Expressions:
    """Values of expressions at points with coordinates ``axes``; ``elements`` are read."""

    def __init__(
        self,
        elements: Elements | None,
        axes: Mapping[ir.Var, Array],
        values: Mapping[ir.Var, Estimate] | None = None,
    ) -> None:
        self._elements, self._axes, self._values = elements, axes, values or {}
        self._known: dict[tuple[int, bool], Estimate] = {}

    def index(self, e: ir.Expr) -> Estimate:
        """An index: made of axes alone it is arithmetic on whole numbers, which do not wrap."""
        return self.of(e, whole=not contains(e, ir.Read))

    def of(self, e: ir.Expr, whole: bool = False) -> Estimate:
        key = id(e), whole
        if key not in self._known:
            self._known[key] = self._of(e, whole)
        return self._known[key]

    def _of(self, e: ir.Expr, whole: bool) -> Estimate:
        def of(x: ir.Expr) -> Estimate:
            return self.of(x, whole)

        match e:
            case ir.Var(dtype=d):
                if e in self._values:
                    return self._values[e]
                return Estimate(self._axes[e].astype(np.int64 if whole else d))
            case ir.Const(value=v, dtype=d):
                wide = whole and dtypes.is_int(d)
                return Estimate(np.array(v, d).astype(np.int64 if wide else _stored(d)))
            case ir.Read():
                assert self._elements is not None
                return self._elements.read(e, self)
            case ir.Cast(value=v, dtype=d):
                wide = whole and dtypes.is_int(d) and dtypes.is_int(v.dtype)
                return of(v) if wide else self._nearest(_converted(of(v), v.dtype, d), of(v), d)
            case ir.Unary(op=op, a=a):
                x = of(a)
                function = {"-": np.negative, "~": np.invert}.get(op, np.logical_not)
                return Estimate(np.asarray(function(x.value)), x.error)
            case ir.Binary(op=op, a=a, b=b):
                return self._checked(_binary(op, of(a), of(b), a.dtype))
            case ir.Select(cond=c, a=a, b=b) | ir.IfThenElse(cond=c, a=a, b=b):
                return _chosen(of(c), of(a), of(b))
            case ir.Call(fn=fn, args=args, dtype=d):
                return self._checked(_call(fn, [of(a) for a in args], d))
        raise LoopwrightError(f"no bound is known for {type(e).__name__}")

    def _nearest(self, x: Estimate, before: Estimate, dtype: str) -> Estimate:
        """A float32 that was rounded to the nearest 16-bit float, which no schedule changes."""
        if dtype not in dtypes.HALVES or x.error is None or before.error is not None:
            return x
        single = x.value.astype(np.float32)
        nearest = single.astype(dtype).astype(np.float64)
        sure = (single == x.value) & np.isfinite(nearest)
        sure &= np.abs(nearest) > 2.0 * _FORMATS[dtype][1]  # smaller ones may be flushed
        sure &= not self._finite
        error = np.where(sure, 0.0, x.error)
        return Estimate(np.where(sure, nearest, x.value), error if error.any() else None)

    @property
    def _finite(self) -> bool:
        return self._elements is not None and self._elements.finite

    def _checked(self, x: Estimate) -> Estimate:
        if not self._finite or x.value.dtype.kind != "f":
            return x
        return Estimate(x.value, _more(x.error, np.where(~np.isfinite(x.value), np.inf, 0.0)))


def _stored(dtype: str) -> Any:
    return np.float64 if dtypes.is_float(dtype) else np.dtype(dtype)


def _spread(x: Estimate, shape: tuple[int, int]) -> Estimate:
    error = None if x.error is None else np.broadcast_to(x.error, shape)
    return Estimate(np.broadcast_to(x.value, shape), error)


def _columns(x: Estimate, k: int | slice) -> Estimate:
    return Estimate(x.value[:, k], None if x.error is None else x.error[:, k])


def _error(x: Estimate) -> Array:
    return np.zeros(x.value.shape) if x.error is None else x.error


def _more(a: Array | None, b: Array | None) -> Array | None:
    """Sum of two errors; NaN, which comes of 0 * inf, is unbounded."""
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(np.nan_to_num(a + b, nan=np.inf, posinf=np.inf))


def _sure_nan(x: Estimate) -> Array:
    """Elements that are NaN under every right schedule."""
    if x.value.dtype.kind != "f":
        return np.zeros((), bool)
    return np.asarray(np.isnan(x.value) & (_error(x) == 0))


def _rounded(
    value: Array, inner: Array | None, dtype: str, units: float, *operands: Estimate
) -> Estimate:
    """Result of an operation, in float64, with its own rounding and overflow.

    ``inner`` is the error that comes of the operands; ``units`` its own in half units of the last
    place: with 1 it is rounded correctly, so that a value that the type can hold is exact.
    """
    half, least, beyond = _FORMATS[dtype]
    size = np.abs(value)
    error = np.where(size == 0, 0.0, units * half * size + least)
    if units == 1 and dtype != "float64":
        error = np.where(value.astype(dtype).astype(np.float64) == value, 0.0, error)
    if inner is not None:
        error = error + inner * (1.0 + 2.0 * units * half)
    special = ~np.isfinite(value)
    error = np.where(special | (size + error >= beyond), np.inf, error)
    settled = special if inner is None else special & np.isfinite(inner)
    for x in operands:
        settled = settled | _sure_nan(x)
    error = np.where(settled, 0.0, np.nan_to_num(error, nan=np.inf, posinf=np.inf))
    return Estimate(value, error if error.any() else None)


def _converted(x: Estimate, before: str, after: str) -> Estimate:
    if dtypes.is_float(after):
        value = x.value.astype(np.float64)
        return _rounded(value, x.error, after, 1.0, x)
    if not dtypes.is_float(before):
        return Estimate(cast(x.value, after), x.error)
    value = cast(x.value, after)
    if x.error is None:
        return Estimate(value)
    same = cast(x.value - x.error, after) == cast(x.value + x.error, after)
    return Estimate(value, np.where(same & np.isfinite(x.error), 0.0, np.inf))


def _chosen(cond: Estimate, a: Estimate, b: Estimate) -> Estimate:
    """One of two; where the condition may go either way, either of them."""
    value = np.where(cond.value, a.value, b.value)
    error = None
    if a.error is not None or b.error is not None:
        error = np.where(cond.value, _error(a), _error(b))
    if cond.error is None:
        return Estimate(value, error)
    if value.dtype.kind == "f":
        apart = np.nan_to_num(np.abs(a.value - b.value), nan=np.inf, posinf=np.inf)
    else:
        apart = np.where(a.value == b.value, 0.0, np.inf)
    either = _error(a) + _error(b) + apart
    return Estimate(value, np.where(cond.error > 0, either, 0.0 if error is None else error))


def _binary(op: str, a: Estimate, b: Estimate, dtype: str) -> Estimate:
    if not dtypes.is_float(dtype):
        return Estimate(binary(op, a.value, b.value), _more(a.error, b.error))
    value, exact = np.asarray(binary(op, a.value, b.value)), a.error is None and b.error is None
    if op in ("min", "max", *ir.COMPARE) and exact:
        return Estimate(value)
    if op in ir.COMPARE:
        apart = _error(a) + _error(b)
        sure = (np.abs(a.value - b.value) > apart) | (apart == 0) | _sure_nan(a) | _sure_nan(b)
        return Estimate(value, np.where(sure, 0.0, np.inf))
    if op in ("min", "max"):
        error = np.maximum(_error(a), _error(b))
        return Estimate(value, np.where(_sure_nan(a) | _sure_nan(b), 0.0, error))
    if op in ("+", "-"):
        return _rounded(value, _more(a.error, b.error), dtype, 1.0, a, b)
    p, q = _error(a), _error(b)
    if op == "*":
        inner = None
        if not exact:
            inner = np.abs(a.value) * q + (np.abs(b.value) + q) * p
            inner = np.asarray(np.nan_to_num(inner, nan=np.inf, posinf=np.inf))
        product = _rounded(value, inner, dtype, 1.0, a, b)
        # A fused multiply-add does not overflow where a product does.
        over = np.isinf(value) & np.isfinite(a.value) & np.isfinite(b.value)
        unbounded = np.where(over, np.inf, 0.0) if over.any() else None
        return Estimate(value, _more(product.error, unbounded))
    if op == "/":
        inner = None
        if not exact:
            least = np.abs(b.value) - q
            inner = (p + np.abs(a.value / b.value) * q) / np.where(least > 0, least, 0.0)
            unsure = ~np.isfinite(inner) | ((least <= 0) & (q > 0))
            inner = np.where(unsure, np.inf, inner)
        return _rounded(value, inner, dtype, _DIVIDED, a, b)
    return Estimate(value, np.full(value.shape, np.inf))  # quotients that are rounded to integers


def _unbounded(error: Array) -> Array:
    return np.where(error > 0, np.inf, 0.0)


def _call(fn: str, args: Sequence[Estimate], dtype: str) -> Estimate:
    if fn == "fma":
        return _binary("+", _binary("*", args[0], args[1], dtype), args[2], dtype)
    if fn == "reinterpret":
        (x,) = args
        before = x.value
        if before.dtype.kind == "f":
            before = before.astype(dtype if dtype == "bfloat16" else f"float{dtypes.bits(dtype)}")
        bits = np.ascontiguousarray(before).view(dtype).astype(_stored(dtype))
        return Estimate(bits, None if x.error is None else _unbounded(x.error))
    if not dtypes.is_float(dtype):
        wrong = None
        for x in args:
            wrong = _more(wrong, x.error)
        return Estimate(cast(np.asarray(intrinsic(fn, [x.value for x in args])), dtype), wrong)
    value = np.asarray(intrinsic(fn, [x.value for x in args]), np.float64)
    error = _function_error(fn, args, value) if any(x.error is not None for x in args) else None
    if fn in ("abs", "floor", "ceil", "trunc", "round"):
        return Estimate(value, error)
    units = _DIVIDED if fn == "sqrt" else _FUNCTION
    if dtype in dtypes.HALVES:
        units = 1.0 + units * _FORMATS["float32"][0] / _FORMATS[dtype][0]
    return _rounded(value, error, dtype, units, *args)


def _function_error(fn: str, args: Sequence[Estimate], value: Array) -> Array:
    """Spread of a function, monotonic or nearly so there, over the errors of its operands."""
    if fn == "fmod":
        return _unbounded(_error(args[0]) + _error(args[1]))
    if fn in ("abs", "sin", "cos"):
        return _error(args[0])
    worst = np.zeros(value.shape)
    corners: list[list[Array]] = [[]]
    for x in args:
        corners = [[*c, x.value + s * _error(x)] for c in corners for s in (-1.0, 1.0)]
    for corner in corners:
        there = np.asarray(intrinsic(fn, corner), np.float64)
        apart = np.where((there == value) | (np.isnan(there) & np.isnan(value)), 0.0, there - value)
        worst = np.maximum(worst, np.nan_to_num(np.abs(apart), nan=np.inf, posinf=np.inf))
    most = 1e-3 if fn == "tan" else np.finfo(np.float64).max
    for x in args:
        worst = np.where(_error(x) <= most, worst, np.inf)
    return 2.0 * worst


# ---------------------------------------------------------------- reductions


def _sum(x: Estimate, start: Estimate, keep: Array, dtype: str) -> Estimate:
    if not dtypes.is_float(dtype):
        total = np.where(keep, x.value, np.zeros((), x.value.dtype)).sum(1, x.value.dtype)
        wrong = None if x.error is None else np.where(keep, x.error, 0.0).sum(1)
        return Estimate(total + start.value, _more(wrong, start.error))
    half, least, beyond = _FORMATS[dtype]
    terms = np.where(keep, x.value, 0.0)
    value = terms.sum(1) + start.value
    sizes = np.abs(np.where(np.isfinite(terms), terms, 0.0)).sum(1)
    sizes = sizes + np.abs(np.where(np.isfinite(start.value), start.value, 0.0))
    inner = _error(start) + (0.0 if x.error is None else np.where(keep, x.error, 0.0).sum(1))
    count = terms.shape[1]
    error = 1.25 * inner + min(1.0, (count + _SUM) * half) * sizes + count * least
    if count == 1 and not inner.any():
        return _rounded(value, None, dtype, 1.0)
    special = ~np.isfinite(value)
    sure = np.isfinite(inner) & (sizes + error < beyond)
    nan = _sure_nan(start)
    error = np.where(special | ~sure, np.where(special & sure, 0.0, np.inf), error)
    nan = nan | (np.isnan(terms) & ((0.0 if x.error is None else x.error) == 0)).any(1)
    error = np.where(nan | ((sizes == 0) & (inner == 0)), 0.0, error)
    return Estimate(np.where(nan, np.nan, value), error)


def _extreme(op: str, x: Estimate, start: Estimate, keep: Array) -> Estimate:
    """The smallest or the largest, NaN before all others."""
    function = np.minimum if op == "min" else np.maximum
    values = np.where(keep, x.value, start.value[:, None])
    value = function(function.reduce(values, 1), start.value)
    if x.error is None and start.error is None:
        return Estimate(value)
    errors = np.where(keep, _error(x), 0.0)
    error = np.maximum(errors.max(1), _error(start))
    if value.dtype.kind == "f":
        nan = (np.isnan(values) & (errors == 0)).any(1) | _sure_nan(start)
        error = np.where(nan, 0.0, error)
    return Estimate(value, error)


def _product(x: Estimate, start: Estimate, keep: Array, dtype: str) -> Estimate:
    """A product in any order: parts of it may overflow, or vanish, where the whole does neither."""
    half, least, beyond = _FORMATS[dtype]
    terms = np.concatenate([np.where(keep, x.value, 1.0), start.value[:, None]], 1)
    wrong = np.concatenate([np.where(keep, _error(x), 0.0), _error(start)[:, None]], 1)
    value, count, exact = terms.prod(1), terms.shape[1], ~wrong.any(1)
    sizes = np.where(np.isfinite(terms) & (terms != 0), np.abs(terms), 1.0)
    share = np.expm1(np.log1p(wrong / sizes).sum(1) + 2.0 * count * half)
    largest = (np.maximum(sizes + wrong, 1.0)).prod(1)
    vanishes = np.minimum(sizes, 1.0).prod(1) < least
    zero = (terms == 0).any(1)
    error = share * np.where(zero, largest, np.abs(value))
    error = np.where(vanishes, error + count * least * largest, error)
    error = np.where(exact & (zero | ~np.isfinite(value) & ~vanishes), 0.0, error)
    error = np.where(largest * (1.0 + share) < beyond, error, np.inf)
    nan = (np.isnan(terms) & (wrong == 0)).any(1)
    error = np.where(nan, 0.0, np.nan_to_num(error, nan=np.inf, posinf=np.inf))
    return Estimate(np.where(nan, np.nan, value), error)


def _tree(
    c: Combiner, sources: Sequence[Estimate], starts: Sequence[Estimate], step: int
) -> list[Estimate]:
    """Combine neighbours, again and again; backwards with a step of -1."""
    state = [_columns(s, slice(None, None, step)) for s in sources]
    while (count := state[0].value.shape[1]) > 1:
        even, odd = slice(0, count - 1, 2), slice(1, None, 2)
        last = [_columns(s, slice(-1, None)) for s in state]
        state = folded(c, *([_columns(s, k) for s in state] for k in (even, odd)))
        if count % 2:
            state = [_joined(*both) for both in zip(state, last, strict=True)]
    return folded(c, starts, [_columns(s, 0) for s in state])


def _joined(a: Estimate, b: Estimate) -> Estimate:
    error = None
    if a.error is not None or b.error is not None:
        error = np.concatenate([_error(a), _error(b)], 1)
    return Estimate(np.concatenate([a.value, b.value], 1), error)


def _fold(
    c: Combiner,
    sources: Sequence[Estimate],
    active: Estimate | None,
    starts: Sequence[Estimate],
    order: Sequence[int],
) -> list[Estimate]:
    state = list(starts)
    for k in order:
        new = folded(c, state, [_columns(s, k) for s in sources])
        if active is not None:
            on = _columns(active, k)
            new = [_chosen(on, x, old) for x, old in zip(new, state, strict=True)]
        state = new
    return state


def folded(c: Combiner, a: Sequence[Estimate], b: Sequence[Estimate]) -> list[Estimate]:
    expressions = _Expressions(None, {}, dict(zip((*c.lhs, *c.rhs), (*a, *b), strict=True)))
    return [expressions.of(e) for e in c.result]


def constants(values: Sequence[ir.Expr]) -> list[Estimate]:
    expressions = _Expressions(None, {})
    return [expressions.of(e) for e in values]


def _agreed(one: Estimate, other: Estimate) -> Estimate:
    """Result of two orders; unbounded where they differ, as schedules may, too."""
    a, b = one.value, other.value
    if a.dtype.kind != "f":
        return Estimate(a, _more(_more(one.error, other.error), np.where(a == b, 0.0, np.inf)))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    error = 4.0 * np.maximum(_error(one), _error(other))
    apart = np.nan_to_num(np.abs(np.where(same, 0.0, a - b)), nan=np.inf, posinf=np.inf)
    return Estimate(a, np.where(apart <= error, error, np.inf))
