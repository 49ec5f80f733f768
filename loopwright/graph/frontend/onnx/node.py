"""A node of an ONNX graph during conversion, and the table of converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError, shown
from loopwright.graph.frontend.conversion import ExprTypes, ImportedNode, listed
from loopwright.graph.ir.expr import Constant, Expr, TensorType, const
from loopwright.graph.ir.visitor import free_vars
from loopwright.graph.kernels import evaluate
from loopwright.graph.op.narrow import FORMATS, SCALE
from loopwright.graph.op.shapes import axis_of
from loopwright.graph.rounding import WIDE

#: From a node to its outputs: one, or several in order.
Converter: TypeAlias = "Callable[[Node], Expr | Sequence[Expr]]"
#: Converters by operator, each with the opset from which on it holds, the latest last.
_TABLE: dict[str, list[tuple[int, Converter]]] = {}


class UnboundInputsError(GraphError):
    """Nodes cannot be converted, some because sizes depend on values of inputs.

    Attributes:
        inputs: their names; `from_onnx` takes their values as ``constants``.
    """

    def __init__(self, message: str, inputs: Sequence[str]) -> None:
        super().__init__(message)
        self.inputs = tuple(inputs)


class Surroundings(Protocol):
    def subgraph(self, graph: Any, args: Sequence[Expr | None]) -> list[Expr]: ...


@dataclass(frozen=True)
class Node(ImportedNode):
    """A node of a model.

    Attributes:
        operator: its type, such as ``"Conv"``.
        name: as the model calls it; for messages.
        inputs: its inputs; None where one is left out.
        attrs: its attributes as Python values; graphs are those of onnx.
        outputs: names of its outputs; empty ones are not asked for.
        opset: the version of the operators of its domain.
        around: the graph in which it stands.
        types: of expressions.
    """

    operator: str
    name: str
    inputs: tuple[Expr | None, ...]
    attrs: Mapping[str, Any]
    outputs: tuple[str, ...]
    opset: int
    around: Surroundings
    types: ExprTypes

    def __getitem__(self, index: int) -> Expr:
        """An input; GraphError where it is left out."""
        if (e := self.optional(index)) is None:
            raise GraphError(f"its input {index} is missing")
        return e

    @property
    def given(self) -> list[Expr]:
        return [e for e in self.inputs if e is not None]

    def optional(self, index: int) -> Expr | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute, or a default; floats are rounded to float32, as ONNX stores them."""
        value = self.attrs.get(name, default)
        return float(np.float32(value)) if isinstance(value, float) else value

    def each(
        self, name: str, count: int, default: int | None = None, least: int | None = None
    ) -> tuple[int, ...]:
        """An attribute of one integer for each of some dimensions, by default all one number."""
        values = self.attrs.get(name, None if default is None else (default,) * count)
        if values is None or len(values) != count:
            raise GraphError(f"its {name} are {shown(values)}; give {count} numbers")
        if least is not None and min(values, default=least) < least:
            raise GraphError(f"its {name} are {shown(values)}; give numbers from {least} on")
        return tuple(values)

    def axis(self, e: Expr, default: int, name: str = "axis") -> int:
        """An attribute that is an axis of an expression, counted from 0."""
        return axis_of(self.attr(name, default), self.rank(e))

    def one(self, index: int) -> Any:
        """The number of an input that has one element, which has to be known."""
        elements = self.value(self[index], f"input {index}")
        if elements.size != 1:
            raise GraphError(f"its input {index} has {elements.size} elements; one is needed")
        return elements.item()

    def whole(self, index: int) -> int:
        """The same as an integer; some are given as floats."""
        return _whole(self.one(index))

    def cast(self, e: Expr, dtype: str) -> Expr:
        """A tensor as another dtype; itself where it has it."""
        return e if self.dtype(e) == dtype else self.call("cast", e, dtype=dtype)

    def known(self, index: int) -> np.ndarray[Any, Any] | None:
        """The elements of an input that has to be known, such as a shape; None: left out."""
        e = self.optional(index)
        return None if e is None else self.value(e, f"input {index}")

    def value(self, e: Expr, what: str) -> np.ndarray[Any, Any]:
        """The elements of an expression that is known when the model is imported. Raises
        UnboundInputsError where they depend on inputs; ``what`` names them in the message.
        """
        if isinstance(e, Constant):
            return e.data
        names = sorted({v.name for v in free_vars(e)})
        if names:
            raise UnboundInputsError(
                f"its {what} must be known, and depends on {', '.join(map(repr, names))}; give "
                "constants={...}",
                names,
            )
        return evaluate([e])[0]

    def numbers(self, index: int) -> tuple[int, ...] | None:
        """The integers of an input that controls the computation; None: left out."""
        elements = self.known(index)
        return None if elements is None else tuple(map(_whole, elements.reshape(-1).tolist()))

    def needed(self, index: int) -> tuple[int, ...]:
        """The integers of an input; GraphError where it is left out."""
        self[index]
        return self.numbers(index) or ()

    def moved(self, name: str, index: int, since: int) -> Any:
        """The integers of an attribute that is an input from an opset on; None: left out."""
        return self.attr(name) if self.opset < since else self.numbers(index)

    def is_half(self, e: Expr) -> bool:
        """Whether an expression is a tensor of 16-bit floats."""
        t = self.types[e]
        return isinstance(t, TensorType) and t.dtype in dtypes.HALVES

    def __str__(self) -> str:
        return f"{self.operator} {self.name!r}" if self.name else self.operator


