"""Operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import Any

from loopwright import te
from loopwright.errors import GraphError, shown
from loopwright.graph.ir.expr import Size
from loopwright.graph.op import shapes
from loopwright.graph.registry import Pattern, register_op
from loopwright.ops import compute, padded

#: Ends of slices from here on mean the end of any axis, as ONNX has it.
_WHOLE = 2**31 - 1


def _moved(data: te.Tensor, shape: Sequence[Size], name: str) -> te.Tensor:
    """The elements in their order in memory, in another shape.

    Behind equal leading extents only the first extent may be symbolic.
    """
    kept = 0
    if not shapes.is_static((*data.shape, *shape)):
        pairs = zip(data.shape, shape, strict=False)
        kept = sum(1 for _ in takewhile(lambda pair: shapes.same(*pair), pairs))
    old, new = data.shape[kept:], shape[kept:]
    if not shapes.is_static((*old[1:], *new[1:])):
        raise GraphError(
            f"{name}: ({', '.join(map(str, data.shape))}) to ({', '.join(map(str, shape))}) moves "
            "elements by an extent that is not known"
        )

    def value(*i: Any) -> Any:
        flat: Any = 0
        for x, n in zip(i[kept:], new, strict=True):
            flat = flat * n + x
        index = list(i[:kept])
        for d, n in enumerate(old):
            inner = math.prod(n for n in old[d + 1 :] if isinstance(n, int))
            at = flat if inner == 1 else te.indexdiv(flat, inner)
            index.append(at if d == 0 else te.indexmod(at, n))
        return data(*index)

    return compute(tuple(shape), value, name=name)


@register_op("reshape", Pattern.INJECTIVE)
def reshape(data: te.Tensor, *, newshape: Sequence[int]) -> te.Tensor:
    """The elements in another shape: -1 is what is left, 0 the extent of the input there."""
    old = data.shape
    if any(n == 0 and d >= len(old) for d, n in enumerate(newshape)):
        text = ", ".join(map(str, old))
        raise GraphError(f"newshape {tuple(newshape)} copies an extent that ({text}) does not have")
    if newshape.count(-1) > 1 or any(n < -1 for n in newshape):
        raise GraphError(f"newshape {tuple(newshape)} is no shape: at most one extent is -1")
    shape: list[Size] = [old[d] if n == 0 else n for d, n in enumerate(newshape)]
    if -1 in newshape:
        at = newshape.index(-1)
        rest = shapes.quotient(old, [n for d, n in enumerate(shape) if d != at])
        shape[at] = -1 if rest is None else rest
    if (-1 in newshape and shape[newshape.index(-1)] == -1) or shapes.quotient(old, shape) != 1:
        text = ", ".join(map(str, old))
        count = math.prod(old) if shapes.is_static(old) else "the"
        raise GraphError(f"{count} elements of shape ({text}) do not fill {tuple(newshape)}")
    return _moved(data, shape, "reshape")


@register_op("nn.batch_flatten", Pattern.INJECTIVE)
def batch_flatten(data: te.Tensor) -> te.Tensor:
    """(N, ...) to (N, the product of the others)."""
    if not data.shape:
        raise GraphError("the input has 0 dimensions; give at least one")
    first, *others = data.shape
    rest = shapes.quotient(others, ())
    assert rest is not None, "a product divided by nothing is itself"
    return _moved(data, (first, rest), "flatten")


@register_op("transpose", Pattern.INJECTIVE)
def transpose(data: te.Tensor, *, axes: Sequence[int] | None = None) -> te.Tensor:
    """The dimensions in another order; by default from last to first."""
    rank = len(data.shape)
    order = list(range(rank))[::-1] if axes is None else [shapes.axis_of(a, rank) for a in axes]
    if sorted(order) != list(range(rank)):
        raise GraphError(f"axes {axes} are no order of {rank} dimensions")

    def value(*i: Any) -> Any:
        at = dict(zip(order, i, strict=True))
        return data(*(at[d] for d in range(rank)))

    return compute(tuple(data.shape[a] for a in order), value, name="transpose")


@register_op("squeeze", Pattern.INJECTIVE)
def squeeze(data: te.Tensor, *, axis: int | Sequence[int] | None = None) -> te.Tensor:
    """The tensor without some dimensions of extent 1; by default without all."""
    rank = len(data.shape)
    ones = tuple(d for d, n in enumerate(data.shape) if n == 1)
    gone = ones if axis is None else shapes.axes_of(axis, rank)
    for a in gone:
        shapes.require_same(data.shape[a], 1, f"axis {a} cannot go: its extent and 1")
    kept = [d for d in range(rank) if d not in gone]

    def value(*i: Any) -> Any:
        at = dict(zip(kept, i, strict=True))
        return data(*(at.get(d, 0) for d in range(rank)))

    return compute(tuple(data.shape[d] for d in kept), value, name="squeeze")


@register_op("expand_dims", Pattern.INJECTIVE)
def expand_dims(data: te.Tensor, *, axis: int | Sequence[int]) -> te.Tensor:
    """The tensor with further dimensions of extent 1, which stand at some axes of the result."""
    named = (axis,) if isinstance(axis, int) else tuple(axis)
    rank = len(data.shape) + len(named)
    new = shapes.axes_of(named, rank)
    old = [d for d in range(rank) if d not in new]
    extents = dict(zip(old, data.shape, strict=True))
    shape = tuple(extents.get(d, 1) for d in range(rank))
    return compute(shape, lambda *i: data(*(i[d] for d in old)), name="expand")


@register_op("broadcast_to", Pattern.BROADCAST)
def broadcast_to(data: te.Tensor, *, shape: Sequence[int]) -> te.Tensor:
    """The tensor repeated along dimensions of extent 1, or that it does not have."""
    extents = shapes.broadcast(data.shape, tuple(shape))
    return compute(extents, lambda *i: shapes.element(data, i), name="broadcast")


@register_op("concatenate", Pattern.INJECTIVE)
def concatenate(data: te.Tensor, *others: te.Tensor, axis: int = 0) -> te.Tensor:
    """Tensors one behind the other along an axis."""
    parts, at = [data, *others], shapes.axis_of(axis, len(data.shape))
    for t in others:
        if t.dtype != data.dtype or len(t.shape) != len(data.shape):
            raise GraphError(f"tensors of a concatenation differ: {data!r} and {t!r}")
        for d, (n, m) in enumerate(zip(data.shape, t.shape, strict=True)):
            if d != at:
                shapes.require_same(n, m, f"extents of axis {d} of tensors that are concatenated")
    ends: list[Size] = list(accumulate(t.shape[at] for t in parts))

    def value(*i: Any) -> Any:
        def read(t: te.Tensor, begin: Size) -> Any:
            return t(*i[:at], i[at] - begin, *i[at + 1 :])

        x = read(parts[-1], ends[-2] if len(ends) > 1 else 0)
        for n in reversed(range(len(parts) - 1)):
            x = te.if_then_else(i[at] < ends[n], read(parts[n], ends[n - 1] if n else 0), x)
        return x

    return compute((*data.shape[:at], ends[-1], *data.shape[at + 1 :]), value, name="concatenate")


@register_op("strided_slice", Pattern.INJECTIVE)
def strided_slice(
    data: te.Tensor,
    *,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
) -> te.Tensor:
    """Every so many elements between two bounds of some axes, as Python's slices have it."""
    old = data.shape
    named = range(len(begin)) if axes is None else [shapes.axis_of(a, len(old)) for a in axes]
    steps = (1,) * len(begin) if strides is None else tuple(strides)
    if not len(named) == len(begin) == len(end) == len(steps):
        counts = len(begin), len(end), len(steps), len(named)
        raise GraphError("a slice has {} begins, {} ends, {} strides, {} axes".format(*counts))
    slices = {a: slice(*bounds) for a, *bounds in zip(named, begin, end, steps, strict=True)}
    if 0 in steps:
        raise GraphError("a slice has a stride of 0")
    runs = [_taken(n, slices.get(d, slice(None))) for d, n in enumerate(old)]
    if any(r is not None and len(r) == 0 for r in runs):
        extents = ", ".join(map(str, old))
        raise GraphError(f"a slice of shape ({extents}) is empty: begin {begin}, end {end}")

    def value(*i: Any) -> Any:
        pairs = zip(i, runs, strict=True)
        return data(*(x if r is None else x * r.step + r.start for x, r in pairs))

    shape = tuple(n if r is None else len(r) for n, r in zip(old, runs, strict=True))
    return compute(shape, value, name="slice")


