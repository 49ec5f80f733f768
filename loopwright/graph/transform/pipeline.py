"""Sequences of passes: before kernels are built, and before a change of precision."""

from __future__ import annotations

from loopwright.graph.fuse_ops import FuseOps
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.layout.choice import LayoutChoice
from loopwright.graph.plan import Planned, plan
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
from loopwright.graph.transform.parallel_products import SplitConcatenation
from loopwright.graph.transform.quantization import (
    FakeQuantizationToInteger,
    FoldRequantize,
    QnnCanonicalize,
)
from loopwright.graph.transform.simplify_expr import ReassociateConstants, SimplifyExpr
from loopwright.lowering import Pass, Sequential
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
        *(RemoveUnusedFunctions, InferType, Inline, SelectBranches),
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
