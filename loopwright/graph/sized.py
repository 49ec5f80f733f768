"""Modules and kernels of symbolic size: two modules of different sizes merged, or a size bound.

The schedule of a declared batch, a trace of steps, is replayed on the expression with a size
variable: loops have as many iterations as a call needs, guarded where a tile runs over the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from loopwright import te
from loopwright.codegen import BuildQueue
from loopwright.errors import GraphError, InternalError, LoopwrightError
from loopwright.graph.building import ModelBuilder, records_in_force
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.visitor import called, post_order, rewrite_function
from loopwright.graph.kernels import fastest, tasks_of
from loopwright.graph.plan import SizedPlan
from loopwright.ir.sizes import SizeVar, evaluate, size_vars
from loopwright.runtime import Module
from loopwright.task import schedule_of

#: Nodes over children alone.
_PLAIN = (ir.Function, ir.Tuple, ir.TupleGetItem)


@dataclass
class Generalised:
    module: IRModule  # the second module, with a size variable in the types of its parameters
    size: SizeVar
    numbers: tuple[int, int]  # the value of the size in the two modules
    #: how extents depend on the size; a third module of equal pattern is this one for a number
    pattern: tuple[object, ...]


def generalised(first: IRModule, second: IRModule) -> Generalised:
    """Merge straight modules of two sizes, the first extent of an input that differs, into one.

    Others are a multiple of the size plus a number.
    """
    mains = first[MAIN], second[MAIN]
    nodes, others = map(post_order, mains)
    if len(nodes) != len(others):
        raise GraphError("modules of two sizes have other numbers of nodes")
    shapes = [
        [n for p in main.params if isinstance(p.type, ir.TensorType) for n in p.type.shape]
        for main in mains
    ]
    one, other = next(((a, b) for a, b in zip(*shapes, strict=True) if a != b), (0, 0))
    if one == other:
        raise GraphError("modules of two sizes have inputs of the same extents")
    pairing = _Pairing(te.size_var("size"), one, other, dict(zip(others, nodes, strict=True)))
    main = rewrite_function(mains[1], pairing.merged)
    return Generalised(IRModule({MAIN: main}), pairing.size, (one, other), tuple(pairing.pattern))


@dataclass
class _Pairing:
    size: SizeVar
    one: int
    other: int
    nodes: Mapping[ir.Expr, ir.Expr]
    pattern: list[object] = field(default_factory=list)

    def merged(self, e: ir.Expr, rebuilt: ir.Expr) -> ir.Expr:
        """A node of the second module over merged children, with the variable in its extents."""
        twin = self.nodes[e]
        same = type(e) is type(twin) and [self.nodes[c] for c in e.children] == [*twin.children]
        match rebuilt, twin:
            case (ir.Var(type=ir.TensorType() as b), ir.Var(type=ir.TensorType() as a)) if (
                b.dtype == a.dtype and len(b.shape) == len(a.shape)
            ):
                shape = tuple(map(self._extent, a.shape, b.shape))
                return replace(rebuilt, type=ir.TensorType(shape, b.dtype))
            case ir.Constant(), ir.Constant() if _equal(rebuilt.data, twin.data):
                return rebuilt
            case ir.Call(), ir.Call() if (
                same and called(e) == called(twin) and called(e) is not None
            ):
                return replace(rebuilt, attrs=self._attrs(e, rebuilt.attrs, twin.attrs))
            case ir.OpRef(name=name), ir.OpRef(name=known) if name == known:
                return rebuilt
            case _ if same and isinstance(e, _PLAIN):
                if getattr(e, "index", None) == getattr(twin, "index", None):
                    return rebuilt
        raise GraphError(f"a {type(e).__name__} {e.span} depends on the size by more than extents")

    def _extent(self, a: Any, b: Any) -> Any:
        factor, rest = divmod(b - a, self.other - self.one) if a != b else (0, 0)
        more = a - factor * self.one
        if rest or factor < 0 or more < 0:
            raise GraphError(f"extents {a} and {b} are no multiple of the size and a number more")
        self.pattern.append((factor, more))
        return self.size * factor + more if factor else more

    def _attrs(
        self, e: ir.Expr, attrs: Mapping[str, Any], twin: Mapping[str, Any]
    ) -> dict[str, Any]:
        merged = dict(attrs)
        for name in {*attrs, *twin}:
            if attrs.get(name) == twin.get(name):
                continue
            where = _differences(attrs.get(name), twin.get(name))
            if (called(e), name) != ("reshape", "newshape") or len(where) != 1:
                raise GraphError(f"{e.span or called(e)} depends on the size by its {name}")
            self.pattern.append(tuple(where))
            merged[name] = [-1 if n in where else extent for n, extent in enumerate(attrs[name])]
        return merged


def _differences(a: Any, b: Any) -> list[int]:
    """Positions at which two shapes differ; none where a -1 could not stand for the size."""
    if len(a) != len(b) or -1 in (*a, *b):
        return []
    return [n for n, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1]]


def _equal(a: Any, b: Any) -> bool:
    """Whether two arrays have the same bits; they are often the same object."""
    if a.__array_interface__ == b.__array_interface__:
        return True
    x, y = (np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(x, y))


def bound(module: IRModule, size: SizeVar, number: int) -> IRModule:
    """Bind a size to a number from 1 in a module whose extents are formulas of that size alone."""
    return IRModule({name: bound_function(f, size, number) for name, f in module.functions.items()})


def bound_function(function: ir.Function, size: SizeVar, number: int) -> ir.Function:
    def change(_: ir.Expr, e: ir.Expr) -> ir.Expr:
        match e:
            case ir.Var(type=t) if t is not None:
                new = _bound_type(t, size, number)
                return e if new == t else replace(e, type=new)
            case ir.Function(result=t) if t is not None:
                return replace(e, result=_bound_type(t, size, number))
            case ir.HostFunction():
                return replace(e, result=_bound_type(e.result, size, number))
        return e

    return rewrite_function(function, change)


def _bound_type(t: ir.Type, size: SizeVar, number: int) -> ir.Type:
    match t:
        case ir.TensorType():
            return ir.TensorType(tuple(evaluate(n, {size: number}) for n in t.shape), t.dtype)
        case ir.TupleType():
            return ir.TupleType(tuple(_bound_type(f, size, number) for f in t.fields))
        case ir.FuncType():
            params = tuple(_bound_type(p, size, number) for p in t.params)
            return ir.FuncType(params, _bound_type(t.result, size, number))


@dataclass(frozen=True)
class SizedKernels:
    modules: dict[str, Module]  # by name
    scheduled_as: tuple[int, ...]  # the batches whose schedules they have


def sized_kernels(
    planned: SizedPlan, size: SizeVar, batches: Sequence[int], builder: ModelBuilder
) -> SizedKernels:
    """Build the kernels of any batch, as scheduled for the first of ``batches`` that serves all.

    Those that do not depend on the batch are shared with other programs of the builder.
    """
    building, used = {}, set[int]()
    with builder.applied(), BuildQueue() as queue:
        for name, (function, constants) in planned.kernels.items():
            one = name, function, constants
            building[name], batch = _begun(*one, size, batches, builder, queue)
            used |= set() if batch is None else {batch}
    modules = {name: future.result() for name, future in building.items()}
    return SizedKernels(modules, tuple(sorted(used)))


def _begun(
    name: str,
    function: ir.Function,
    constants: tuple[int, ...],
    size: SizeVar,
    batches: Sequence[int],
    builder: ModelBuilder,
    queue: BuildQueue,
) -> tuple[Future[Module], int | None]:
    """A kernel to be, and the batch whose schedule it has; None where it depends on no batch."""
    why = ""
    for batch in batches:
        candidates = tasks_of(bound_function(function, size, batch), constants, builder.target)
        chosen = fastest(candidates, records_in_force())
        expression = chosen.expression_of(function)
        if not size_vars(n for t in expression.args for n in t.shape):
            return builder.kernel(chosen, name, queue), None
        try:
            schedule = te.create_schedule([t.op for t in expression.outputs])
            for step in schedule_of(chosen.task)[0].trace:
                schedule.apply_step(step)
            return queue.build(schedule, expression.args, builder.target, name), batch
        except InternalError:
            raise
        except LoopwrightError as error:
            why = why or " ".join(str(error).split())
    raise GraphError(f"kernel {name!r} cannot be built for every {size.name}: {why}")
