"""Converters of control flow, recurrences and sequences, resolved when a model is imported. A
branch whose condition is known becomes the taken branch; a loop whose trip count is known is
unrolled. Control flow that depends on data has no place in a program of kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.node import Node, converter
from loopwright.graph.frontend.onnx.operators.shapes import parts_of_axis, sliced
from loopwright.graph.ir.expr import Constant, Expr, Tuple, const
from loopwright.graph.op.shapes import axis_of

#: Rounds that are unrolled at most.
_ROUNDS = 256


@converter("If")
def branch(node: Node) -> list[Expr]:
    name = "then_branch" if node.one(0) else "else_branch"
    return node.around.subgraph(node.attr(name), ())


def _rounds(count: int) -> range:
    if count > _ROUNDS:
        raise GraphError(f"it runs {count} rounds; {_ROUNDS} are unrolled at most")
    return range(count)


def _unstacked(node: Node, e: Expr, index: int, axis: int = 0) -> Expr:
    """One index of an axis, without that axis."""
    return node.call("squeeze", sliced(node, e, (index,), (index + 1,), (axis,)), axis=axis)


def _stacked(node: Node, parts: Sequence[Expr], axis: int = 0) -> Expr:
    if not parts:
        raise GraphError("it runs no round; tensors without elements are not supported")
    wide = [node.call("expand_dims", p, axis=axis) for p in parts]
    return node.call("concatenate", *wide, axis=axis)


@converter("Loop")
def loop(node: Node) -> list[Expr]:
    """Unroll a loop, whose trip count must be known."""
    body = node.attr("body")
    count = _ROUNDS + 1 if node.optional(0) is None else node.whole(0)
    values: list[Expr | None] = [*node.inputs[2:]]
    rounds: list[list[Expr]] = []  # for each what is kept of it
    goes_on = node.optional(1) is None or bool(node.one(1))
    _check_outputs(body, 1 + len(values))
    while goes_on and len(rounds) < count:
        _rounds(len(rounds) + 1)
        args = [const(np.int64(len(rounds))), const(np.bool_(True)), *values]
        flag, *results = node.around.subgraph(body, args)
        rounds.append(results[len(values) :])
        values = [*results[: len(values)]]
        goes_on = bool(node.value(flag, "condition").reshape(-1)[0])
    kept = [[own[n] for own in rounds] for n in range(len(body.output) - 1 - len(values))]
    return [*(v for v in values if v is not None), *(_stacked(node, p) for p in kept)]


def _check_outputs(body: Any, least: int) -> None:
    if len(body.output) < least:
        raise GraphError(f"its graph has {len(body.output)} outputs; it needs {least} at least")


def _scanned(
    node: Node,
    values: Sequence[Expr],
    inputs: Sequence[Expr],
    axes: Sequence[int],
    backward: Sequence[int],
) -> tuple[list[Expr], list[list[Expr]]]:
    """The last values, and for each output its parts in the order of the iterations."""
    body, values, rounds = node.attr("body"), list(values), list[list[Expr]]()
    if not 0 < len(inputs) == len(axes) == len(backward):
        counts = len(inputs), len(axes), len(backward)
        raise GraphError("it scans {} inputs along {} axes in {} directions".format(*counts))
    _check_outputs(body, len(values))
    axes = [axis_of(a, node.rank(e)) for a, e in zip(axes, inputs, strict=True)]
    count = node.shape(inputs[0])[axes[0]]
    for n in _rounds(count):
        parts = [
            _unstacked(node, e, count - 1 - n if back else n, axis)
            for e, axis, back in zip(inputs, axes, backward, strict=True)
        ]
        results = node.around.subgraph(body, [*values, *parts])
        rounds.append(results[len(values) :])
        values = results[: len(values)]
    return values, [[own[n] for own in rounds] for n in range(len(body.output) - len(values))]


@converter("Scan", since=9)
def scan(node: Node) -> list[Expr]:
    """An iteration for each element of an axis."""
    scanned = node.attr("num_scan_inputs")
    axes = node.attr("scan_input_axes", (0,) * scanned)
    backward = node.attr("scan_input_directions", (0,) * scanned)
    values, kept = _scanned(node, node.given[:-scanned], node.given[-scanned:], axes, backward)
    sides = node.attr("scan_output_directions", (0,) * len(kept))
    places = node.attr("scan_output_axes", (0,) * len(kept))
    if not len(sides) == len(places) == len(kept):
        raise GraphError(f"it has {len(places)} axes of {len(kept)} outputs")
    parts_of = [p[::-1] if back else p for p, back in zip(kept, sides, strict=True)]
    return [*values, *(_stacked(node, p, a) for p, a in zip(parts_of, places, strict=True))]


@converter("Scan", since=8)
def scan_batches(node: Node) -> list[Expr]:
    """The same for each batch by itself, as opset 8 has it."""
    if node.optional(0) is not None:
        raise GraphError("sequences of several lengths are not supported")
    scanned, inputs = node.attr("num_scan_inputs"), node.given
    backward = node.attr("directions", (0,) * scanned)
    results: list[list[Expr]] = []
    for n in _rounds(node.shape(inputs[-1])[0]):
        own = [_unstacked(node, e, n) for e in inputs]
        values, kept = _scanned(node, own[:-scanned], own[-scanned:], (0,) * scanned, backward)
        results.append([*values, *(_stacked(node, p) for p in kept)])
    return [_stacked(node, parts) for parts in zip(*results, strict=True)]


# Converters of sequences and optional values, which a module does not have. A sequence is a tuple
# of expressions while a model is imported: its length, and the indices of its parts, must be known.
# An optional value is the value, or None.


def parts_of(node: Node, index: int) -> tuple[Expr, ...]:
    sequence = node[index]
    if not isinstance(sequence, Tuple):
        raise GraphError(f"its input {index} is a tensor, where a sequence is needed")
    return sequence.fields


def _place(node: Node, index: int, count: int, default: int | None = None) -> int:
    """A known index in a sequence; negative ones count from the end."""
    if node.optional(index) is None and default is not None:
        return default
    at = node.whole(index)
    if not -count <= at < count:
        raise GraphError(f"place {at} is asked of {count} parts")
    return at % count


converter("SequenceConstruct")(lambda node: Tuple(tuple(node.given)))
converter("SequenceEmpty")(lambda node: Tuple(()))
converter("SequenceLength")(lambda node: const(np.int64(len(parts_of(node, 0)))))
# An optional value that is not there is known to be so at import.
converter("Optional")(lambda node: node[0])
converter("OptionalHasElement")(lambda node: const(np.bool_(node.optional(0) is not None)))
converter("OptionalGetElement")(lambda node: node[0])


@converter("SequenceAt")
def part_at(node: Node) -> Expr:
    parts = parts_of(node, 0)
    return parts[_place(node, 1, len(parts))]


@converter("SequenceInsert")
def insert(node: Node) -> Expr:
    """Insert a part at an index, by default at the end."""
    parts = parts_of(node, 0)
    at = _place(node, 2, len(parts) + 1, len(parts))
    return Tuple((*parts[:at], node[1], *parts[at:]))


@converter("SequenceErase")
def erase(node: Node) -> Expr:
    parts = parts_of(node, 0)
    at = _place(node, 1, len(parts), len(parts) - 1)
    return Tuple((*parts[:at], *parts[at + 1 :]))


@converter("ConcatFromSequence")
def concatenated(node: Node) -> Expr:
    """Concatenate the parts along one of their axes or a new one."""
    parts, axis = parts_of(node, 0), node.attr("axis")
    if not parts:
        raise GraphError("the sequence has no parts; tensors without elements are not supported")
    if node.attr("new_axis", 0):
        parts = tuple(node.call("expand_dims", p, axis=axis) for p in parts)
    return node.call("concatenate", *parts, axis=axis)


@converter("SplitToSequence")
def split(node: Node) -> Expr:
    """Parts of an axis: of one extent, of several, or of one element each."""
    axis, extents = node.axis(node[0], 0), node.known(1)
    extent = node.shape(node[0])[axis]
    each = 1 if extents is None else int(extents.reshape(-1)[0])
    lengths = [min(each, extent - at) for at in range(0, extent, max(each, 1))]
    if extents is not None and extents.ndim:
        lengths = [int(n) for n in extents]
    if sum(lengths) != extent:
        raise GraphError(f"parts of {lengths} do not fill {extent} elements")
    parts = parts_of_axis(node, lengths, axis)
    if extents is None and not node.attr("keepdims", 1):
        parts = [node.call("squeeze", p, axis=axis) for p in parts]
    return Tuple(tuple(parts))


_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ACTIVATIONS = {"Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "nn.relu"}
_USUAL = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
#: Steps that are unrolled at most.
_STEPS = 256


class _Layer:
    """One direction (0, or 1 the second) of a recurrent layer; x is (steps, batch, features)."""

    def __init__(self, node: Node, x: Expr, direction: int) -> None:
        self.node, self.direction, self._x = node, direction, x
        self.hidden = int(node.attr("hidden_size") or node.shape(node[2])[2])
        half = _GATES[node.operator] * self.hidden
        self.weights, self.recurrent = self.part(1), self.part(2)
        zeros = const(np.zeros(2 * half, node.dtype(x)))
        bias = zeros if node.optional(3) is None else self.part(3)
        self.bias = sliced(node, bias, (0,), (half,), (0,))
        self.recurrent_bias = sliced(node, bias, (half,), (2 * half,), (0,))
        names = node.attr("activations", _USUAL[node.operator])
        count = len(_USUAL[node.operator])
        self._activations = names[direction * count : (direction + 1) * count] or names[:count]

    def part(self, index: int) -> Expr:
        return _unstacked(self.node, self.node[index], self.direction)

    def start(self, index: int) -> Expr:
        return self.zeros() if self.node.optional(index) is None else self.part(index)

    def zeros(self) -> Expr:
        batch = self.node.shape(self._x)[1]
        return const(np.zeros((batch, self.hidden), self.node.dtype(self._x)))

    def gate(self, e: Expr, number: int, axis: int = 1) -> Expr:
        begin = number * self.hidden
        return sliced(self.node, e, (begin,), (begin + self.hidden,), (axis,))

    def add(self, *parts: Expr) -> Expr:
        return reduce(self.node.add, parts)

    def dense(self, x: Expr, weight: Expr) -> Expr:
        return self.node.call("nn.dense", x, weight)

    def activated(self, number: int, e: Expr) -> Expr:
        """One of the layer's activations, after its clip."""
        name = self._activations[number]
        if name not in _ACTIVATIONS:
            names = ", ".join(_ACTIVATIONS)
            raise GraphError(f"its activation {name!r} is not supported; there are {names}")
        clip = self.node.attr("clip")
        if clip:
            e = self.node.call("clip", e, a_min=-clip, a_max=clip)
        return self.node.call(_ACTIVATIONS[name], e)


