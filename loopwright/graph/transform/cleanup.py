"""Passes that infer types, share equal calls, and remove what nothing reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loopwright.graph.infer import infer_types
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.structural import attrs_key, digest
from loopwright.graph.ir.visitor import globals_of, post_order, rewrite, users
from loopwright.graph.passes import function_pass, module_pass


@function_pass(opt_level=2)
def EliminateCommonSubexpr(f: ir.Function) -> ir.Expr:
    """Share equal calls, constants, tuples and parts of tuples; all of them are pure."""
    known: dict[tuple[Any, ...], ir.Expr] = {}

    def change(e: ir.Expr) -> ir.Expr:
        key = _key(e)
        return e if key is None else known.setdefault(key, e)

    return rewrite(f, change)


def _key(e: ir.Expr) -> tuple[Any, ...] | None:
    """Equal for expressions of the same value; None where a node is left as it is."""
    match e:
        case ir.OpRef() | ir.GlobalVar():
            return type(e), e.name
        case ir.Constant():
            return ir.Constant, str(e.type), digest(e)
        case ir.Call(op=ir.OpRef() | ir.GlobalVar()):
            return ir.Call, e.children, attrs_key(e.attrs)
        case ir.Tuple():
            return ir.Tuple, e.fields
        case ir.TupleGetItem():
            return ir.TupleGetItem, e.tuple_value, e.index
    return None


@function_pass(opt_level=1)
def DeadCodeElimination(f: ir.Function) -> ir.Expr:
    """Remove unread bindings, and read parts of tuples where they are made, until none is left."""
    made = _once(f)
    while made is not f and isinstance(made, ir.Function):
        f, made = made, _once(made)
    return made


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
    made = {}
    for name, function in module.functions.items():
        found = types[function]
        assert isinstance(found, ir.FuncType)
        known = function.result is not None
        made[name] = function if known else replace(function, result=found.result)
    return module.with_functions(made)
