"""Passes over modules of graphs, under Relay's names."""

from __future__ import annotations

from loopwright.graph.transform.common_subexpr import (
    eliminate_common_subexpr as EliminateCommonSubexpr,
)
from loopwright.graph.transform.dead_code_elimination import (
    dead_code_elimination as DeadCodeElimination,
)
from loopwright.graph.transform.infer_type import infer_type as InferType
from loopwright.graph.transform.module_pass import function_pass, module_pass
from loopwright.graph.transform.remove_unused_functions import (
    remove_unused_functions as RemoveUnusedFunctions,
)
from loopwright.graph.transform.simplify_inference import simplify_inference as SimplifyInference
from loopwright.lowering.context import Pass, PassContext, Sequential

__all__ = [
    "DeadCodeElimination",
    "EliminateCommonSubexpr",
    "InferType",
    "Pass",
    "PassContext",
    "RemoveUnusedFunctions",
    "Sequential",
    "SimplifyInference",
    "function_pass",
    "module_pass",
]
