"""Converters of branches and loops that are resolved when a model is imported.

A branch whose condition is known becomes the taken branch; a loop whose trip count is known is
unrolled. Control flow that depends on data has no place in a program of kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.node import Node, converter
from loopwright.graph.frontend.onnx.operators.shapes import sliced
from loopwright.graph.ir.expr import Expr, const

#: Rounds that are unrolled at most.
_ROUNDS = 256


@converter("If")
def branch(node: Node) -> list[Expr]:
    condition = node.known(0)
    if condition is None:
        raise GraphError("its condition is missing")
    name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    return node.around.subgraph(node.attr(name), ())


def _rounds(count: int) -> range:
    if count > _ROUNDS:
        raise GraphError(f"it runs {count} rounds; {_ROUNDS} are unrolled at most")
    return range(count)


def _stacked(node: Node, parts: Sequence[Expr], axis: int = 0) -> Expr:
    if not parts:
        raise GraphError("it runs no round; tensors without elements are not supported")
    wide = [node.call("expand_dims", p, axis=axis) for p in parts]
    return node.call("concatenate", *wide, axis=axis)


@converter("Loop")
def loop(node: Node) -> list[Expr]:
    """Unroll a loop, whose trip count must be known."""
    limit, body = node.known(0), node.attr("body")
    condition = node.optional(1)
    count = _ROUNDS + 1 if limit is None else int(limit.reshape(-1)[0])
    values: list[Expr | None] = [*node.inputs[2:]]
    kept: list[list[Expr]] = [[] for _ in body.output[1 + len(values) :]]
    goes_on = condition is None or bool(node.value(condition, "condition").reshape(-1)[0])
    for n in range(count):
        if not goes_on:
            break
        _rounds(n + 1)
        flag, *made = node.around.subgraph(
            body, [const(np.int64(n)), const(np.bool_(True)), *values]
        )
        values = [*made[: len(values)]]
        for list_of_parts, part in zip(kept, made[len(values) :], strict=True):
            list_of_parts.append(part)
        goes_on = bool(node.value(flag, "condition").reshape(-1)[0])
    return [*(v for v in values if v is not None), *(_stacked(node, p) for p in kept)]


def _scanned(
    node: Node,
    values: Sequence[Expr],
    inputs: Sequence[Expr],
    axes: Sequence[int],
    backward: Sequence[int],
) -> tuple[list[Expr], list[list[Expr]]]:
    """The last values, and for each output its parts in the order of the iterations."""
    body, values = node.attr("body"), list(values)
    kept: list[list[Expr]] = [[] for _ in range(len(body.output) - len(values))]
    count = node.shape(inputs[0])[axes[0]]
    for n in _rounds(count):
        parts = []
        for e, axis, back in zip(inputs, axes, backward, strict=True):
            at = count - 1 - n if back else n
            part = sliced(node, e, (at,), (at + 1,), (axis,))
            parts.append(node.call("squeeze", part, axis=axis))
        made = node.around.subgraph(body, [*values, *parts])
        values = made[: len(values)]
        for list_of_parts, part in zip(kept, made[len(values) :], strict=True):
            list_of_parts.append(part)
    return values, kept


@converter("Scan", since=9)
def scan(node: Node) -> list[Expr]:
    """An iteration for each element of an axis."""
    scanned = node.attr("num_scan_inputs")
    axes = node.attr("scan_input_axes", (0,) * scanned)
    backward = node.attr("scan_input_directions", (0,) * scanned)
    values, kept = _scanned(node, node.given[:-scanned], node.given[-scanned:], axes, backward)
    sides = node.attr("scan_output_directions", (0,) * len(kept))
    places = node.attr("scan_output_axes", (0,) * len(kept))
    parts_of = [p[::-1] if back else p for p, back in zip(kept, sides, strict=True)]
    return [*values, *(_stacked(node, p, a) for p, a in zip(parts_of, places, strict=True))]


@converter("Scan", since=8)
def scan_batches(node: Node) -> list[Expr]:
    """The same for each batch by itself, as opset 8 has it."""
    if node.optional(0) is not None:
        raise GraphError("sequences of several lengths are not supported")
    scanned, given = node.attr("num_scan_inputs"), node.given
    backward = node.attr("directions", (0,) * scanned)
    results: list[list[Expr]] = []
    for n in _rounds(node.shape(given[-1])[0]):
        own = [node.call("squeeze", sliced(node, e, (n,), (n + 1,), (0,)), axis=0) for e in given]
        axes = (0,) * scanned
        values, kept = _scanned(node, own[:-scanned], own[-scanned:], axes, backward)
        results.append([*values, *(_stacked(node, p) for p in kept)])
    return [_stacked(node, parts) for parts in zip(*results, strict=True)]
