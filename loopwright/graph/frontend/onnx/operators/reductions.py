"""Converters of reductions: axes are an attribute in early opsets, and an input later."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.node import Node, computed_in, converter
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
#: Reductions whose results are no integers; of integers they are truncated to the dtype.
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

    From an infinite largest element there is no distance: the elements themselves are used.
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
    """A reduction over no axes, of each element by itself."""
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
    def by_attribute(node: Node) -> Expr:
        return _typed(node, partial(_reduced, axes=node.attr("axes") or None))

    @converter(name, since=since)
    def by_input(node: Node) -> Expr:
        axes = node.numbers(1)
        noop = not axes and node.attr("noop_with_empty_axes", 0)
        return _typed(node, _unchanged if noop else partial(_reduced, axes=axes or None))


def _typed(node: Node, convert: Callable[[Node], Expr]) -> Expr:
    """Convert a node; the reductions of `_REAL` are computed in float64 for integers."""
    real = node.operator in _REAL and not dtypes.is_float(node.dtype(node[0]))
    return computed_in(node, convert, "float64") if real else convert(node)


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
