"""16-bit floats: an operator computes in float32 and rounds its result once.

The reason is in docs/adr/035-an-operator-rounds-once.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loopwright import dtypes, te
from loopwright.ir.expr import Binary, Call, Cast, Const, Expr, Read, cast
from loopwright.ir.node import Node
from loopwright.ir.reduction import Reduce
from loopwright.ir.visitor import map_nodes, nodes
from loopwright.ops import compute

#: The dtype that floats of 16 bits are computed in.
WIDE = "float32"
#: Functions and sources of casts whose results are of the format already.
_EXACT = ("abs", "floor", "ceil", "trunc", "round", "reinterpret")
_SHORT = ("bool", "int8", "uint8")


def computed(
    compute: Callable[..., te.Tensor | Sequence[te.Tensor]],
    inputs: Sequence[te.Tensor],
    attrs: Mapping[str, Any],
) -> list[te.Tensor]:
    """The tensors of an operator; 16-bit ones are computed in float32 and rounded once."""
    direct = _listed(compute(*inputs, **attrs))
    if not any(t.dtype in dtypes.HALVES for t in inputs) or _roundings(direct, inputs) < 2:
        return direct
    wide, narrow = list(inputs), {}
    for n, t in enumerate(inputs):
        if t.dtype in dtypes.HALVES:  # a placeholder, until what reads it casts the narrow tensor
            constant = getattr(t.op, "constant", False)
            wide[n] = te.placeholder(t.shape, WIDE, name=t.name, constant=constant)
            narrow[wide[n]] = t
    exact = _listed(compute(*wide, **attrs))

    def narrowed(r: Read) -> Expr:
        return cast(narrow[r.source](*r.indices), WIDE) if r.source in narrow else r

    for op in _operations(exact, wide):
        op.body = map_nodes(op.body, Read, narrowed)
    return [as_dtype(t, as_is.dtype) for t, as_is in zip(exact, direct, strict=True)]


def as_dtype(t: te.Tensor, dtype: str) -> te.Tensor:
    """A tensor as another dtype; itself where it has it."""
    if t.dtype == dtype:
        return t
    return compute(t.shape, lambda *i: t(*i).astype(dtype), name=f"as_{dtype}")


def _listed(outputs: te.Tensor | Sequence[te.Tensor]) -> list[te.Tensor]:
    return [outputs] if isinstance(outputs, te.Tensor) else list(outputs)


def _roundings(tensors: Sequence[te.Tensor], inputs: Sequence[te.Tensor]) -> int:
    """Count roundings to 16 bits on the way from inputs; a sum counts as two."""
    return sum(_rounds(n) for op in _operations(tensors, inputs) for n in nodes(op.body))


def _operations(tensors: Sequence[te.Tensor], inputs: Sequence[te.Tensor]) -> list[te.ComputeOp]:
    seen, waiting, ops = (
        {t.op for t in inputs},
        [t.op for t in tensors],
        list[te.ComputeOp](),
    )
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        waiting.extend(t.op for t in op.input_tensors)
        if isinstance(op, te.ComputeOp):
            ops.append(op)
    return ops


def _rounds(n: Node) -> int:
    """Count a node's roundings to 16 bits; a constant that it reads was rounded, too."""
    if not isinstance(n, Expr) or n.dtype not in dtypes.HALVES:
        return 0
    match n:
        case Reduce(combiner=combiner):
            return 2 * any(_rounds(e) for e in combiner.result)
        case Binary(op="+" | "-" | "*" | "/", a=a, b=b):
            return 1 + isinstance(a, Const) + isinstance(b, Const)
        case Call(fn=fn, args=args) if fn not in _EXACT:
            return 1 + sum(isinstance(a, Const) for a in args)
        case Cast(value=v):
            return int(v.dtype not in _SHORT)
    return 0
