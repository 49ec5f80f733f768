"""What is done to every module before its kernels are built."""

from __future__ import annotations

from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.layout.choice import LayoutChoice
from loopwright.graph.plan import Planned, plan
from loopwright.graph.transform import (
    AlterOpLayout,
    ConvertLayout,
    DeadCodeElimination,
    EliminateCommonSubexpr,
    FakeQuantizationToInteger,
    FoldConstant,
    FoldRequantize,
    FoldScaleAxis,
    FuseOps,
    InferType,
    QnnCanonicalize,
    ReassociateConstants,
    RemoveUnusedFunctions,
    SimplifyExpr,
    SimplifyInference,
    SplitConcatenation,
)
from loopwright.lowering.context import Pass, Sequential
from loopwright.target import Target

_AFTER = [
    SimplifyExpr,
    DeadCodeElimination,
    EliminateCommonSubexpr,
    RemoveUnusedFunctions,
    FuseOps,
]
#: Passes that follow the choice of layouts.
AFTER_LAYOUTS = Sequential(_AFTER, name="after_layouts")


def before_layouts(module: IRModule, target: Target | None = None) -> IRModule:
    """A module after the passes before layouts are chosen; arguments are those of `pipeline`."""
    return Sequential(_before(module, target), name="before_layouts")(module)


def _before(module: IRModule, target: Target | None) -> list[Pass]:
    options = {} if target is None else target.options
    relaxed = bool(options.get("fastmath") or options.get("fast_math"))
    nodes = post_order(*module.functions.values())
    quantized = any((called(e) or "").startswith("qnn.") for e in nodes)
    return [
        InferType,
        FakeQuantizationToInteger,
        QnnCanonicalize,
        SimplifyInference,
        FoldConstant,
        SimplifyExpr,
        *([ReassociateConstants, FoldScaleAxis] if relaxed else []),
        *([FoldRequantize] if relaxed or quantized else []),
        SplitConcatenation,
    ]


def pipeline(
    module: IRModule, layouts: LayoutChoice | None = None, target: Target | None = None
) -> IRModule:
    """A module after all passes of graphs.

    Args:
        module: whose functions are changed.
        layouts: of its convolutions; None: as `ConvertLayout` has it.
        target: whose ``-fastmath`` says that constants of floats may be joined; None: they may not.

    Raises:
        GraphError: a type does not fit, or layouts are of another module.
    """
    chosen = ConvertLayout if layouts is None else AlterOpLayout(layouts)
    return Sequential([*_before(module, target), chosen, *_AFTER], name="compile")(module)


def prepared(
    module: IRModule, layouts: LayoutChoice | None = None, target: Target | None = None
) -> Planned:
    """A module as the program of kernels that is built; arguments are those of `pipeline`.

    Raises:
        GraphError: a type does not fit, ``main`` has branches, or layouts are of another module.
    """
    return plan(pipeline(module, layouts, target))
