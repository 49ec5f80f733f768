"""Passes that infer types, share equal calls, and remove what nothing reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from loopwright.graph.infer import infer_types
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.structural import own_data
from loopwright.graph.ir.visitor import globals_of, post_order, rewrite, users
from loopwright.graph.passes import function_pass, module_pass


@function_pass(opt_level=2)
def EliminateCommonSubexpr(f: ir.Function) -> ir.Expr:
    """Share equal calls, constants, tuples and parts of tuples; all of them are pure."""
    firsts: dict[tuple[Any, ...], ir.Expr] = {}
    samples = Counter(_sample(e) for e in post_order(f) if isinstance(e, ir.Constant))

    def change(e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Constant) and samples[_sample(e)] == 1:
            return e
        kinds = (ir.OpRef, ir.GlobalVar, ir.Constant, ir.Tuple, ir.TupleGetItem)
        shared = isinstance(e.op, kinds[:2]) if isinstance(e, ir.Call) else isinstance(e, kinds)
        return firsts.setdefault((type(e), own_data(e), e.children), e) if shared else e

    return rewrite(f, change)


def _sample(e: ir.Constant) -> tuple[str, bytes]:
    """Equal for equal constants; the hash of all weights of a large model takes half a second."""
    return str(e.type), e.data.reshape(-1)[:: e.data.size // 16 + 1].tobytes()


@function_pass(opt_level=1)
def DeadCodeElimination(f: ir.Function) -> ir.Expr:
    """Remove unread bindings, and read parts of tuples where they are made, until none is left."""
    cleaned = _once(f)
    while cleaned is not f and isinstance(cleaned, ir.Function):
        f, cleaned = cleaned, _once(cleaned)
    return cleaned


def _once(f: ir.Function) -> ir.Expr:
    readers = users(post_order(f))

    def change(e: ir.Expr) -> ir.Expr:
        match e:
            case ir.TupleGetItem(tuple_value=ir.Tuple(fields=fields), index=index):
                return fields[index]
            case ir.Let(var=var, body=body) if len(readers.get(var, ())) <= 1:  # its binding alone
                return body
        return e

    return rewrite(f, change)


@module_pass(opt_level=1)
def RemoveUnusedFunctions(module: IRModule) -> IRModule:
    """Keep ``main`` and what it needs; a module without ``main`` keeps all."""
    if MAIN not in module.functions:
        return module
    needed, waiting = {MAIN}, [MAIN]
    while waiting:
        called = set(globals_of(module[waiting.pop()])) - needed
        needed |= called
        waiting += sorted(called)
    kept = {n: f for n, f in module.functions.items() if n in needed}
    return module if len(kept) == len(module.functions) else IRModule(kept)


@module_pass(opt_level=0)
def InferType(module: IRModule) -> IRModule:
    """Check all types, and let each function declare what it returns."""
    types = infer_types(module)
    functions = {}
    for name, function in module.functions.items():
        t = types[function]
        assert isinstance(t, ir.FuncType)
        declared = function.result is not None
        functions[name] = function if declared else replace(function, result=t.result)
    return module.with_functions(functions)
