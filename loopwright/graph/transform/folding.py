"""Passes before a change of precision: they fold factors of channels into weights."""

from __future__ import annotations

from loopwright.graph.transform.common_subexpr import eliminate_common_subexpr
from loopwright.graph.transform.dead_code_elimination import dead_code_elimination
from loopwright.graph.transform.fold_constant import fold_constant
from loopwright.graph.transform.fold_scale_axis import fold_scale_axis
from loopwright.graph.transform.infer_type import infer_type
from loopwright.graph.transform.simplify_expr import simplify_expr
from loopwright.graph.transform.simplify_inference import simplify_inference
from loopwright.lowering.context import Sequential

#: Passes over a module of float32, in order.
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