# Steps: from a layer, its input of a step times its weights, and its state to the next state.


def _rnn(layer: _Layer, x: Expr, state: list[Expr]) -> list[Expr]:
    inner = layer.dense(state[0], layer.recurrent)
    return [layer.activated(0, layer.add(x, inner, layer.recurrent_bias))]


def _gru(layer: _Layer, x: Expr, state: list[Expr]) -> list[Expr]:
    """Gates in the order update, reset, hidden."""
    node, h = layer.node, state[0]
    weights = [layer.gate(layer.recurrent, n, 0) for n in range(3)]
    biases = [layer.gate(layer.recurrent_bias, n, 0) for n in range(3)]
    update, reset = (
        layer.activated(0, layer.add(layer.gate(x, n), layer.dense(h, weights[n]), biases[n]))
        for n in (0, 1)
    )
    inner: Expr
    if node.attr("linear_before_reset", 0):
        inner = node.multiply(reset, layer.add(layer.dense(h, weights[2]), biases[2]))
    else:
        inner = layer.add(layer.dense(node.multiply(reset, h), weights[2]), biases[2])
    hidden = layer.activated(1, layer.add(layer.gate(x, 2), inner))
    rest = node.subtract(const(np.ones((), node.dtype(update))), update)
    return [layer.add(node.multiply(rest, hidden), node.multiply(update, h))]


