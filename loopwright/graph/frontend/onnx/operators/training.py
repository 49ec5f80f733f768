"""Converters of optimiser steps, whose results are weights and states.

Inputs are the learning rate, the step number, then for all weights: the weights, their gradients,
and one or two states.
"""

from __future__ import annotations

from collections.abc import Callable

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.node import Node, converter
from loopwright.graph.ir.expr import Expr, const

_DOMAIN = "ai.onnx.preview.training"


def _of_each(name: str, states: int) -> Callable[[Callable[..., list[Expr]]], None]:
    """Register a step of one weight as a converter of a step of all of them."""

    def register(step: Callable[..., list[Expr]]) -> None:
        @converter(f"{_DOMAIN}::{name}")
        def convert(node: Node) -> list[Expr]:
            given = node.given[2:]
            count, rest = divmod(len(given), 2 + states)
            if rest or not count:
                raise GraphError(f"{len(given)} tensors are no weights, gradients and states")
            made = [step(node, *given[n::count]) for n in range(count)]
            return [results[n] for n in range(1 + states) for results in made]

    return register


def _times(node: Node, e: Expr, factor: float) -> Expr:
    return node.call("multiply", e, factor)


def _regularised(node: Node, x: Expr, gradient: Expr) -> Expr:
    """The gradient plus that of the squared norm of the weights."""
    factor = node.attr("norm_coefficient", 0.0)
    return gradient if not factor else node.call("add", _times(node, x, factor), gradient)


def _begun(node: Node) -> Expr:
    """Whether this is not the first step."""
    return node.call("greater", node[1], 0)


def _one(node: Node, like: Expr) -> Expr:
    return const(1, node.dtype(like))


@_of_each("Momentum", 1)
def _momentum(node: Node, x: Expr, gradient: Expr, velocity: Expr) -> list[Expr]:
    gradient = _regularised(node, x, gradient)
    one = _one(node, x)
    weight = node.call("where", _begun(node), const(node.attr("beta"), node.dtype(x)), one)
    moved = _times(node, velocity, node.attr("alpha"))
    new = node.call("add", moved, node.call("multiply", gradient, weight))
    step = new
    if node.attr("mode") == "nesterov":
        step = node.call("add", gradient, _times(node, new, node.attr("alpha")))
    return [node.call("subtract", x, node.call("multiply", step, node[0])), new]


@_of_each("Adagrad", 1)
def _adagrad(node: Node, x: Expr, gradient: Expr, squares: Expr) -> list[Expr]:
    """Duchi, Hazan and Singer (2011)."""
    number = node.call("cast", node[1], dtype=node.dtype(node[0]))
    slower = node.call("add", _times(node, number, node.attr("decay_factor", 0.0)), 1)
    rate = node.call("divide", node[0], slower)
    gradient = _regularised(node, x, gradient)
    new = node.call("add", squares, node.call("multiply", gradient, gradient))
    size = node.call("add", node.call("sqrt", new), node.attr("epsilon", 1e-6))
    step = node.call("divide", node.call("multiply", gradient, rate), size)
    return [node.call("subtract", x, step), new]


@_of_each("Adam", 2)
def _adam(node: Node, x: Expr, gradient: Expr, first: Expr, second: Expr) -> list[Expr]:
    """Kingma and Ba (2015)."""
    alpha, beta = node.attr("alpha", 0.9), node.attr("beta", 0.999)
    gradient = _regularised(node, x, gradient)
    mean = node.call("add", _times(node, first, alpha), _times(node, gradient, 1 - alpha))
    square = _times(node, node.call("multiply", gradient, gradient), 1 - beta)
    variance = node.call("add", _times(node, second, beta), square)
    size = node.call("add", node.call("sqrt", variance), node.attr("epsilon", 1e-6))
    rate = node.call("where", _begun(node), _unbiased(node, alpha, beta), node[0])
    step = node.call("multiply", node.call("divide", mean, size), rate)
    after = 1 - node.attr("norm_coefficient_post", 0.0)
    return [_times(node, node.call("subtract", x, step), after), mean, variance]


def _unbiased(node: Node, alpha: float, beta: float) -> Expr:
    """The learning rate corrected for moving averages that began at 0."""
    number = node.call("cast", node[1], dtype=node.dtype(node[0]))

    def known_part(base: float) -> Expr:
        """1 - base ** number: the weight of the steps so far in a moving average."""
        left = node.call("power", const(base, node.dtype(number)), number)
        return node.call("subtract", _one(node, number), left)

    up = node.call("multiply", node[0], node.call("sqrt", known_part(beta)))
    return node.call("divide", up, known_part(alpha))
