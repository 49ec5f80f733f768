"""Passes over modules of graphs, under Relay's names."""

from __future__ import annotations

from loopwright.graph.transform.alter_op_layout import AlterOpLayout
from loopwright.graph.transform.combine_parallel_conv2d import (
    combine_parallel_conv2d as CombineParallelConv2D,
)
from loopwright.graph.transform.combine_parallel_dense import (
    combine_parallel_dense as CombineParallelDense,
)
from loopwright.graph.transform.common_subexpr import (
    eliminate_common_subexpr as EliminateCommonSubexpr,
)
from loopwright.graph.transform.convert_layout import convert_layout as ConvertLayout
from loopwright.graph.transform.dead_code_elimination import (
    dead_code_elimination as DeadCodeElimination,
)
from loopwright.graph.transform.fake_quantization_to_integer import (
    fake_quantization_to_integer as FakeQuantizationToInteger,
)
from loopwright.graph.transform.fold_constant import fold_constant as FoldConstant
from loopwright.graph.transform.fold_requantize import fold_requantize as FoldRequantize
from loopwright.graph.transform.fold_scale_axis import fold_scale_axis as FoldScaleAxis
from loopwright.graph.transform.fuse_ops import fuse_ops as FuseOps
from loopwright.graph.transform.infer_type import infer_type as InferType
from loopwright.graph.transform.module_pass import function_pass, module_pass
from loopwright.graph.transform.qnn_canonicalize import qnn_canonicalize as QnnCanonicalize
from loopwright.graph.transform.reassociate_constants import (
    reassociate_constants as ReassociateConstants,
)
from loopwright.graph.transform.remove_unused_functions import (
    remove_unused_functions as RemoveUnusedFunctions,
)
from loopwright.graph.transform.simplify_expr import simplify_expr as SimplifyExpr
from loopwright.graph.transform.simplify_inference import simplify_inference as SimplifyInference
from loopwright.graph.transform.split_concatenation import (
    split_concatenation as SplitConcatenation,
)
from loopwright.graph.transform.to_mixed_precision import ToMixedPrecision
from loopwright.lowering.context import Pass, PassContext, Sequential

__all__ = [
    "AlterOpLayout",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "ConvertLayout",
    "DeadCodeElimination",
    "EliminateCommonSubexpr",
    "FakeQuantizationToInteger",
    "FoldConstant",
    "FoldRequantize",
    "FoldScaleAxis",
    "FuseOps",
    "InferType",
    "Pass",
    "PassContext",
    "QnnCanonicalize",
    "ReassociateConstants",
    "RemoveUnusedFunctions",
    "Sequential",
    "SimplifyExpr",
    "SimplifyInference",
    "SplitConcatenation",
    "ToMixedPrecision",
    "function_pass",
    "module_pass",
]
