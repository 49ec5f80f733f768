"""Converters of reductions and of signals: axes are an attribute early, and an input later."""

from __future__ import annotations

import string
from functools import partial
from math import prod
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.files import check_elements
from loopwright.graph.frontend.onnx.node import Node, computed_in, converter, one_call
from loopwright.graph.frontend.onnx.operators.quantized import dtype_of
from loopwright.graph.frontend.onnx.operators.shapes import sliced
from loopwright.graph.ir.expr import Expr, const
from loopwright.graph.op.shapes import axis_of

_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"
#: Reductions whose results are no integers; of integers they are truncated to the dtype.
_REAL = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


def _reduced(node: Node, axes: tuple[int, ...] | None) -> Expr:
    def over(name: str, e: Expr) -> Expr:
        return node.call(name, e, axis=axes, keepdims=bool(node.attr("keepdims", 1)))

    x, name = node[0], node.operator.removeprefix("Reduce").lower()
    match node.operator:
        case "ReduceL1":
            return over("sum", node.call("abs", x))
        case "ReduceL2":
            return node.call("sqrt", over("sum", node.multiply(x, x)))
        case "ReduceSumSquare":
            return over("sum", node.multiply(x, x))
        case "ReduceLogSum":
            return node.call("log", over("sum", x))
        case "ReduceLogSumExp":
            return _log_sum_exp(node, axes)
        case "ReduceMax" | "ReduceMin" if node.dtype(x) == "bool":
            return node.call("cast", over(name, node.call("cast", x, dtype="uint8")), dtype="bool")
    return over(name, x)


def _log_sum_exp(node: Node, axes: tuple[int, ...] | None) -> Expr:
    """Exponentials of distances to the largest element, so that none overflows. From an infinite
    largest element there is no distance: the elements themselves are used.
    """
    kept = bool(node.attr("keepdims", 1))

    def top(keepdims: bool) -> Expr:
        largest = node.call("max", node[0], axis=axes, keepdims=keepdims)
        return node.where(node.call("isinf", largest), np.zeros((), node.dtype(largest)), largest)

    exps = node.call("exp", node.subtract(node[0], top(True)))
    return node.add(node.call("log", node.call("sum", exps, axis=axes, keepdims=kept)), top(kept))


def _unchanged(node: Node) -> Expr:
    """A reduction over no axes, of each element by itself."""
    x = node[0]
    match node.operator:
        case "ReduceL1" | "ReduceL2":
            return node.call("abs", x)
        case "ReduceSumSquare":
            return node.multiply(x, x)
        case "ReduceLogSum":
            return node.call("log", x)
    return x


def reduction(node: Node) -> Expr:
    """A reduction; those of `_REAL` are computed in float64 for integers."""
    since = 13 if node.operator == "ReduceSum" else 18
    axes = node.moved("axes", 1, since)
    noop = node.opset >= since and not axes and node.attr("noop_with_empty_axes", 0)
    convert = _unchanged if noop else partial(_reduced, axes=axes or None)
    real = node.operator in _REAL and not dtypes.is_float(node.dtype(node[0]))
    return computed_in(node, convert, "float64") if real else convert(node)


for _name in _REDUCTIONS.split():
    converter(f"Reduce{_name}")(reduction)
for _name in ("ArgMax", "ArgMin"):
    one_call(
        _name,
        _name.lower(),
        axis=("axis", 0),
        keepdims=("keepdims", True),
        select_last=("select_last_index", False),
    )


@converter("CumSum")
@converter("CumProd")
def cumulative(node: Node) -> Expr:
    axes = node.needed(1)
    if len(axes) != 1:
        raise GraphError(f"it names {len(axes)} axes; one is needed")
    attrs = {name: bool(node.attr(name, 0)) for name in ("exclusive", "reverse")}
    return node.call(node.operator.lower(), node[0], axis=axes[0], **attrs)


def _forward(n: int, kept: int, inverse: bool) -> np.ndarray[Any, Any]:
    """The map (part, part of the result, element, frequency) of a complex transform."""
    angles = 2 * np.pi * np.outer(np.arange(n), np.arange(kept)) / n
    cosine, sine = np.cos(angles), np.sin(angles) * (-1 if inverse else 1)
    matrix = np.array([[cosine, -sine], [sine, cosine]])
    return matrix / n if inverse else matrix


def _real_again(n: int, frequencies: int) -> np.ndarray[Any, Any]:
    """The map from the first half of the frequencies to real numbers."""
    angles = 2 * np.pi * np.outer(np.arange(frequencies), np.arange(n)) / n
    twice = np.full((frequencies, 1), 2.0)
    twice[0] = 1
    if n % 2 == 0 and frequencies == n // 2 + 1:
        twice[-1] = 1
    matrix = np.array([[np.cos(angles) * twice], [-np.sin(angles) * twice]])
    return np.asarray(matrix / n)