def _whole(number: Any) -> int:
    try:
        return int(number)
    except (OverflowError, ValueError) as exc:  # an infinity, no number, a text
        raise GraphError(f"an input is {shown(number)}; an integer is needed") from exc


def converter(operator: str, since: int = 1) -> Callable[[Converter], Converter]:
    """Decorate a function that converts an operator from an opset on.

    Args:
        operator: its type; with a domain in front for one that is not ONNX's: ``"my.domain::Op"``.
        since: the first opset for which it holds; a later one takes its place.

    Example:
        >>> @lw.graph.frontend.onnx.converter("my.domain::Twice")
        ... def twice(node):
        ...     return node.call("add", node[0], node[0])
        ...
        >>> print("my.domain::Twice" in lw.graph.frontend.onnx.known_operators())
        True
    """

    def register(function: Converter) -> Converter:
        entries = [e for e in _TABLE.get(operator, ()) if e[0] != since]
        _TABLE[operator] = sorted([*entries, (since, function)], key=lambda e: e[0])
        return function

    return register


def one_call(
    name: str, operator: str, since: int = 1, **attrs: tuple[str, bool | int | float | str | None]
) -> None:
    """Convert to one call; ``attrs`` are its attributes: the node's name of each, and a default."""

    @converter(name, since)
    def convert(node: Node) -> Expr:
        inputs = [node[n] for n in range(max(len(node.inputs), 1))]
        values = {own: node.attr(*source) for own, source in attrs.items()}
        flags = {own: bool(values[own]) for own in attrs if isinstance(attrs[own][1], bool)}
        return node.call(operator, *inputs, **values | flags)


def computed_in(node: Node, convert: Converter, dtype: str) -> Expr:
    """Convert a node of one output with its first input in another dtype, and cast back."""
    first = node.dtype(node[0])
    inputs = (node.call("cast", node[0], dtype=dtype), *node.inputs[1:])
    (output,) = listed(convert(replace(node, inputs=inputs)))
    return node.call("cast", output, dtype=first)


