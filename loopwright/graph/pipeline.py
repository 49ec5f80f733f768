"""What is done to every module before its kernels are built."""

from __future__ import annotations

from loopwright.graph.ir.module import IRModule
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
    RemoveUnusedFunctions,
    SimplifyExpr,
    SimplifyInference,
    SplitConcatenation,
)
from loopwright.lowering.context import Sequential

_BEFORE = [
    InferType,
    FakeQuantizationToInteger,
    QnnCanonicalize,
    SimplifyInference,
    FoldConstant,
    SimplifyExpr,
    FoldScaleAxis,
    FoldRequantize,
    SplitConcatenation,
]
_AFTER = [
    SimplifyExpr,
    DeadCodeElimination,
    EliminateCommonSubexpr,
    RemoveUnusedFunctions,
    FuseOps,
]
#: What is done until layouts are chosen, and what from there on.
BEFORE_LAYOUTS = Sequential(_BEFORE, name="before_layouts")
AFTER_LAYOUTS = Sequential(_AFTER, name="after_layouts")
#: All of it, in order, where layouts are not chosen by measurements.
PIPELINE = Sequential([*_BEFORE, ConvertLayout, *_AFTER], name="compile")


def prepared(module: IRModule, layouts: LayoutChoice | None = None) -> Planned:
    """A module as the program of kernels that is built.

    Args:
        module: whose ``main`` is built.
        layouts: of its convolutions; None: as `ConvertLayout` has it.

    Raises:
        GraphError: a type does not fit, ``main`` has branches, or layouts are of another module.
    """
    if layouts is None:
        return plan(PIPELINE(module))
    passes = [*_BEFORE, AlterOpLayout(layouts), *_AFTER]
    return plan(Sequential(passes, name="compile")(module))
