"""Substitution of a number for a size variable, in all types of a module."""

from __future__ import annotations

from dataclasses import replace

from loopwright.graph.ir.expr import Expr, Function, HostFunction, Var
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.types import FuncType, TensorType, TupleType, Type
from loopwright.graph.ir.visitor import rewrite
from loopwright.ir.sizes import SizeVar, evaluate


def bound(module: IRModule, size: SizeVar, number: int) -> IRModule:
    """Bind a size to a number from 1 in a module whose extents are formulas of that size alone."""
    made = {name: bound_function(f, size, number) for name, f in module.functions.items()}
    return IRModule(made)


def bound_function(function: Function, size: SizeVar, number: int) -> Function:
    made = rewrite(function, lambda e: _bound(e, size, number))
    assert isinstance(made, Function)
    return made


def _bound(e: Expr, size: SizeVar, number: int) -> Expr:
    match e:
        case Var(type=t) if t is not None:
            found = _bound_type(t, size, number)
            return e if found == t else replace(e, type=found)
        case Function(result=t) if t is not None:
            return replace(e, result=_bound_type(t, size, number))
        case HostFunction():
            return replace(e, result=_bound_type(e.result, size, number))
    return e


def _bound_type(t: Type, size: SizeVar, number: int) -> Type:
    match t:
        case TensorType():
            return TensorType(tuple(evaluate(n, {size: number}) for n in t.shape), t.dtype)
        case TupleType():
            return TupleType(tuple(_bound_type(f, size, number) for f in t.fields))
        case FuncType():
            params = tuple(_bound_type(p, size, number) for p in t.params)
            return FuncType(params, _bound_type(t.result, size, number))