def transformed(
    node: Node, x: Expr, axis: int, length: int | None, inverse: bool, onesided: bool
) -> Expr:
    """The discrete Fourier transform of an axis; the last axis has real and imaginary parts."""
    shape = node.shape(x)
    axis = axis_of(axis, len(shape))
    if shape[-1] not in (1, 2) or axis == len(shape) - 1:
        raise GraphError(f"axis {axis} of shape {list(shape)} is none of complex numbers")
    n = shape[axis] if length is None else length
    if n < 1 or len(shape) > 24:  # letters of an equation
        raise GraphError(f"a transform of {n} elements of {len(shape)} dimensions is not supported")
    wanted = n
    if inverse and onesided:
        n = 2 * (shape[axis] - 1) if length is None else length
        wanted = n // 2 + 1
    extent = shape[axis]
    if extent > wanted:  # crop, or pad with zeros at the end
        x = sliced(node, x, (0,), (wanted,), (axis,))
    elif extent < wanted:
        pads = [(0, wanted - extent if d == axis else 0) for d in range(len(shape))]
        x = node.call("nn.pad", x, pad_width=pads)
    check_elements((4, n, max(n, wanted)))
    if inverse and onesided:
        matrix = _real_again(n, wanted)
    else:
        matrix = _forward(n, n // 2 + 1 if onesided else n, inverse)
    if shape[-1] == 1:
        matrix = matrix[:1]
    letters = string.ascii_lowercase[: len(shape)]
    result = letters[:axis] + "Z" + letters[axis + 1 : -1] + "Y"
    equation = f"{letters},{letters[-1]}Y{letters[axis]}Z->{result}"
    return node.call("einsum", x, matrix.astype(node.dtype(x)), equation=equation)


@converter("DFT", since=17)
def dft(node: Node) -> Expr:
    axes = (node.attr("axis", 1),) if node.opset < 20 else node.numbers(2) or (-2,)
    lengths = node.numbers(1) or (None,)
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    return transformed(node, node[0], axes[0], lengths[0], inverse, onesided)


@converter("STFT", since=17)
def stft(node: Node) -> Expr:
    step, window = node.whole(1), node.optional(2)
    length = node.shape(node[2])[0] if node.optional(3) is None else node.whole(3)
    if node.rank(node[0]) != 3:
        raise GraphError(f"its signal has {node.rank(node[0])} dimensions; 3 are needed")
    total = node.shape(node[0])[1]
    if not 0 < length <= total or step < 1:
        raise GraphError(f"frames of {length}, every {step}, do not fit {total} elements")
    check_elements(((total - length) // step + 1, length))
    places = np.arange(0, total - length + 1, step)[:, None] + np.arange(length)
    frames: Expr = node.call("take", node[0], places.astype("int64"), axis=1)
    if window is not None:
        frames = node.multiply(frames, node.reshape(window, newshape=(length, 1)))
    return transformed(node, frames, 2, None, False, bool(node.attr("onesided", 1)))


@converter("Col2Im", since=18)
def columns_to_image(node: Node) -> Expr:
    """Overlap-add of blocks: a transposed convolution that mixes nothing."""
    image, block = node.needed(1), node.needed(2)
    rank, inner = len(block), prod(block)
    strides = node.each("strides", rank, 1, least=1)
    dilation = node.each("dilations", rank, 1, least=1)
    pads = node.each("pads", 2 * rank, 0)
    if node.rank(node[0]) != 3 or len(image) != rank or min(block, default=0) < 1:
        columns = list(node.shape(node[0]))
        raise GraphError(f"columns {columns} are no blocks {list(block)} of {list(image)}")
    batch, rows, _ = node.shape(node[0])
    check_elements((inner, rows))
    places, extra = [], []
    for d in range(rank):
        free = image[d] + pads[d] + pads[rank + d] - (block[d] - 1) * dilation[d] - 1
        places.append(free // strides[d] + 1)
        extra.append(free % strides[d])
    x, channels = node.reshape(node[0], newshape=(batch, rows, *places)), rows // inner
    # A weight that puts each row of a block at its own position.
    one = np.eye(inner).reshape(inner, 1, *block)
    weight = const(np.tile(one, (channels, *(1,) * (rank + 1))).astype(node.dtype(x)))
    attrs = {"strides": strides, "padding": pads, "output_padding": extra, "dilation": dilation}
    return node.call("nn.conv_transpose", x, weight, groups=channels, **attrs)


@converter("MelWeightMatrix", since=17)
def mel_weight_matrix(node: Node) -> Expr:
    """Triangular filters over the frequencies, evenly spaced on the mel scale."""
    bins, length, rate = (node.whole(n) for n in range(3))
    edges = [float(node.one(n)) for n in (3, 4)]
    if min(bins, length, rate) < 1 or not all(-700 < e < np.inf for e in edges):
        raise GraphError(f"its {bins} bins of {length} frequencies from {edges} at {rate} are none")
    check_elements((length // 2 + 1, bins))
    low, high = (2595 * np.log10(1 + e / 700) for e in edges)
    pitches = low + np.arange(bins + 2) * (high - low) / (bins + 2)
    places = ((length + 1) * 700 * (10 ** (pitches / 2595) - 1) // rate).astype("int64")
    begin, middle, end = (places[n : n + bins] for n in range(3))
    if begin.min() < 0 or places.max() > length // 2:
        raise GraphError(f"its edges {edges} are outside of {length // 2 + 1} frequencies")
    at = np.arange(length // 2 + 1)[:, None]
    up = np.where(middle > begin, (at - begin) / np.maximum(middle - begin, 1), at == middle)
    down = (end - at) / np.maximum(end - middle, 1)
    rising, falling = (at >= begin) & (at <= middle), (at >= middle) & (at < end)
    weights = np.where(falling, down, np.where(rising, up, 0))
    return const(weights.astype(dtype_of(node.attr("output_datatype", 1))))
