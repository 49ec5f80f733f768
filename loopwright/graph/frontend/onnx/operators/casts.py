"""Converters between dtypes, narrow ones among them, and dtypes by ONNX's numbers."""

from __future__ import annotations

from loopwright import dtypes
from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.narrow import INTEGERS, NAMES, storage
from loopwright.graph.frontend.onnx.node import Node, converter
from loopwright.graph.ir.expr import Expr


def dtype_of(number: int) -> str:
    """The dtype of an ONNX number; GraphError where it has no counterpart here."""
    import onnx

    try:
        return dtypes.check(onnx.helper.tensor_dtype_to_np_dtype(number))
    except KeyError as exc:
        raise GraphError(f"its dtype is number {number}, which ONNX does not have") from exc


def any_dtype_of(number: int) -> str:
    """As `dtype_of`, narrow dtypes included."""
    import onnx

    try:
        name = str(onnx.helper.tensor_dtype_to_np_dtype(number).name)
    except KeyError:
        return dtype_of(number)
    return name if name in NAMES else dtype_of(number)


def any_dtype(node: Node, e: Expr) -> str:
    """The dtype of an expression, narrow dtypes included."""
    return node.around.types.narrow(e) or node.dtype(e)


def widened(node: Node, e: Expr) -> Expr:
    """An expression of a narrow dtype as float32, or as the integers in which it is stored."""
    name = node.around.types.narrow(e)
    if name is None:
        return e
    if name in INTEGERS:
        return node.call("cast", e, dtype=storage(name))
    return node.call("decode_float", e, dtype=name)


def converted(node: Node, e: Expr, dtype: str, saturate: bool = True, rounding: str = "up") -> Expr:
    """An expression as another dtype, from and to narrow ones, too.

    ``saturate`` clips what is too large for an 8-bit float; ``rounding`` is that of powers of two.
    """
    if any_dtype(node, e) == dtype:
        return e
    wide = widened(node, e)
    if dtype not in NAMES:
        return wide if node.dtype(wide) == dtype else node.call("cast", wide, dtype=dtype)
    if dtype in INTEGERS:
        bits, signed = INTEGERS[dtype]
        whole = node.call("cast", wide, dtype="int32")
        found = node.call("wrap_integer", whole, bits=bits, signed=signed)
    else:
        number = node.call("cast", wide, dtype="float32")
        attrs = {"dtype": dtype, "saturate": saturate, "rounding": rounding}
        found = node.call("encode_float", number, **attrs)
    return node.around.types.mark(found, dtype)


def _cast(node: Node, dtype: str) -> Expr:
    saturate = bool(node.attr("saturate", 1))
    return converted(node, node[0], dtype, saturate, node.attr("round_mode", "up"))


@converter("Cast")
def cast(node: Node) -> Expr:
    return _cast(node, any_dtype_of(node.attr("to")))


@converter("CastLike")
def cast_like(node: Node) -> Expr:
    return _cast(node, any_dtype(node, node[1]))


@converter("BitCast")
def bit_cast(node: Node) -> Expr:
    """Reinterpret the bits as another dtype of the same width."""
    dtype = dtype_of(node.attr("to"))
    old = dtypes.check(any_dtype(node, node[0]))
    if dtypes.nbytes(dtype) != dtypes.nbytes(old) or (dtype == "bool" and old != dtype):
        raise GraphError(f"{old} has other bits than {dtype}")
    if old == "bool":
        return converted(node, node[0], dtype)
    return node.call("reinterpret", node[0], dtype=dtype)