def _lstm(layer: _Layer, x: Expr, state: list[Expr]) -> list[Expr]:
    """Gates in the order input, output, forget, cell; peepholes in that order, without the cell."""
    node, (h, c) = layer.node, state
    whole = layer.add(x, layer.dense(h, layer.recurrent), layer.recurrent_bias)
    gates = [layer.gate(whole, n) for n in range(4)]
    peepholes = None if node.optional(7) is None else layer.part(7)

    def seen(number: int, gate: Expr, cell: Expr) -> Expr:
        if peepholes is None:
            return gate
        return layer.add(gate, node.multiply(cell, layer.gate(peepholes, number, 0)))

    inputs = layer.activated(0, seen(0, gates[0], c))
    forget = layer.activated(0, seen(2, gates[2], c))
    cell = layer.add(node.multiply(forget, c), node.multiply(inputs, layer.activated(1, gates[3])))
    output = layer.activated(0, seen(1, gates[1], cell))
    return [node.multiply(output, layer.activated(2, cell)), cell]


_STEP = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


def _held(node: Node, lengths: Expr, step: int, new: list[Expr], old: list[Expr]) -> list[Expr]:
    """States after a step; sequences that have ended keep their old ones."""
    goes_on = node.call("greater", node.reshape(lengths, newshape=(-1, 1)), step)
    return [node.where(goes_on, n, o) for n, o in zip(new, old, strict=True)]


