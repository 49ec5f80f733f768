"""InferType: infers the type of every node, and refuses ill-typed modules."""

from __future__ import annotations

from dataclasses import replace

from loopwright.graph.infer import infer_types
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.types import FuncType
from loopwright.graph.transform.module_pass import module_pass


@module_pass(opt_level=0, name="InferType")
def infer_type(module: IRModule) -> IRModule:
    """Check all types, and let each function declare what it returns."""
    types = infer_types(module)
    made = {}
    for name, function in module.functions.items():
        found = types[function]
        assert isinstance(found, FuncType)
        known = function.result is not None
        made[name] = function if known else replace(function, result=found.result)
    return module.with_functions(made)
