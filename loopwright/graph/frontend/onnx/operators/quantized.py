"""Converters of casts, and of quantised tensors: integers with a scale and a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.files import numpy_dtype
from loopwright.graph.frontend.onnx.node import INTEGERS, NAMES, Node, bounds, converter, storage
from loopwright.graph.frontend.onnx.operators.windows import biased, window_of
from loopwright.graph.ir.expr import Constant, Expr, const
from loopwright.graph.op.narrow import BYTES, FORMATS, LONGEST
from loopwright.graph.op.shapes import pads_of


def dtype_of(number: int, narrow: bool = False) -> str:
    """The dtype of an ONNX number, which may be a narrow one if ``narrow``."""
    try:
        dtype = numpy_dtype(number)
    except KeyError as exc:
        raise GraphError(f"its dtype is number {number}, which ONNX does not have") from exc
    return dtype.name if narrow and dtype.name in NAMES else dtypes.check(dtype)


def any_dtype(node: Node, e: Expr) -> str:
    return node.types.narrow(e) or node.dtype(e)


def widened(node: Node, e: Expr) -> Expr:
    """An expression of a narrow dtype as float32, or as the integers in which it is stored."""
    name = node.types.narrow(e)
    if name is None:
        return e
    if name in INTEGERS:
        return node.call("cast", e, dtype=storage(name))
    return node.call("decode_float", e, dtype=name)


def converted(node: Node, e: Expr, dtype: str, saturate: bool = True, rounding: str = "up") -> Expr:
    """An expression as another dtype, from and to narrow ones, too. ``saturate`` clips what is too
    large for an 8-bit float; ``rounding`` is that of powers of two.
    """
    if any_dtype(node, e) == dtype:
        return e
    wide = widened(node, e)
    if dtype not in NAMES:
        return node.cast(wide, dtype)
    if dtype in INTEGERS:
        bits, signed = INTEGERS[dtype]
        whole = node.call("cast", wide, dtype="int32")
        code = node.call("wrap_integer", whole, bits=bits, signed=signed)
    else:
        number = node.call("cast", wide, dtype="float32")
        attrs = {"dtype": dtype, "saturate": saturate, "rounding": rounding}
        code = node.call("encode_float", number, **attrs)
    return node.types.mark(code, dtype)


def _cast(node: Node, dtype: str) -> Expr:
    saturate = bool(node.attr("saturate", 1))
    return converted(node, node[0], dtype, saturate, node.attr("round_mode", "up"))


converter("Cast")(lambda node: _cast(node, dtype_of(node.attr("to"), narrow=True)))
converter("CastLike")(lambda node: _cast(node, any_dtype(node, node[1])))


@converter("BitCast")
def bit_cast(node: Node) -> Expr:
    dtype = dtype_of(node.attr("to"))
    old = dtypes.check(any_dtype(node, node[0]))
    if dtypes.nbytes(dtype) != dtypes.nbytes(old) or (dtype == "bool" and old != dtype):
        raise GraphError(f"{old} has other bits than {dtype}")
    if old == "bool":
        return converted(node, node[0], dtype)
    return node.call("reinterpret", node[0], dtype=dtype)


#: Whole numbers that quantised tensors are made of, beside narrow ones.
WHOLE = ("int8", "uint8", "int16", "uint16", "int32")


def _along(node: Node, e: Expr, x: Expr, axis: int, block: int) -> Expr:
    """A scale or a zero point in a shape that is broadcast over a tensor. ``e`` is one number, one
    for each index of an axis, or one for each block of that many elements of it; a block of 0 means
    no blocks.
    """
    rank = node.rank(x)
    if node.rank(e) == 0 or node.shape(e) == (1,):
        return node.reshape(e, newshape=()) if node.rank(e) else e
    at = axis % rank
    if block:
        places = np.arange(node.shape(x)[at]) // block
        return node.call("take", e, places.astype("int64"), axis=at)
    return node.reshape(e, newshape=tuple(-1 if d == at else 1 for d in range(rank)))


def quantized(
    node: Node,
    x: Expr,
    scale: Expr,
    zero: Expr | None,
    dtype: str,
    saturate: bool = True,
    precision: str = "",
) -> Expr:
    """Quantise: divide by the scale, round to even, add the zero point, clip to the dtype. Where a
    precision is given, quotients are rounded to that dtype.
    """
    whole = dtype in WHOLE or dtype in INTEGERS
    if not whole and dtype not in FORMATS:
        raise GraphError(f"quantised tensors of {dtype} are not supported")
    wide = "float64" if node.dtype(x) == "float64" else "float32"
    x, scale = node.cast(x, wide), node.cast(scale, wide)
    quotient: Expr = node.divide(x, scale)
    if precision in dtypes.HALVES:
        quotient = node.cast(node.cast(quotient, precision), wide)
    quotient = node.call("round", quotient) if whole else quotient
    if not whole:  # whose zero is 0, and only tells the dtype
        return converted(node, quotient, dtype, saturate)
    if zero is not None:
        quotient = node.add(quotient, node.cast(zero, wide))
    low, high = bounds(dtype) if dtype in INTEGERS else dtypes.limits(dtype)
    held = node.call("clip", quotient, a_min=float(low), a_max=float(high))
    if dtype in INTEGERS:
        return node.types.mark(node.call("cast", held, dtype=storage(dtype)), dtype)
    return node.call("cast", held, dtype=dtype)


def _parameter(node: Node, e: Expr | None, dtype: str) -> Expr:
    """A scale or a zero point as `qnn.quantize` takes it: scalar, or one per index of an axis."""
    if e is None:
        return const(0, dtype)
    shape = () if node.shape(e) == (1,) else node.shape(e)
    if isinstance(e, Constant):  # is seen as one by `FakeQuantizationToInteger`
        return const(e.data.reshape(shape), dtype)
    e = e if shape == node.shape(e) else node.reshape(e, newshape=shape)
    return node.cast(e, dtype)


def _is_plain(node: Node, real: str, whole: str, block: int) -> bool:
    """Whether `qnn.quantize` and `qnn.dequantize` support these dtypes, scale and zero point."""
    rank, zero = node.rank(node[1]), node.optional(2)
    dtypes_fit = real == node.dtype(node[1]) == "float32" and whole in BYTES
    return dtypes_fit and not block and rank < 2 and (zero is None or node.rank(zero) < 2)


@converter("QuantizeLinear", since=10)
def quantize_linear(node: Node) -> Expr:
    """x / scale + zero, per tensor, per index of an axis, or per block of it."""
    x, axis, block = node[0], node.attr("axis", 1), node.attr("block_size", 0)
    zero, number = node.optional(2), node.attr("output_dtype", 0)
    dtype = "uint8" if zero is None else any_dtype(node, zero)
    dtype = dtype_of(number, narrow=True) if number else dtype
    precise = node.attr("precision", 0)
    division = dtype_of(precise) if precise else node.dtype(node[1]) if node.opset >= 23 else ""
    if _is_plain(node, node.dtype(x), dtype, block) and division not in dtypes.HALVES:
        return _plain(node, "qnn.quantize", axis, out_dtype=dtype)
    scale = _along(node, node[1], x, axis, block)
    offset = None if zero is None else _along(node, widened(node, zero), x, axis, block)
    return quantized(node, x, scale, offset, dtype, bool(node.attr("saturate", 1)), division)


def _plain(node: Node, name: str, axis: int, **attrs: Any) -> Expr:
    scale = _parameter(node, node[1], "float32")
    zero = _parameter(node, node.optional(2), "int32")
    by_axis = bool(node.rank(scale) or node.rank(zero))
    return node.call(name, node[0], scale, zero, axis=axis if by_axis else -1, **attrs)


@converter("DequantizeLinear", since=10)
def dequantize_linear(node: Node) -> Expr:
    x, axis, block = node[0], node.attr("axis", 1), node.attr("block_size", 0)
    number = node.attr("output_dtype", 0)
    dtype = dtype_of(number) if number else node.dtype(node[1])
    if _is_plain(node, dtype, any_dtype(node, x), block):
        return _plain(node, "qnn.dequantize", axis)
    scale = node.cast(_along(node, node[1], x, axis, block), "float32")
    if any_dtype(node, x) in FORMATS:  # whose zero is 0
        return node.cast(node.multiply(widened(node, x), scale), dtype)
    whole, zero = node.cast(widened(node, x), "int32"), node.optional(2)
    if zero is not None:
        offset = node.cast(_along(node, widened(node, zero), x, axis, block), "int32")
        whole = node.subtract(whole, offset)
    whole = node.cast(whole, "float32")
    return node.cast(node.multiply(whole, scale), dtype)


def _subtract_zero_point(node: Node, x: Expr, zero: Expr | None, axis: int) -> Expr:
    """An operand as int32, minus its zero point, which may have as many dimensions."""
    x = node.cast(x, "int32")
    if zero is None:
        return x
    if not node.rank(zero) == node.rank(x) > 1:
        zero = _along(node, zero, x, axis, 0)
    return node.subtract(x, node.cast(zero, "int32"))


converter("MatMulInteger", 10)(lambda n: _multiplied(n, n[0], n.optional(2), n[1], n.optional(3)))
converter("ConvInteger", 10)(lambda n: _convolved(n, n[0], n.optional(2), n[1], n.optional(3)))


def _multiplied(node: Node, x: Expr, zero: Expr | None, w: Expr, weight_zero: Expr | None) -> Expr:
    """The product of integers, each minus the zero point behind it, as int32."""
    if node.rank(w) != 2 or not _are_bytes(node, x, w, weight_zero, 1):
        a = _subtract_zero_point(node, x, zero, -2)
        return node.call("matmul", a, _subtract_zero_point(node, w, weight_zero, -1))
    assert isinstance(w, Constant)
    total: Expr = node.call("matmul", x, w, out_dtype="int32")
    if _stands_for_itself(zero):
        return total
    assert zero is not None
    if node.rank(zero) != node.rank(x) or node.rank(x) == 1:
        zero = _along(node, zero, x, -2, 0)
    return _less(node, total, zero, w.data.sum(axis=0, dtype="int32"))


def _are_bytes(node: Node, x: Expr, w: Expr, zero: Expr | None, channels: int) -> bool:
    """Whether operands are bytes, the second constant with zero point 0, and sums fit int32. CPUs
    have instructions for such products; the contribution of the first zero point is subtracted
    afterwards: sum((x - zero) * w) is sum(x * w) - zero * sum(w). ``channels`` is the dimension of
    the second operand that the result has.
    """
    if not isinstance(w, Constant) or not _stands_for_itself(zero):
        return False
    whole = node.dtype(x) in BYTES and node.dtype(w) in BYTES
    return whole and w.data.size // max(w.data.shape[channels], 1) <= LONGEST


def _stands_for_itself(zero: Expr | None) -> bool:
    return zero is None or (isinstance(zero, Constant) and not zero.data.any())


def _less(node: Node, total: Expr, zero: Expr, sums: Any) -> Expr:
    return node.subtract(total, node.multiply(node.cast(zero, "int32"), const(sums, "int32")))


def _convolved(node: Node, x: Expr, zero: Expr | None, w: Expr, weight_zero: Expr | None) -> Expr:
    """The convolution of integers, each minus the zero point behind it, as int32."""
    attrs = dict(window_of(node, node.shape(w, 2), node.shape(x, 2)).attrs)
    attrs["groups"] = node.attr("group", 1)
    pads = pads_of(attrs["padding"], node.rank(x) - 2)
    padded = any(pair != (0, 0) for pair in pads) and not _stands_for_itself(zero)
    one_zero = isinstance(zero, Constant) and zero.data.size == 1
    if (padded and not one_zero) or not _are_bytes(node, x, w, weight_zero, 0):
        shifted = _subtract_zero_point(node, x, zero, 1)
        return node.call("nn.conv", shifted, _subtract_zero_point(node, w, weight_zero, 0), **attrs)
    assert isinstance(w, Constant)
    if padded:
        assert isinstance(zero, Constant)
        # The padding is the zero point.
        width, attrs["padding"] = ((0, 0), (0, 0), *pads), 0
        x = node.call("nn.pad", x, pad_width=width, pad_value=float(zero.data.item()))
    total: Expr = node.call("nn.conv", x, w, out_dtype="int32", **attrs)
    if _stands_for_itself(zero):
        return total
    assert zero is not None
    sums = w.data.sum(axis=tuple(range(1, w.data.ndim)), dtype="int32")
    sums = sums.reshape(-1, *(1,) * (w.data.ndim - 2))
    return _less(node, total, _along(node, zero, x, 1, 0), sums)


def _requantized(node: Node, total: Expr, axis: int) -> Expr:
    """int32 sums as integers of the result's scale. Inputs 1, 4 and 6 are the scales of both
    operands and of the result, 7 is its zero point; ``axis`` is that along which the second operand
    has several scales.
    """
    scale_a = _along(node, node.cast(node[1], "float32"), total, -2, 0)
    scale_b = node.cast(node[4], "float32")
    scale_b = scale_b if node.rank(scale_b) > 1 else _along(node, scale_b, total, axis, 0)
    real = node.multiply(node.cast(total, "float32"), node.multiply(scale_a, scale_b))
    result, offset = (_along(node, node[n], total, axis, 0) for n in (6, 7))
    return quantized(node, real, result, offset, node.dtype(node[7]))


@converter("QLinearMatMul", since=10)
def quantized_matmul(node: Node) -> Expr:
    return _requantized(node, _multiplied(node, node[0], node[2], node[3], node[5]), -1)


@converter("QLinearConv", since=10)
def quantized_conv(node: Node) -> Expr:
    """A convolution of quantised tensors, with a bias of the product's scale."""
    total = _convolved(node, node[0], node[2], node[3], node[5])
    return _requantized(node, biased(node, total, 8), 1)


@converter("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(node: Node) -> list[Expr]:
    """Quantise to uint8 by the range of the data, which is widened to hold 0."""
    x = node[0]
    low, high = (node.call(name, x) for name in ("min", "max"))
    low, high = node.call("minimum", low, 0), node.call("maximum", high, 0)
    scale: Expr = node.divide(node.subtract(high, low), 255)
    scale = node.where(node.call("equal", scale, 0), np.ones((), "float32"), scale)
    zero = node.call("round", node.divide(node.call("negative", low), scale))
    held = node.call("cast", node.call("clip", zero, a_min=0.0, a_max=255.0), dtype="uint8")
    return [quantized(node, x, scale, held, "uint8"), scale, held]
