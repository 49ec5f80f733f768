"""OrderContractions: sums of products of three tensors and more become several, of two each."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod

import numpy as np

from loopwright.graph.infer import Types
from loopwright.graph.ir.expr import Call, Expr, Function, Size
from loopwright.graph.ir.visitor import called, rewrite_function
from loopwright.graph.op.products import letters_of
from loopwright.graph.op.shapes import accumulator
from loopwright.graph.passes import typed_pass
from loopwright.graph.registry import get_op
from loopwright.ir.sizes import evaluate, size_vars

_MOST_COMPARED = 8  #: operands of which all orders are compared, in a tenth of a second
_NOMINAL = 64  #: stands for a size that is known when the model runs


@typed_pass(opt_level=2)
def OrderContractions(f: Function, types: Types) -> Function:
    """Write an ``einsum`` of three and more tensors as several of two, where that needs less work.

    ``einsum(a, b, c, "ij,jk,kl->il")`` becomes two products of matrices, rounded in another order.
    The order is that of ``numpy.einsum_path``: the one of least arithmetic for up to eight tensors,
    a greedy one for more.
    """

    def change(old: Expr, new: Expr) -> Expr:
        if called(new) != "einsum" or not isinstance(new, Call) or len(new.args) < 3:
            return new
        assert isinstance(old, Call)
        return _ordered(old, new, types)

    return rewrite_function(f, change)


def _ordered(old: Call, new: Call, types: Types) -> Expr:
    shapes = [tuple(map(_number, types.tensor(e).shape)) for e in old.args]
    equation = get_op("einsum").complete(new.attrs)["equation"]
    terms, result = letters_of(equation, [len(s) for s in shapes])
    named = dict(zip(dict.fromkeys(chain(*terms)), string.ascii_letters, strict=False))
    if len(named) < len(set(chain(*terms))):
        return new
    parts = ["".join(named[c] for c in term) for term in terms]
    wanted = "".join(named[c] for c in result)
    extents = _extents(parts, shapes)
    steps = _steps(parts, wanted, shapes)
    if sum(_work(s.inputs, s.output, extents) for s in steps) >= _work(parts, wanted, extents):
        return new
    # Sums of 16-bit floats are rounded once, as that of the whole is.
    dtype = types.tensor(old).dtype
    left = [
        _as(e, types.tensor(o).dtype, accumulator(dtype))
        for o, e in zip(old.args, new.args, strict=True)
    ]
    for step in steps:
        operands = [left.pop(n) for n in reversed(step.places)][::-1]
        equation = f"{','.join(step.inputs)}->{step.output}"
        left.append(get_op("einsum")(*operands, equation=equation, span=new.span))
    return _as(left[0], accumulator(dtype), dtype)


def _as(e: Expr, dtype: str, wanted: str) -> Expr:
    return e if dtype == wanted else get_op("cast")(e, dtype=wanted, span=e.span)


def _number(n: Size) -> int:
    return evaluate(n, dict.fromkeys(size_vars([n]), _NOMINAL))


def _extents(parts: Sequence[str], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    extents: dict[str, int] = {}
    for part, shape in zip(parts, shapes, strict=True):
        for c, n in zip(part, shape, strict=True):
            extents[c] = max(extents.get(c, 1), n)  # an extent of 1 is stretched
    return extents


@dataclass(frozen=True)
class _Step:
    """A contraction of operands, ascending places of a list, whose result is put at its end."""

    places: Sequence[int]
    inputs: Sequence[str]  # letters of the operands
    output: str


def _steps(parts: Sequence[str], result: str, shapes: Sequence[Sequence[int]]) -> list[_Step]:
    optimize = "optimal" if len(parts) <= _MOST_COMPARED else "greedy"
    shells = [np.broadcast_to(np.float32(0), s) for s in shapes]  # arrays of one element
    _, *path = np.einsum_path(f"{','.join(parts)}->{result}", *shells, optimize=optimize)[0]
    left, steps = list(parts), []
    for places in path:
        inputs = [left.pop(n) for n in sorted(places, reverse=True)][::-1]
        needed = set(result).union(*left)
        kept = "".join(c for c in dict.fromkeys(chain(*inputs)) if c in needed)
        steps.append(_Step(sorted(places), inputs, kept if left else result))
        left.append(steps[-1].output)
    return steps


def _work(inputs: Sequence[str], output: str, extents: Mapping[str, int]) -> int:
    """Products and sums of one contraction."""
    letters = set(chain(*inputs))
    each = len(inputs) - 1 + (letters > set(output))
    return each * prod(extents[c] for c in letters)
