"""From a function of one kernel to the expression that is scheduled and built."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from loopwright import te
from loopwright.errors import GraphError, InternalError
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, OpRef, Tuple, Var
from loopwright.graph.ir.types import TensorType
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.registry import get_op


@dataclass(frozen=True)
class Expression:
    """What a kernel computes.

    Attributes:
        inputs: a placeholder for each parameter of the function, in order.
        outputs: its results.
    """

    inputs: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]

    @property
    def args(self) -> list[te.Tensor]:
        """Inputs and results in calling order."""
        return [*self.inputs, *self.outputs]


def expression_of(function: Function, constants: Collection[int] = ()) -> Expression:
    """The expression of a function of one kernel.

    Args:
        function: calls of operators over its parameters.
        constants: the places of parameters that are constant: what depends on them alone is
            computed once, when they are known.

    Returns:
        The expression; a result of several parts has one output for each.

    Raises:
        GraphError: the function holds something else than calls of operators.
    """
    known: dict[Expr, list[te.Tensor]] = {}
    for n, p in enumerate(function.params):
        known[p] = [_placeholder(p, n in constants)]
    for e in post_order(function.body):
        if e not in known and not isinstance(e, OpRef):
            known[e] = _tensors(e, known)
    inputs = tuple(known[p][0] for p in function.params)
    return Expression(inputs, tuple(known[function.body]))


def _placeholder(p: Var, constant: bool) -> te.Tensor:
    if not isinstance(p.type, TensorType):
        raise GraphError(f"parameter {p.name!r} of a kernel is {p.type}; kernels take tensors")
    return te.placeholder(p.type.shape, p.type.dtype, name=p.name, constant=constant)


def _tensors(e: Expr, known: dict[Expr, list[te.Tensor]]) -> list[te.Tensor]:
    if isinstance(e, Constant):
        return [_scalar(e)]
    if isinstance(e, Tuple):
        return [t for f in e.fields for t in known[f]]
    name = called(e)
    if name is None or not isinstance(e, Call):
        raise GraphError(f"a kernel holds a {type(e).__name__}; it is made of calls of operators")
    op = get_op(name)
    args = [_one(known[a], name) for a in e.args]
    return op.tensors(args, op.complete(e.attrs))


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