def outputs_of(node: Node, convert: Converter) -> list[Expr]:
    """The outputs of a node; 16-bit floats are computed in float32 and rounded once."""
    outputs = listed(convert(node))
    if not any(map(node.is_half, node.given)) or node.types.round_once(outputs, node.given):
        return outputs
    inputs = [
        node.call("cast", e, dtype=WIDE) if e is not None and node.is_half(e) else e
        for e in node.inputs
    ]
    exact = listed(convert(replace(node, inputs=tuple(inputs))))
    return [
        node.call("cast", wide, dtype=node.dtype(e)) if node.is_half(e) else wide
        for e, wide in zip(outputs, exact, strict=False)
    ]


def converter_of(operator: str, opset: int) -> Converter | None:
    """The converter of an operator in an opset; None where there is none."""
    fitting = [f for since, f in _TABLE.get(operator, ()) if since <= opset]
    return fitting[-1] if fitting else None


def known_operators() -> list[str]:
    """The operators that have a converter, sorted; others are known by their function bodies.

    Example:
        >>> print("Conv" in lw.graph.frontend.onnx.known_operators())
        True
    """
    return sorted(_TABLE)


#: Integers by name: bits, and whether they have a sign.
INTEGERS = {"int4": (4, True), "uint4": (4, False), "int2": (2, True), "uint2": (2, False)}
NAMES = frozenset({*FORMATS, SCALE, *INTEGERS})

_COMPUTE = """
    BitCast Cast CastLike DequantizeLinear QuantizeLinear Shape Size If Loop Scan
"""
#: Operators that know of narrow dtypes, or do not look at elements.
COMPUTING = frozenset(_COMPUTE.split())
_MOVE = """
    Compress Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Identity Reshape
    ReverseSequence Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze
"""
#: Operators that move elements of their first input, and whose outputs are of its dtype.
MOVING = frozenset(_MOVE.split())


# Storage of dtypes of 8 bits and less that expressions do not have. In a module a float of 8 or 4
# bits is its bits, a uint8, and an integer of 4 or 2 bits is an int8 or a uint8 of its value: one
# element each. The importer notes which expressions are so (`ExprTypes.mark`); casts and
# quantisation compute with them, operators that move elements take them.


def storage(name: str) -> str:
    return "int8" if name in INTEGERS and INTEGERS[name][1] else "uint8"


def bounds(name: str) -> tuple[int, int]:
    bits, signed = INTEGERS[name]
    low = -(1 << bits - 1) if signed else 0
    return low, low + (1 << bits) - 1


def stored(value: Any) -> np.ndarray[Any, Any]:
    """An array as an imported model takes and returns it.

    Args:
        value: an array. Of a dtype of the package ml_dtypes with 8 bits and less, floats become
            their bits (uint8), integers of 4 and 2 bits become int8 or uint8; all others stay.

    Example:
        >>> import ml_dtypes
        >>> x = np.array([1.0, -2.0], ml_dtypes.float8_e4m3fn)
        >>> print(lw.graph.frontend.onnx.stored(x))
        [ 56 192]
    """
    array = np.asarray(value)
    name = array.dtype.name
    if name in INTEGERS:
        return array.astype(storage(name))
    return array.view("uint8") if name in NAMES else array


def constant(types: ExprTypes, value: Any, name: str = "") -> Expr:
    array, dtype = const(stored(value), name=name), np.asarray(value).dtype.name
    return types.mark(array, dtype) if dtype in NAMES else array


def check_taken(operator: str, inputs: Sequence[Expr | None], types: ExprTypes) -> str | None:
    """The narrow dtype of the result of an operator that moves elements; None for other operators.
    Raises GraphError where an operator that computes with its elements gets a narrow dtype.
    """
    narrow = [types.narrow(e) for e in inputs if e is not None]
    if operator in COMPUTING or not any(narrow):
        return None
    name = next(n for n in narrow if n)
    if operator not in MOVING:
        raise GraphError(f"it cannot compute with {name}; Cast it to float32 or int32 before")
    if operator == "Concat" and set(narrow) != {name}:
        raise GraphError(f"tensors of a concatenation differ: one of them is {name}")
    return name
