"""Expressions of kernels: from a function of one kernel to what is scheduled and built."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from loopwright import te
from loopwright.errors import GraphError, InternalError
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, OpRef, Tuple, Var
from loopwright.graph.ir.types import TensorType
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.registry import get_op
from loopwright.graph.strategy import DEFINITION, Implementation, applicable, implementations
from loopwright.target import Target


@dataclass(frozen=True)
class Expression:
    inputs: tuple[te.Tensor, ...]  # a placeholder for each parameter of the function, in order
    outputs: tuple[te.Tensor, ...]

    @property
    def args(self) -> list[te.Tensor]:
        """Inputs and results in calling order."""
        return [*self.inputs, *self.outputs]


def expression_of(
    function: Function,
    constants: Collection[int] = (),
    implementation: Implementation | None = None,
) -> Expression:
    """The expression of a function of one kernel, with one output for each part of its result.

    ``constants`` are indices of constant parameters: what depends on them alone is computed once,
    when they are known. Without an implementation, the anchor is computed by its operator's
    definition.
    """
    known = _computed(function, constants, implementation)
    inputs = tuple(known[p][0] for p in function.params)
    return Expression(inputs, tuple(known[function.body]))


def anchor_of(function: Function) -> Call | None:
    """The call of a function that fuses least; the others are its producers and consumers.

    None where the function calls nothing.
    """
    calls = [e for e in post_order(function.body) if isinstance(e, Call) and called(e) is not None]
    return max(calls, key=lambda e: get_op(called(e) or "").pattern, default=None)


def ways(
    function: Function, constants: Collection[int], target: Target
) -> list[Implementation | None]:
    """The implementations of a function's anchor for a target, those of high priority first.

    ``constants`` are indices of constant parameters. There is at least one; None is the definition
    of the anchor's operator.
    """
    anchor = anchor_of(function)
    name = called(anchor) if anchor is not None else None
    if anchor is None or name is None or len(implementations(name)) == 1:
        return [None]
    known = _computed(function, constants, None)
    inputs = [_one(known[a], name) for a in anchor.args]
    found = applicable(name, inputs, get_op(name).complete(anchor.attrs), target)
    return [None if one.name == DEFINITION else one for one in found]


def _computed(
    function: Function, constants: Collection[int], implementation: Implementation | None
) -> dict[Expr, list[te.Tensor]]:
    known: dict[Expr, list[te.Tensor]] = {}
    for n, p in enumerate(function.params):
        known[p] = [_placeholder(p, n in constants)]
    anchor = None if implementation is None else anchor_of(function)
    for e in post_order(function.body):
        if e not in known and not isinstance(e, OpRef):
            known[e] = _tensors(e, known, implementation if e is anchor else None)
    return known


def _placeholder(p: Var, constant: bool) -> te.Tensor:
    if not isinstance(p.type, TensorType):
        raise GraphError(f"parameter {p.name!r} of a kernel is {p.type}; kernels take tensors")
    return te.placeholder(p.type.shape, p.type.dtype, name=p.name, constant=constant)


def _tensors(
    e: Expr, known: dict[Expr, list[te.Tensor]], implementation: Implementation | None
) -> list[te.Tensor]:
    if isinstance(e, Constant):
        return [_scalar(e)]
    if isinstance(e, Tuple):
        return [t for f in e.fields for t in known[f]]
    name = called(e)
    if name is None or not isinstance(e, Call):
        raise GraphError(f"a kernel holds a {type(e).__name__}; it is made of calls of operators")
    op = get_op(name)
    args = [_one(known[a], name) for a in e.args]
    return (implementation or op).tensors(args, op.complete(e.attrs))


def _one(tensors: Sequence[te.Tensor], name: str) -> te.Tensor:
    if len(tensors) != 1:
        raise GraphError(f"{name} reads {len(tensors)} tensors where one is needed")
    return tensors[0]


def _scalar(e: Constant) -> te.Tensor:
    if e.data.ndim:
        raise InternalError(f"a kernel holds an array of shape {e.data.shape}; make it a parameter")
    value = te.const(e.data.item(), e.type.dtype)
    tensor: te.Tensor = te.compute((), lambda: value, name="scalar")
    return tensor