def _direction(
    node: Node, x: Expr, direction: int, backward: bool, lengths: Expr | None
) -> tuple[Expr, list[Expr]]:
    """The states of all steps, and the last state, of one direction. A sequence that has ended, or
    in reverse has not begun, keeps its state, and gives 0.
    """
    layer = _Layer(node, x, direction)
    steps, batch, features = node.shape(x)
    rows = node.reshape(x, newshape=(steps * batch, features))
    inputs = layer.add(layer.dense(rows, layer.weights), layer.bias)
    state = [layer.start(5)] + ([layer.start(6)] if node.operator == "LSTM" else [])
    kept: list[Expr] = []
    for n in range(steps)[:: -1 if backward else 1]:
        part = sliced(node, inputs, (n * batch,), ((n + 1) * batch,), (0,))
        new = _STEP[node.operator](layer, part, state)
        if lengths is None:
            state = new
            kept.append(new[0])
            continue
        state = _held(node, lengths, n, new, state)
        kept += _held(node, lengths, n, new[:1], [layer.zeros()])
    kept = kept[::-1] if backward else kept
    wide = [node.reshape(h, newshape=(1, 1, batch, layer.hidden)) for h in kept]
    return node.call("concatenate", *wide, axis=0), state


@converter("RNN", since=7)
@converter("GRU", since=7)
@converter("LSTM", since=7)
def recurrent(node: Node) -> list[Expr]:
    """All states (steps, directions, batch, hidden), then the last ones."""
    x = node.call("transpose", node[0], axes=(1, 0, 2)) if node.attr("layout", 0) else node[0]
    steps = node.shape(x)[0]
    lengths = node.optional(4)
    if isinstance(lengths, Constant) and (lengths.data == steps).all():
        lengths = None
    if steps > _STEPS or (node.attr("layout", 0) and node.optional(5) is not None):
        raise GraphError(f"{steps} steps, or a state in layout 1, are not supported")
    how = node.attr("direction", "forward")
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[how]
    directions = [_direction(node, x, n, back, lengths) for n, back in enumerate(backward)]
    every = node.call("concatenate", *(f[0] for f in directions), axis=1)
    lasts = []
    for n in range(2 if node.operator == "LSTM" else 1):
        wide = [node.call("expand_dims", f[1][n], axis=0) for f in directions]
        lasts.append(node.call("concatenate", *wide, axis=0))
    if node.attr("layout", 0):
        every = node.call("transpose", every, axes=(2, 0, 1, 3))
        lasts = [node.call("transpose", e, axes=(1, 0, 2)) for e in lasts]
    return [every, *lasts]
