"""Passes over modules of graphs, under Relay's names."""

from __future__ import annotations

from loopwright.graph.fuse_ops import FuseOps
from loopwright.graph.passes import function_pass
from loopwright.graph.passes import module_pass
from loopwright.graph.transform.cleanup import DeadCodeElimination
from loopwright.graph.transform.cleanup import EliminateCommonSubexpr
from loopwright.graph.transform.cleanup import InferType
from loopwright.graph.transform.cleanup import RemoveUnusedFunctions
from loopwright.graph.transform.contractions import OrderContractions
from loopwright.graph.transform.control_flow import Inline
from loopwright.graph.transform.control_flow import SelectBranches
from loopwright.graph.transform.folding import FoldConstant
from loopwright.graph.transform.folding import FoldScaleAxis
from loopwright.graph.transform.folding import SimplifyInference
from loopwright.graph.transform.layouts import AlterOpLayout
from loopwright.graph.transform.layouts import ConvertLayout
from loopwright.graph.transform.parallel_products import CombineParallelConv2D
from loopwright.graph.transform.parallel_products import CombineParallelDense
from loopwright.graph.transform.parallel_products import SplitConcatenation
from loopwright.graph.transform.quantization import FakeQuantizationToInteger
from loopwright.graph.transform.quantization import FoldRequantize
from loopwright.graph.transform.quantization import QnnCanonicalize
from loopwright.graph.transform.simplify_expr import ReassociateConstants
from loopwright.graph.transform.simplify_expr import SimplifyExpr
from loopwright.graph.transform.to_mixed_precision import ToMixedPrecision
from loopwright.lowering import Pass
from loopwright.lowering import PassContext
from loopwright.lowering import Sequential


__all__ = [
    "AlterOpLayout", "CombineParallelConv2D", "CombineParallelDense", "ConvertLayout",
    "DeadCodeElimination", "EliminateCommonSubexpr", "FakeQuantizationToInteger", "FoldConstant",
    "FoldRequantize", "FoldScaleAxis", "FuseOps", "InferType", "Inline", "OrderContractions", "Pass",
    "PassContext", "QnnCanonicalize", "ReassociateConstants", "RemoveUnusedFunctions",
    "SelectBranches", "Sequential", "SimplifyExpr", "SimplifyInference", "SplitConcatenation",
    "ToMixedPrecision", "function_pass", "module_pass",
]  # fmt: skip
