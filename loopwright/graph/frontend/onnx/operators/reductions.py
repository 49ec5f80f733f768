"""Converters of reductions: axes are an attribute at first, and an input later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.node import (
    Converter,
    Node,
    computed_in,
    converter,
)
from loopwright.graph.ir.expr import Expr

#: Reductions, and the opset from which on their axes are an input.
_REDUCTIONS = {
    "ReduceL1": 18,
    "ReduceL2": 18,
    "ReduceLogSum": 18,
    "ReduceLogSumExp": 18,
    "ReduceMax": 18,
    "ReduceMean": 18,
    "ReduceMin": 18,
    "ReduceProd": 18,
    "ReduceSum": 13,
    "ReduceSumSquare": 18,
}
_SIMPLE = {"ReduceMax": "max", "ReduceMean": "mean", "ReduceMin": "min", "ReduceProd": "prod"}
#: Reductions whose results are no whole numbers: those of whole numbers are cut to such in the end.
_REAL = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


def _reduced(node: Node, axes: tuple[int, ...] | None) -> Expr:
    def over(name: str, e: Expr) -> Expr:
        return node.call(name, e, axis=axes, keepdims=bool(node.attr("keepdims", 1)))

    x = node[0]
    match node.operator:
        case "ReduceL1":
            return over("sum", node.call("abs", x))
        case "ReduceL2":
            return node.call("sqrt", over("sum", node.call("multiply", x, x)))
        case "ReduceSumSquare":
            return over("sum", node.call("multiply", x, x))
        case "ReduceLogSum":
            return node.call("log", over("sum", x))
        case "ReduceLogSumExp":
            return _log_sum_exp(node, axes)
        case "ReduceSum":
            return over("sum", x)
        case "ReduceMax" | "ReduceMin" if node.dtype(x) == "bool":
            number = node.call("cast", x, dtype="uint8")
            return node.call("cast", over(_SIMPLE[node.operator], number), dtype="bool")
    return over(_SIMPLE[node.operator], x)


def _log_sum_exp(node: Node, axes: tuple[int, ...] | None) -> Expr:
    """Exponentials of distances to the largest element, so that none overflows.

    From an infinite one there is no distance: exponentials of the elements themselves are right.
    """
    kept = bool(node.attr("keepdims", 1))

    def top(keepdims: bool) -> Expr:
        found = node.call("max", node[0], axis=axes, keepdims=keepdims)
        zero = np.zeros((), node.dtype(found))
        return node.call("where", node.call("isinf", found), zero, found)

    exps = node.call("exp", node.call("subtract", node[0], top(True)))
    logs = node.call("log", node.call("sum", exps, axis=axes, keepdims=kept))
    return node.call("add", logs, top(kept))


def _unchanged(node: Node) -> Expr:
    """What a reduction over no axes is: of each element by itself."""
    x = node[0]
    match node.operator:
        case "ReduceL1" | "ReduceL2":
            return node.call("abs", x)
        case "ReduceSumSquare":
            return node.call("multiply", x, x)
        case "ReduceLogSum":
            return node.call("log", x)
    return x


def _register(name: str, since: int) -> None:
    @converter(name)
    @_typed
    def by_attribute(node: Node) -> Expr:
        return _reduced(node, node.attr("axes") or None)

    @converter(name, since=since)
    @_typed
    def by_input(node: Node) -> Expr:
        axes = node.numbers(1)
        if not axes and node.attr("noop_with_empty_axes", 0):
            return _unchanged(node)
        return _reduced(node, axes or None)


def _typed(convert: Converter) -> Converter:
    """Compute in float64 what is no whole number, of whole numbers."""

    def wide(node: Node) -> Expr | Sequence[Expr]:
        real = node.operator in _REAL and not dtypes.is_float(node.dtype(node[0]))
        return computed_in(node, convert, "float64") if real else convert(node)

    return wide


for _name, _since in _REDUCTIONS.items():
    _register(_name, _since)


def _arg(operator: str, name: str) -> None:
    @converter(operator)
    def convert(node: Node) -> Expr:
        return node.call(
            name,
            node[0],
            axis=node.attr("axis", 0),
            keepdims=bool(node.attr("keepdims", 1)),
            select_last=bool(node.attr("select_last_index", 0)),
        )


_arg("ArgMax", "argmax")
_arg("ArgMin", "argmin")


def _cumulative(operator: str, name: str) -> None:
    @converter(operator)
    def convert(node: Node) -> Expr:
        axes = node.needed(1)
        if len(axes) != 1:
            raise GraphError(f"it names {len(axes)} axes; one is needed")
        return node.call(
            name,
            node[0],
            axis=axes[0],
            exclusive=bool(node.attr("exclusive", 0)),
            reverse=bool(node.attr("reverse", 0)),
        )


_cumulative("CumSum", "cumsum")
_cumulative("CumProd", "cumprod")
