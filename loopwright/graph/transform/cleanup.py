"""Passes that infer types, share equal calls, and remove what nothing reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    FuncType,
    GlobalVar,
    Let,
    OpRef,
    Tuple,
    TupleGetItem,
)
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.structural import attrs_key, digest
from loopwright.graph.ir.visitor import globals_of, post_order, rewrite, users
from loopwright.graph.passes import function_pass, module_pass


@function_pass(opt_level=2)
def EliminateCommonSubexpr(f: Function) -> Expr:
    """Share equal calls, constants, tuples and parts of tuples; all of them are pure."""
    known: dict[tuple[Any, ...], Expr] = {}

    def change(e: Expr) -> Expr:
        key = _key(e)
        return e if key is None else known.setdefault(key, e)

    return rewrite(f, change)


def _key(e: Expr) -> tuple[Any, ...] | None:
    """Equal for expressions of the same value; None where a node is left as it is."""
    match e:
        case OpRef() | GlobalVar():
            return type(e), e.name
        case Constant():
            return Constant, str(e.type), digest(e)
        case Call(op=OpRef() | GlobalVar()):
            return Call, e.children, attrs_key(e.attrs)
        case Tuple():
            return Tuple, e.fields
        case TupleGetItem():
            return TupleGetItem, e.tuple_value, e.index
    return None


@function_pass(opt_level=1)
def DeadCodeElimination(f: Function) -> Expr:
    """Remove unread bindings, and read parts of tuples where they are made, until none is left."""
    made = _once(f)
    while made is not f and isinstance(made, Function):
        f, made = made, _once(made)
    return made


def _once(f: Function) -> Expr:
    readers = users(post_order(f))

    def change(e: Expr) -> Expr:
        match e:
            case TupleGetItem(tuple_value=Tuple(fields=fields), index=index):
                return fields[index]
            case Let(var=var, body=body) if len(readers.get(var, ())) <= 1:  # its binding alone
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
        assert isinstance(found, FuncType)
        known = function.result is not None
        made[name] = function if known else replace(function, result=found.result)
    return module.with_functions(made)
