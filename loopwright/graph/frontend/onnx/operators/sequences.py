"""Converters of sequences and optional values, which a module does not have.

A sequence is a tuple of expressions while a model is imported: its length, and the indices of its
parts, must be known. An optional value is the value, or None.
"""

from __future__ import annotations

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.node import Node, converter
from loopwright.graph.frontend.onnx.operators.shapes import sliced
from loopwright.graph.ir.expr import Expr, Tuple, const


def parts_of(node: Node, index: int) -> tuple[Expr, ...]:
    """The parts of an input that is a sequence."""
    found = node[index]
    if not isinstance(found, Tuple):
        raise GraphError(f"its input {index} is a tensor, where a sequence is needed")
    return found.fields


def _place(node: Node, index: int, count: int, default: int | None = None) -> int:
    """A known index in a sequence; negative ones count from the end."""
    if node.optional(index) is None and default is not None:
        return default
    at = node.needed(index)[0]
    if not -count <= at < count:
        raise GraphError(f"place {at} is asked of {count} parts")
    return at % count


@converter("SequenceConstruct")
def construct(node: Node) -> Expr:
    return Tuple(tuple(node.given))


@converter("SequenceEmpty")
def empty(node: Node) -> Expr:
    return Tuple(())


@converter("SequenceLength")
def length(node: Node) -> Expr:
    return const(np.int64(len(parts_of(node, 0))))


@converter("SequenceAt")
def part_at(node: Node) -> Expr:
    parts = parts_of(node, 0)
    return parts[_place(node, 1, len(parts))]


@converter("SequenceInsert")
def insert(node: Node) -> Expr:
    """Insert a part at an index, by default at the end."""
    parts = parts_of(node, 0)
    at = _place(node, 2, len(parts) + 1, len(parts)) if node.optional(2) else len(parts)
    return Tuple((*parts[:at], node[1], *parts[at:]))


@converter("SequenceErase")
def erase(node: Node) -> Expr:
    """Remove a part, by default the last."""
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
    axis, given = node.attr("axis", 0), node.known(1)
    extent = node.shape(node[0])[axis]
    each = 1 if given is None else int(given.reshape(-1)[0])
    lengths = [min(each, extent - at) for at in range(0, extent, max(each, 1))]
    if given is not None and given.ndim:
        lengths = [int(n) for n in given]
    if sum(lengths) != extent:
        raise GraphError(f"parts of {lengths} do not fill {extent} elements")
    ends = np.cumsum(lengths).tolist()
    bounds = zip(lengths, ends, strict=True)
    parts: list[Expr] = [sliced(node, node[0], (end - n,), (end,), (axis,)) for n, end in bounds]
    if given is None and not node.attr("keepdims", 1):
        parts = [node.call("squeeze", p, axis=axis) for p in parts]
    return Tuple(tuple(parts))


@converter("Optional")
def optional(node: Node) -> Expr:
    """The value; an omitted one is not supported in a model."""
    return node[0]


@converter("OptionalHasElement")
def has_element(node: Node) -> Expr:
    """Whether there is a value, which is known at import."""
    return const(np.bool_(node.optional(0) is not None))


@converter("OptionalGetElement")
def get_element(node: Node) -> Expr:
    return node[0]
