"""Kernels that are priced: those of a place in a layout, and of a transform between two layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, OpRef, Var
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.types import TensorType, Type
from loopwright.graph.ir.visitor import called, free_vars
from loopwright.graph.kernel_tasks import KernelTask, kernel_tasks
from loopwright.graph.layout.layouts import FIRST, Layout
from loopwright.graph.layout.rewriting import Rewriting
from loopwright.graph.layout.rules import has_few, leaving, rule_of
from loopwright.graph.pipeline import AFTER_LAYOUTS
from loopwright.graph.plan import plan

if TYPE_CHECKING:
    from loopwright.target import Target

#: Kernels, each by the tasks of the ways to compute it, with how often it is called.
Kernels = Sequence[tuple[Sequence[KernelTask], int]]


def kernels_of_calls(
    calls: Sequence[Call], types: Mapping[Expr, Type], layout: Layout, target: Target
) -> Kernels | None:
    """The kernels of some calls that are fused, in a layout that their inputs have already.

    None where they cannot be computed so. ``types`` are of all nodes; values of other calls are
    inputs, constants stay.
    """
    f, anchor = _alone(calls, types)
    known = infer_types(IRModule({MAIN: f}))
    r = Rewriting(known, lambda _: layout, rule_of, leaving)
    rank = len(_shape(known[anchor]))
    few = anchor.args[0] if called(anchor) == "nn.conv" else None
    for p in f.params:
        shape = _shape(known[p])
        as_is = len(shape) != rank or not layout.fits(shape) or (p is few and has_few(shape))
        lies = FIRST if as_is else layout
        r.forms[p] = {lies: Var(p.name, TensorType(lies.shape(shape), _dtype(known[p])))}
    r.walk(f.body)
    if r.home(f.body) != layout:
        return None
    return _kernels(r.form(f.body, layout), target)


def kernels_of_transform(t: TensorType, source: Layout, to: Layout, target: Target) -> Kernels:
    """The kernels that move a value of type (N, C, ...) from one layout to another."""
    x = Var("x", TensorType(source.shape(t.shape), t.dtype))
    return _kernels(source.moved(x, t.shape, to), target)


def _kernels(body: Expr, target: Target) -> Kernels:
    module = IRModule({MAIN: Function(tuple(free_vars(body)), body)})
    planned = plan(AFTER_LAYOUTS(module))
    tasks = kernel_tasks(planned, target)
    return [(candidates, planned.calls[name]) for name, candidates in tasks.items()]


def _alone(calls: Sequence[Call], types: Mapping[Expr, Type]) -> tuple[Function, Call]:
    """Some calls as a function of what they read, and the first convolution or pool among them."""
    params: dict[Expr, Var] = {}
    made: dict[Expr, Expr] = {}

    def operand(e: Expr) -> Expr:
        if e in made or isinstance(e, (OpRef, Constant)):
            return made.get(e, e)
        return params.setdefault(e, Var(f"x{len(params)}", types[e]))

    anchors = []
    for call in calls:
        new = call.with_children(tuple(map(operand, call.children)))
        made[call] = new
        if called(call) in ("nn.conv", "nn.max_pool", "nn.avg_pool"):
            anchors.append(new)
    body = made[calls[-1]]
    (anchor,) = anchors
    assert isinstance(anchor, Call)
    return Function(tuple(params.values()), body), anchor


def _shape(t: Type) -> tuple[object, ...]:
    assert isinstance(t, TensorType)
    return t.shape


def _dtype(t: Type) -> str:
    assert isinstance(t, TensorType)
    return t.dtype
