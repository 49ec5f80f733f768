"""Storage of dtypes of 8 bits and less that expressions do not have.

In a module a float of 8 or 4 bits is its bits, a uint8, and an integer of 4 or 2 bits is an int8 or
a uint8 of its value: one element each. The importer notes which expressions are so (`Types.mark`);
casts and quantisation compute with them, operators that move elements take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.types import Types
from loopwright.graph.ir.expr import Expr, const
from loopwright.graph.op.narrow import FORMATS, SCALE

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


def storage(name: str) -> str:
    return "int8" if name in INTEGERS and INTEGERS[name][1] else "uint8"


def bounds(name: str) -> tuple[int, int]:
    """The smallest and the largest integer of a narrow dtype."""
    bits, signed = INTEGERS[name]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


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


def constant(types: Types, value: Any, name: str = "") -> Expr:
    """A constant of an ordinary or a narrow dtype."""
    made, dtype = const(stored(value), name=name), np.asarray(value).dtype.name
    return types.mark(made, dtype) if dtype in NAMES else made


def check_taken(operator: str, inputs: Sequence[Expr | None], types: Types) -> str | None:
    """The narrow dtype of the result of an operator that moves elements; None for other operators.

    Raises GraphError where an operator that computes with its elements gets a narrow dtype.
    """
    found = [types.narrow(e) for e in inputs if e is not None]
    if operator in COMPUTING or not any(found):
        return None
    name = next(n for n in found if n)
    if operator not in MOVING:
        raise GraphError(f"it cannot compute with {name}; Cast it to float32 or int32 before")
    if operator == "Concat" and set(found) != {name}:
        raise GraphError(f"tensors of a concatenation differ: one of them is {name}")
    return name
