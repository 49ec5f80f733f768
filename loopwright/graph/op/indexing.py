"""Operators that read and write at indices held in other tensors.

A result is computed element by element: where several updates meet one element, it looks at all of
them. That costs a pass over the updates for each element, and needs no order between threads.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from loopwright import dtypes, te
from loopwright.errors import GraphError
from loopwright.graph.ir.expr import Size
from loopwright.graph.op.shapes import axis_of, require_same
from loopwright.graph.registry import Pattern, register_op
from loopwright.ops import compute


def held(index: Any, extent: Size) -> Any:
    """An index that counts from the end where it is negative, clipped to its dimension."""
    index = te.if_then_else(index < 0, index + extent, index)
    return te.max(te.min(index, extent - 1), 0)


@register_op("take", Pattern.INJECTIVE)
def take(data: te.Tensor, indices: te.Tensor, *, axis: int = 0) -> te.Tensor:
    """Elements of an axis by their numbers; negative ones count from the end."""
    at = axis_of(axis, len(data.shape))
    inner = len(indices.shape)

    def value(*i: Any) -> Any:
        return data(*i[:at], held(indices(*i[at : at + inner]), data.shape[at]), *i[at + inner :])

    return compute((*data.shape[:at], *indices.shape, *data.shape[at + 1 :]), value, name="take")


@register_op("gather_elements", Pattern.INJECTIVE)
def gather_elements(data: te.Tensor, indices: te.Tensor, *, axis: int = 0) -> te.Tensor:
    """For each place of the indices the element of the data there, with that index on an axis."""
    if len(data.shape) != len(indices.shape):
        raise GraphError(f"indices have {len(indices.shape)} dimensions; give {len(data.shape)}")
    at = axis_of(axis, len(data.shape))

    def value(*i: Any) -> Any:
        return data(*i[:at], held(indices(*i), data.shape[at]), *i[at + 1 :])

    return compute(indices.shape, value, name="gather")


@register_op("gather_nd", Pattern.INJECTIVE)
def gather_nd(data: te.Tensor, indices: te.Tensor, *, batch_dims: int = 0) -> te.Tensor:
    """Parts of the data whose first indices are the rows of ``indices``, after some batches."""
    outer = len(indices.shape) - 1
    count = indices.shape[-1] if indices.shape else 0
    if not isinstance(count, int) or not 1 <= count + batch_dims <= len(data.shape):
        raise GraphError(f"rows of {count} indices do not fit {len(data.shape)} dimensions")

    def value(*i: Any) -> Any:
        extents = data.shape[batch_dims : batch_dims + count]
        at = [held(indices(*i[:outer], q), n) for q, n in enumerate(extents)]
        return data(*i[:batch_dims], *at, *i[outer:])

    return compute((*indices.shape[:-1], *data.shape[batch_dims + count :]), value, name="gather")


#: Reductions of updates with old elements: the reducer, its value without updates, and how it
#: combines two numbers.
_MEETINGS: dict[str, tuple[Any, Any, Any]] = {
    "add": (te.sum, lambda dtype: te.const(0, dtype), operator.add),
    "mul": (te.prod, lambda dtype: te.const(1, dtype), operator.mul),
    "max": (te.max, te.min_value, te.max),
    "min": (te.min, te.max_value, te.min),
}


def _check_reduction(reduction: str, data: te.Tensor, updates: te.Tensor) -> None:
    if reduction != "none" and reduction not in _MEETINGS:
        raise GraphError(f"reduction is {reduction!r}; there are none, {', '.join(_MEETINGS)}")
    if data.dtype != updates.dtype:
        raise GraphError(f"data are {data.dtype}, updates {updates.dtype}; cast one of them")


def _met(data: te.Tensor, count: int, matches: Any, update: Any, reduction: str) -> te.Tensor:
    """Data with updates, of which up to ``count`` may meet one element.

    ``matches`` and ``update`` take an element's index and the number of an update; with the
    reduction ``none`` the last one counts.
    """
    k = te.reduce_axis((0, count), name="k")
    if reduction == "none":
        none = te.const(-1, "int32")
        latest = te.compute(
            data.shape,
            lambda *i: te.max(te.if_then_else(matches(i, k), k.var, none), axis=k),
            name="latest",
        )

        def chosen(*i: Any) -> Any:
            return te.if_then_else(latest(*i) >= 0, update(i, te.max(latest(*i), 0)), data(*i))

        return compute(data.shape, chosen, name="scattered")
    reduce, empty, combine = _MEETINGS[reduction]
    nothing = empty(data.dtype)
    met = te.compute(
        data.shape,
        lambda *i: reduce(te.if_then_else(matches(i, k), update(i, k.var), nothing), axis=k),
        name="updates",
    )
    return compute(data.shape, lambda *i: combine(data(*i), met(*i)), name="scattered")


@register_op("scatter_elements", Pattern.OPAQUE)
def scatter_elements(
    data: te.Tensor,
    indices: te.Tensor,
    updates: te.Tensor,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> te.Tensor:
    """Data with updates, each at its own place but for the index on one axis, which is given."""
    _check_reduction(reduction, data, updates)
    at = axis_of(axis, len(data.shape))
    places = indices.static_shape
    if len(places) != len(data.shape) or tuple(updates.shape) != places:
        raise GraphError("indices and updates have one shape, with as many dimensions as the data")

    def own(i: Sequence[Any], k: Any) -> list[Any]:
        clamped = [te.min(x, n - 1) for x, n in zip(i, places, strict=True)]
        return [*clamped[:at], k, *clamped[at + 1 :]]

    def matches(i: Sequence[Any], k: Any) -> Any:
        others = [i[d] < n for d, n in enumerate(places) if d != at and n != data.shape[d]]
        return te.all(*others, te.equal(held(indices(*own(i, k)), data.shape[at]), i[at]))

    return _met(data, places[at], matches, lambda i, k: updates(*own(i, k)), reduction)


@register_op("scatter_nd", Pattern.OPAQUE)
def scatter_nd(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, reduction: str = "none"
) -> te.Tensor:
    """Data with updates, whose first indices are the rows of ``indices``."""
    _check_reduction(reduction, data, updates)
    *outer, depth = indices.static_shape
    if depth > len(data.shape) or tuple(updates.shape) != (*outer, *data.shape[depth:]):
        raise GraphError(
            f"updates are of shape {list(updates.shape)}; give {[*outer, *data.shape[depth:]]}"
        )

    def place(k: Any) -> list[Any]:
        index = []
        for d, n in enumerate(outer):
            inner = math.prod(outer[d + 1 :])
            x = k if inner == 1 else te.indexdiv(k, inner)
            index.append(x if d == 0 else te.indexmod(x, n))
        return index

    def matches(i: Sequence[Any], k: Any) -> Any:
        tests = [te.equal(held(indices(*place(k), q), data.shape[q]), i[q]) for q in range(depth)]
        return te.all(*tests)

    def update(i: Sequence[Any], k: Any) -> Any:
        return updates(*place(k), *i[depth:])

    return _met(data, math.prod(outer), matches, update, reduction)


@register_op("one_hot", Pattern.INJECTIVE)
def one_hot(indices: te.Tensor, values: te.Tensor, *, depth: int, axis: int = -1) -> te.Tensor:
    """``values[1]`` where an index of the new axis is the one given, else ``values[0]``."""
    require_same(values.shape[0] if values.shape else 0, 2, "how many values there are, and 2")
    at = axis_of(axis, len(indices.shape) + 1)

    def value(*i: Any) -> Any:
        n = indices(*i[:at], *i[at + 1 :])
        n = te.if_then_else(n < 0, n + depth, n)
        return te.if_then_else(te.equal(n, i[at]), values[1], values[0])

    return compute((*indices.shape[:at], depth, *indices.shape[at:]), value, name="one_hot")


@register_op("reverse_sequence", Pattern.INJECTIVE)
def reverse_sequence(
    data: te.Tensor, lengths: te.Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> te.Tensor:
    """The first elements along the axis of time, so many for each batch, from last to first."""
    batch, time = axis_of(batch_axis, len(data.shape)), axis_of(time_axis, len(data.shape))

    def value(*i: Any) -> Any:
        length = lengths[i[batch]]
        t = te.if_then_else(i[time] < length, length - 1 - i[time], i[time])
        return data(*i[:time], held(t, data.shape[time]), *i[time + 1 :])

    return compute(data.shape, value, name="reversed")


@register_op("topk", Pattern.OPAQUE)
def topk(
    data: te.Tensor, *, k: int, axis: int = -1, largest: bool = True
) -> tuple[te.Tensor, te.Tensor]:
    """The k largest (smallest) elements of an axis, sorted, and where they are.

    Each element is compared with each other along the axis: its rank is how many stand before it.
    Of equal ones the first stands first; NaN counts as larger than every number.
    """
    at = axis_of(axis, len(data.shape))
    extent = data.shape[at]
    if isinstance(extent, int) and not 1 <= k <= extent:
        raise GraphError(f"the {k} first of {extent} elements are asked for")
    other = te.reduce_axis((0, extent), name="other")
    one = te.const(1, "int32")

    def rank(*i: Any) -> Any:
        x, y = data(*i), data(*i[:at], other, *i[at + 1 :])
        more, less = (y, x) if largest else (x, y)
        before, same = more > less, te.equal(x, y)
        if dtypes.is_float(data.dtype):
            before = te.any(before, te.all(te.isnan(more), te.logical_not(te.isnan(less))))
            same = te.any(same, te.all(te.isnan(x), te.isnan(y)))
        before = te.any(before, te.all(same, other < i[at]))
        return te.sum(te.if_then_else(before, one, te.const(0, "int32")), axis=other)

    ranks = te.compute(data.shape, rank, name="rank")
    n = te.reduce_axis((0, extent), name="n")
    shape = (*data.shape[:at], k, *data.shape[at + 1 :])

    def place(*i: Any) -> Any:
        hit = te.equal(ranks(*i[:at], n, *i[at + 1 :]), i[at])
        return te.max(te.if_then_else(hit, n.var, te.const(0, "int32")), axis=n)

    places = te.compute(shape, place, name="place")
    values: te.Tensor = te.compute(
        shape, lambda *i: data(*i[:at], held(places(*i), extent), *i[at + 1 :]), name="values"
    )
    numbers: te.Tensor = te.compute(shape, lambda *i: places(*i).astype("int64"), name="indices")
    return values, numbers
