"""Sequences of passes: before kernels are built, and before a change of precision."""

from __future__ import annotations

from loopwright.graph.fuse_ops import fuse_ops
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.layout.choice import LayoutChoice
from loopwright.graph.plan import Planned, plan
from loopwright.graph.transform.cleanup import (
    dead_code_elimination,
    eliminate_common_subexpr,
    infer_type,
    remove_unused_functions,
)
from loopwright.graph.transform.folding import fold_constant, fold_scale_axis, simplify_inference
from loopwright.graph.transform.layouts import AlterOpLayout, convert_layout
from loopwright.graph.transform.quantization import (
    fake_quantization_to_integer,
    fold_requantize,
    qnn_canonicalize,
)
from loopwright.graph.transform.simplify_arithmetic import reassociate_constants
from loopwright.graph.transform.simplify_expr import simplify_expr
from loopwright.graph.transform.split_concatenation import split_concatenation
from loopwright.lowering import Pass, Sequential
from loopwright.target import Target

#: Passes over a module of float32 before a change of precision: factors are in the weights.
FOLDING = Sequential(
    [
        infer_type,
        simplify_inference,
        fold_constant,
        simplify_expr,
        fold_scale_axis,
        dead_code_elimination,
        eliminate_common_subexpr,
    ],
    name="folding",
)
_AFTER = [
    simplify_expr,
    dead_code_elimination,
    eliminate_common_subexpr,
    remove_unused_functions,
    fuse_ops,
]
#: Passes that follow the choice of layouts.
AFTER_LAYOUTS = Sequential(_AFTER, name="after_layouts")


def before_layouts(module: IRModule, target: Target | None = None) -> IRModule:
    """A module after the passes before layouts are chosen."""
    return Sequential(_before(module, target), name="before_layouts")(module)


def _before(module: IRModule, target: Target | None) -> list[Pass]:
    options = {} if target is None else target.options
    relaxed = bool(options.get("fastmath") or options.get("fast_math"))
    nodes = post_order(*module.functions.values())
    quantized = any((called(e) or "").startswith("qnn.") for e in nodes)
    return [
        infer_type,
        fake_quantization_to_integer,
        qnn_canonicalize,
        simplify_inference,
        fold_constant,
        simplify_expr,
        *([reassociate_constants, fold_scale_axis] if relaxed else []),
        *([fold_requantize] if relaxed or quantized else []),
        split_concatenation,
    ]


def pipeline(
    module: IRModule, layouts: LayoutChoice | None = None, target: Target | None = None
) -> IRModule:
    """A module after all passes of graphs.

    Without layouts they are as `ConvertLayout` has them. Constants of floats are joined only where
    the target has ``-fastmath``.
    """
    chosen = convert_layout if layouts is None else AlterOpLayout(layouts)
    return Sequential([*_before(module, target), chosen, *_AFTER], name="compile")(module)


def prepared(
    module: IRModule, layouts: LayoutChoice | None = None, target: Target | None = None
) -> Planned:
    """A module as the program of kernels that is built; arguments are those of `pipeline`."""
    return plan(pipeline(module, layouts, target))
