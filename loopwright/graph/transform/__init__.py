"""Passes over modules of graphs, under Relay's names."""

from __future__ import annotations

from loopwright.graph.fuse_ops import fuse_ops as FuseOps
from loopwright.graph.passes import function_pass, module_pass
from loopwright.graph.transform.cleanup import (
    dead_code_elimination as DeadCodeElimination,
)
from loopwright.graph.transform.cleanup import (
    eliminate_common_subexpr as EliminateCommonSubexpr,
)
from loopwright.graph.transform.cleanup import infer_type as InferType
from loopwright.graph.transform.cleanup import (
    remove_unused_functions as RemoveUnusedFunctions,
)
from loopwright.graph.transform.combine_parallel import (
    combine_parallel_conv2d as CombineParallelConv2D,
)
from loopwright.graph.transform.combine_parallel import (
    combine_parallel_dense as CombineParallelDense,
)
from loopwright.graph.transform.folding import fold_constant as FoldConstant
from loopwright.graph.transform.folding import fold_scale_axis as FoldScaleAxis
from loopwright.graph.transform.folding import simplify_inference as SimplifyInference
from loopwright.graph.transform.layouts import AlterOpLayout
from loopwright.graph.transform.layouts import convert_layout as ConvertLayout
from loopwright.graph.transform.quantization import (
    fake_quantization_to_integer as FakeQuantizationToInteger,
)
from loopwright.graph.transform.quantization import fold_requantize as FoldRequantize
from loopwright.graph.transform.quantization import qnn_canonicalize as QnnCanonicalize
from loopwright.graph.transform.simplify_arithmetic import (
    reassociate_constants as ReassociateConstants,
)
from loopwright.graph.transform.simplify_expr import simplify_expr as SimplifyExpr
from loopwright.graph.transform.split_concatenation import (
    split_concatenation as SplitConcatenation,
)
from loopwright.graph.transform.to_mixed_precision import ToMixedPrecision
from loopwright.lowering import Pass, PassContext, Sequential

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
