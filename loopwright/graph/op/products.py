"""Einsum, resampling by known taps, and sparse dense layers."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any

from loopwright import te
from loopwright.errors import GraphError
from loopwright.graph.ir.types import Size
from loopwright.graph.op.shapes import (
    accumulator,
    axis_of,
    broadcast,
    require_same,
    same,
)
from loopwright.graph.registry import Pattern, register_op
from loopwright.graph.rounding import as_dtype


def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The letters of each operand and of the result; an ellipsis becomes letters of its own."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise GraphError(f"equation {equation!r} is of {len(parts)} tensors, got {len(ranks)}")
    dots = [n - len(p.replace("...", "")) for p, n in zip(parts, ranks, strict=True) if "..." in p]
    wide = [f"_{n}" for n in range(max(dots, default=0))]
    terms = [_letters(p, n, wide, equation) for p, n in zip(parts, ranks, strict=True)]
    if arrow:
        return terms, _letters(right, None, wide, equation)
    once = [c for c in sorted(set(left)) if c in string.ascii_letters and left.count(c) == 1]
    return terms, [*wide, *once]


def _letters(term: str, rank: int | None, wide: Sequence[str], equation: str) -> list[str]:
    before, dots, after = term.partition("...")
    if any(c not in string.ascii_letters for c in before + after):
        raise GraphError(f"equation {equation!r} holds something else than letters")
    count = len(wide) if rank is None else rank - len(before) - len(after)
    if count < 0 or (count and not dots):
        raise GraphError(f"{term!r} of equation {equation!r} does not fit {rank} dimensions")
    return [*before, *(wide[len(wide) - count :] if dots else ()), *after]


def _extents(terms: Sequence[Sequence[str]], operands: Sequence[te.Tensor]) -> dict[str, Size]:
    found: dict[str, Size] = {}
    for letters, t in zip(terms, operands, strict=True):
        for c, n in zip(letters, t.shape, strict=True):
            (found[c],) = broadcast((found.get(c, n),), (n,))
    return found


@register_op("einsum", Pattern.OUT_ELEMENTWISE_FUSABLE)
def einsum(data: te.Tensor, *others: te.Tensor, equation: str) -> te.Tensor:
    """The sum of products that Einstein's notation names, such as ``"bij,bjk->bik"``."""
    operands = (data, *others)
    terms, result = _terms(equation, [len(t.shape) for t in operands])
    extents = _extents(terms, operands)
    for c in result:
        if c not in extents:
            raise GraphError(f"equation {equation!r} has {c!r} in its result alone")
    wide = accumulator(data.dtype)
    loops = {c: te.reduce_axis((0, n), name=f"k{c}") for c, n in extents.items() if c not in result}

    def value(*i: Any) -> Any:
        at: dict[str, Any] = {**dict(zip(result, i, strict=True)), **loops}

        def read(letters: Sequence[str], t: te.Tensor) -> Any:
            places = zip(letters, t.shape, strict=True)
            return t(*(0 if same(n, 1) else at[c] for c, n in places)).astype(wide)

        product = reduce(mul, (read(s, t) for s, t in zip(terms, operands, strict=True)))
        return te.sum(product, axis=list(loops.values())) if loops else product

    shape = tuple(extents[c] for c in result)
    tensor: te.Tensor = te.compute(shape, value, name="einsum")
    return as_dtype(tensor, data.dtype)


@register_op("nn.resample", Pattern.OUT_ELEMENTWISE_FUSABLE)
def resample(data: te.Tensor, indices: te.Tensor, weights: te.Tensor, *, axis: int) -> te.Tensor:
    """Each element of an axis as a sum of some of the data's times weights.

    ``indices`` and ``weights`` are of shape (elements of the result, taps); interpolation is such a
    map, of one or more taps an element.
    """
    at = axis_of(axis, len(data.shape))
    if len(indices.shape) != 2:
        raise GraphError(f"indices have {len(indices.shape)} dimensions; give 2")
    require_same(indices.shape[0], weights.shape[0], "how many elements there are")
    require_same(indices.shape[1], weights.shape[1], "how many taps there are")
    k = te.reduce_axis((0, indices.shape[1]), name="tap")
    extent = data.shape[at]

    def value(*i: Any) -> Any:
        n = te.max(te.min(indices[i[at], k], extent - 1), 0)
        return te.sum(data(*i[:at], n, *i[at + 1 :]) * weights[i[at], k], axis=k)

    shape = (*data.shape[:at], indices.shape[0], *data.shape[at + 1 :])
    tensor: te.Tensor = te.compute(shape, value, name="resample")
    return tensor


@register_op("nn.sparse_dense", Pattern.OUT_ELEMENTWISE_FUSABLE)
def sparse_dense(
    data: te.Tensor, values: te.Tensor, columns: te.Tensor, *, least: int = 0, width: int = 0
) -> te.Tensor:
    """A dense layer of few weights: those of each output, and the columns of data that they are of.

    ``values`` and ``columns`` are of shape (outputs, weights of an output at most); a value of 0
    stands for none, whatever its column holds. The data have ``least`` columns at least, and
    ``width`` where that is not 0. `loopwright.graph.sparse_dense` makes all of it.
    """
    if len(values.shape) != 2 or len(columns.shape) != 2 or not data.shape:
        raise GraphError("the weights are of 2 dimensions, and the data of 1 at least")
    for a, b in zip(values.shape, columns.shape, strict=True):
        require_same(a, b, "the shapes of values and columns")
    if data.dtype != values.dtype:
        raise GraphError(f"the data are {data.dtype}, the weights {values.dtype}")
    if width:
        require_same(data.shape[-1], width, "the columns of the data and of the weights")
    if isinstance(data.shape[-1], int) and data.shape[-1] < least:
        raise GraphError(f"the weights read column {least - 1}, the data have {data.shape[-1]}")
    k = te.reduce_axis((0, values.shape[1]), name="k")
    extent = data.shape[-1]

    def value(*i: Any) -> Any:
        n = te.max(te.min(columns[i[-1], k], extent - 1), 0)
        product = data(*i[:-1], n) * values[i[-1], k]
        return te.sum(
            te.select(te.not_equal(values[i[-1], k], 0), product, te.const(0, data.dtype)), axis=k
        )

    tensor: te.Tensor = te.compute((*data.shape[:-1], values.shape[0]), value, name="sparse_dense")
    return tensor
