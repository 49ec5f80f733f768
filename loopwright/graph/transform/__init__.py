"""Passes over modules of graphs, under Relay's names."""

from __future__ import annotations

from loopwright.graph.fuse_ops import FuseOps
from loopwright.graph.passes import function_pass, module_pass
from loopwright.graph.transform.cleanup import (
    DeadCodeElimination,
    EliminateCommonSubexpr,
    InferType,
    RemoveUnusedFunctions,
)
from loopwright.graph.transform.contractions import OrderContractions
from loopwright.graph.transform.control_flow import Inline, SelectBranches
from loopwright.graph.transform.folding import FoldConstant, FoldScaleAxis, SimplifyInference
from loopwright.graph.transform.layouts import AlterOpLayout, ConvertLayout
from loopwright.graph.transform.parallel_products import (
    CombineParallelConv2D,
    CombineParallelDense,
    SplitConcatenation,
)
from loopwright.graph.transform.quantization import (
    FakeQuantizationToInteger,
    FoldRequantize,
    QnnCanonicalize,
)
from loopwright.graph.transform.simplify_expr import ReassociateConstants, SimplifyExpr
from loopwright.graph.transform.to_mixed_precision import ToMixedPrecision
from loopwright.lowering import Pass, PassContext, Sequential

__all__ = [
    "AlterOpLayout", "CombineParallelConv2D", "CombineParallelDense", "ConvertLayout",
    "DeadCodeElimination", "EliminateCommonSubexpr", "FakeQuantizationToInteger", "FoldConstant",
    "FoldRequantize", "FoldScaleAxis", "FuseOps", "InferType", "Inline", "OrderContractions",
    "Pass", "PassContext", "QnnCanonicalize", "ReassociateConstants", "RemoveUnusedFunctions",
    "SelectBranches", "Sequential", "SimplifyExpr", "SimplifyInference", "SplitConcatenation",
    "ToMixedPrecision", "function_pass", "module_pass",
]  # fmt: skip
