"""Passes that leave no control flow: functions go into their callers, branches are chosen."""

from __future__ import annotations

from loopwright.errors import GraphError
from loopwright.graph.infer import infer_types
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import post_order, rewrite_function
from loopwright.graph.passes import module_pass
from loopwright.graph.registry import get_op

#: Nodes of a module with all functions in their callers: functions that call others several times
#: grow by powers.
_MOST_NODES = 100_000
_CALLED = (ir.OpRef, ir.HostFunction, ir.GlobalVar, ir.Function)


@module_pass(opt_level=0)
def Inline(module: IRModule) -> IRModule:
    """Put the bodies of functions in the places of their calls, those of kernels excepted;
    GraphError where a function calls itself, or is a value that is called."""
    nodes = post_order(*module.functions.values())
    if any(isinstance(e, ir.Call) and not isinstance(e.op, _CALLED) for e in nodes):
        raise GraphError("a call of a value that is a function; call the function itself")
    if not any(isinstance(e, ir.Call) and _is_called(e.op) for e in nodes):
        return module
    inliner = _Inliner(module)
    return module.with_functions({name: inliner.function(name) for name in module.functions})


def _is_called(op: ir.Expr) -> bool:
    return isinstance(op, ir.GlobalVar) or (isinstance(op, ir.Function) and not op.primitive)


class _Inliner:
    def __init__(self, module: IRModule) -> None:
        self._module = module
        self._callers: list[str] = []
        self._whole: dict[str, ir.Function] = {}
        self._nodes = 0

    def function(self, name: str) -> ir.Function:
        if name in self._callers:
            raise GraphError(
                f"function {name!r} calls itself, and a model calls kernels one after the other; "
                "unroll it"
            )
        if name not in self._whole:
            self._callers.append(name)
            f = self._module[name]
            self._whole[name] = rewrite_function(f, lambda _, e: self._inlined(e))
            self._callers.pop()
        return self._whole[name]

    def _inlined(self, e: ir.Expr) -> ir.Expr:
        if not (isinstance(e, ir.Call) and _is_called(e.op)):
            return e
        f = self.function(e.op.name) if isinstance(e.op, ir.GlobalVar) else e.op
        assert isinstance(f, ir.Function)
        self._nodes += len(post_order(f.body))
        if self._nodes > _MOST_NODES:
            raise GraphError(
                f"with functions in the places of their calls there are more than {_MOST_NODES} "
                "nodes; call functions less often"
            )
        # Without its bindings: their variables would be bound again at the next call.
        return _without_bindings(f.body, dict[ir.Expr, ir.Expr](zip(f.params, e.args, strict=True)))


def _without_bindings(body: ir.Expr, new: dict[ir.Expr, ir.Expr]) -> ir.Expr:
    """The body with the new expressions in the places of parameters, and values of variables."""
    order = post_order(body)
    bound: dict[ir.Expr, ir.Expr] = {e.var: e.value for e in order if isinstance(e, ir.Let)}
    for e in order:  # values before variables, these before bodies
        if isinstance(e, ir.Let):
            new[e] = new[e.body]
        elif e in bound:
            new[e] = new.get(bound[e], e)
        elif e not in new:
            new[e] = e.with_children(tuple(new[c] for c in e.children))
    return new[body]


@module_pass(opt_level=0)
def SelectBranches(module: IRModule) -> IRModule:
    """Compute both branches of each `If`, and choose each element; of a known condition, one."""
    if not any(isinstance(e, ir.If) for e in post_order(*module.functions.values())):
        return module
    types = infer_types(module)

    def change(old: ir.Expr, e: ir.Expr) -> ir.Expr:
        if not isinstance(e, ir.If):
            return e
        if isinstance(e.condition, ir.Constant):
            return e.then if e.condition.data else e.otherwise
        if any(isinstance(n, ir.HostFunction) for n in post_order(e.then, e.otherwise)):
            return e  # it may fail, or have effects
        return _chosen(e.condition, e.then, e.otherwise, types[old])

    return module.with_functions(
        {name: rewrite_function(f, change) for name, f in module.functions.items()}
    )


def _chosen(condition: ir.Expr, then: ir.Expr, otherwise: ir.Expr, t: ir.Type) -> ir.Expr:
    if isinstance(t, ir.TensorType):
        return get_op("where")(condition, then, otherwise)
    if not isinstance(t, ir.TupleType):
        raise GraphError("an If chooses between functions; choose between their values")
    pairs = [
        (ir.TupleGetItem(then, n), ir.TupleGetItem(otherwise, n)) for n in range(len(t.fields))
    ]
    return ir.Tuple(tuple(_chosen(condition, *p, f) for p, f in zip(pairs, t.fields, strict=True)))