def _taken(extent: Size, part: slice) -> range | None:
    """The indices of an axis that a slice takes; None for all of an axis of unknown extent."""
    if isinstance(extent, int):
        return range(extent)[part]
    whole = part.start in (None, 0) and part.step in (None, 1)
    if whole and (part.stop is None or part.stop >= _WHOLE):
        return None
    raise GraphError(f"a slice of an axis whose extent {extent} is not known: {part}")


@register_op("nn.pad", Pattern.INJECTIVE)
def pad(
    data: te.Tensor, *, pad_width: Sequence[Sequence[int]], pad_value: float = 0.0
) -> te.Tensor:
    """The tensor with elements of one value before and after each dimension."""
    if len(pad_width) != len(data.shape) or any(len(pair) != 2 for pair in pad_width):
        raise GraphError(f"pad_width is {shown(pad_width)}; give {len(data.shape)} pairs")
    pairs = [(int(low), int(high)) for low, high in pad_width]
    if all(p == (0, 0) for p in pairs):
        return compute(data.shape, lambda *i: data(*i), name="pad")
    return padded(data, pairs, 0, pad_value)


@register_op("triangle", Pattern.INJECTIVE)
def triangle(data: te.Tensor, *, k: int = 0, upper: bool = True) -> te.Tensor:
    """The part of matrices above (below) their k-th diagonal, it included; 0 elsewhere."""
    if len(data.shape) < 2:
        raise GraphError("a triangle is of tensors of two dimensions at least")
    zero = te.const(0, data.dtype)

    def value(*i: Any) -> Any:
        return te.if_then_else(i[-1] >= i[-2] + k if upper else i[-1] <= i[-2] + k, data(*i), zero)

    return compute(data.shape, value, name="triangle")
