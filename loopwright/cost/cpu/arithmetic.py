"""Arithmetic of an expression by kind, counted once for each element."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from loopwright import dtypes
from loopwright.cost.symbolic.index_steps import number_of
from loopwright.cost.symbolic.loop_nest import StageNest, nests_of
from loopwright.ir.expr import Binary, Call, Cast, IfThenElse, Read, Select, Unary
from loopwright.ir.node import Node
from loopwright.ir.reduction import outputs_of
from loopwright.schedule import State
from loopwright.te import OpNode


@dataclass(slots=True)
class OperationCounts:
    """Operations of one element; ``extreme`` counts minima and maxima of two floats."""

    add: int = 0
    mul: int = 0
    div: int = 0
    call: int = 0
    extreme: int = 0
    other: int = 0

    @property
    def flop(self) -> int:
        """Sum of all operations; a function call counts as about 16."""
        return self.add + self.mul + self.div + 16 * self.call + self.extreme + self.other


def work_of(op: OpNode) -> OperationCounts:
    """Operations of one iteration of an operation's statement; indices are not counted."""
    out = combining(op)
    for e in outputs_of(op.body) if op.body is not None else ():
        _count(e, out)
    return out


def combining(op: OpNode) -> OperationCounts:
    """Operations that combine one element into a reduction."""
    out = OperationCounts()
    for e in op.reduction.combiner.result if op.reduction is not None else ():
        _count(e, out)
    return out


def _count(e: Node, out: OperationCounts) -> None:
    match e:
        case Read():
            return
        case Binary(op=op, dtype=dtype):
            if op in ("+", "-"):
                out.add += 1
            elif op == "*":
                out.mul += 1
            elif op in ("/", "//", "%", "tdiv", "tmod"):
                out.div += 1
            elif op in ("min", "max") and dtypes.is_float(dtype):
                out.extreme += 1
            else:
                out.other += 1
        case Call():
            out.call += 1
        case IfThenElse(a=a, b=b):
            # Its condition is no arithmetic on elements; `StageNest.conditions` knows of it.
            _count(a, out)
            _count(b, out)
            return
        case Unary() | Select():
            out.other += 1
        case Cast(value=Read(dtype="float16" | "bfloat16")):
            return  # converted when it is loaded, see `loopwright.cost.cpu.core`
        case Cast(value=v, dtype=dtype):
            out.other += dtypes.is_float(dtype) or dtypes.is_float(v.dtype)
    for c in e.children():
        _count(c, out)


def by_arithmetic(state: State) -> list[StageNest]:
    """Computed stages, the one with the most arithmetic first.

    Recomputed work counts once, so all schedules of a program have one order.
    """

    def arithmetic(nest: StageNest) -> int:
        """Operations of the whole tensor, at least 1 an element; unknown extents count as 1."""
        extents = [*nest.op.shape, *(number_of(a.extent) for a in nest.op.reduce_axes)]
        return prod(n for n in extents if isinstance(n, int)) * (1 + work_of(nest.op).flop)

    return sorted(reversed(nests_of(state)), key=lambda nest: -arithmetic(nest))
