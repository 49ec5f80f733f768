"""Sequences of passes: before kernels are built, and before a change of precision."""

from __future__ import annotations

from loopwright.graph.fuse_ops import FuseOps
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called
from loopwright.graph.ir.visitor import post_order
from loopwright.graph.layout.choice import LayoutChoice
from loopwright.graph.plan import Planned
from loopwright.graph.plan import plan
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
from loopwright.graph.transform.parallel_products import SplitConcatenation
from loopwright.graph.transform.quantization import FakeQuantizationToInteger
from loopwright.graph.transform.quantization import FoldRequantize
from loopwright.graph.transform.quantization import QnnCanonicalize
from loopwright.graph.transform.simplify_expr import ReassociateConstants
from loopwright.graph.transform.simplify_expr import SimplifyExpr
from loopwright.lowering import Pass
from loopwright.lowering import Sequential
from loopwright.target import Target


#: Passes over a module of float32 before a change of precision: factors are in the weights.
_FOLDING = [
    *(InferType, SimplifyInference, FoldConstant, SimplifyExpr, FoldScaleAxis),
    *(DeadCodeElimination, EliminateCommonSubexpr),
]
FOLDING = Sequential(_FOLDING, name="folding")
_AFTER = [SimplifyExpr, DeadCodeElimination, EliminateCommonSubexpr, RemoveUnusedFunctions, FuseOps]
#: Passes that follow the choice of layouts.
AFTER_LAYOUTS = Sequential(_AFTER, name="after_layouts")


def before_layouts(module: IRModule, target: Target | None = None) -> IRModule:
    return Sequential(_before(module, target), name="before_layouts")(module)


def _before(module: IRModule, target: Target | None) -> list[Pass]:
    options = {} if target is None else target.options
    relaxed = bool(options.get("fastmath") or options.get("fast_math"))
    nodes = post_order(*module.functions.values())
    quantized = any((called(e) or "").startswith("qnn.") for e in nodes)
    return [
        *(InferType, Inline, SelectBranches),
        FakeQuantizationToInteger,
        QnnCanonicalize,
        SimplifyInference,
        OrderContractions,
        FoldConstant,
        SimplifyExpr,
        *([ReassociateConstants, FoldScaleAxis] if relaxed else []),
        *([FoldRequantize] if relaxed or quantized else []),
        SplitConcatenation,
    ]


def pipeline(
    module: IRModule, layouts: LayoutChoice | None = None, target: Target | None = None
) -> IRModule:
    """A module after all passes of graphs; by default in the layouts of `ConvertLayout`."""
    chosen = ConvertLayout if layouts is None else AlterOpLayout(layouts)
    return Sequential([*_before(module, target), chosen, *_AFTER], name="compile")(module)


def prepared(
    module: IRModule, layouts: LayoutChoice | None = None, target: Target | None = None
) -> Planned:
    """A module as the program of kernels that is built; arguments are those of `pipeline`."""
    return plan(pipeline(module, layouts, target))
