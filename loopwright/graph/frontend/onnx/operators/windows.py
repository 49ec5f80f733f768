"""Converters of convolutions and pools over images of any rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.conversion import last_step
from loopwright.graph.frontend.onnx.node import Node, converter
from loopwright.graph.ir.expr import Expr, TupleGetItem, const


@dataclass(frozen=True)
class WindowAttributes:
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]  # elements before and after each dimension
    #: elements after each dimension that only ``ceil_mode`` asks for; they count for nothing
    more: tuple[int, ...]

    @property
    def attrs(self) -> dict[str, Any]:
        low = tuple(p[0] for p in self.pads)
        high = tuple(p[1] + m for p, m in zip(self.pads, self.more, strict=True))
        return {"strides": self.strides, "dilation": self.dilation, "padding": (*low, *high)}


def window_of(node: Node, kernel: Sequence[int], size: Sequence[int]) -> WindowAttributes:
    rank = len(size)
    if len(kernel) != rank:
        raise GraphError(f"its window {list(kernel)} is of other dimensions than {list(size)}")
    strides = node.each("strides", rank, 1, least=1)
    dilation = node.each("dilations", rank, 1, least=1)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    pads = _pads(node, size, reach, strides)
    more = (0,) * rank
    if node.attr("ceil_mode", 0):
        parts = zip(size, reach, strides, pads, strict=True)
        more = tuple(last_step(n, r, s, low, high) for n, r, s, (low, high) in parts)
    return WindowAttributes(tuple(kernel), strides, dilation, pads, more)


def _pads(
    node: Node, size: Sequence[int], reach: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    rank, how = len(reach), node.attr("auto_pad", "NOTSET")
    if how in ("NOTSET", ""):
        pads = node.each("pads", 2 * rank, 0)
        return tuple(zip(pads[:rank], pads[rank:], strict=True))
    if how == "VALID":
        return ((0, 0),) * rank
    if how not in ("SAME_UPPER", "SAME_LOWER"):
        raise GraphError(f"its auto_pad is {how!r}; there are NOTSET, VALID and SAME_*")
    pairs = []
    for n, r, s in zip(size, reach, strides, strict=True):
        whole = max((-(-n // s) - 1) * s + r - n, 0)
        less, rest = whole // 2, whole - whole // 2
        pairs.append((less, rest) if how == "SAME_UPPER" else (rest, less))
    return tuple(pairs)


@converter("Conv")
def conv(node: Node) -> Expr:
    size, kernel = node.shape(node[0], 2), node.shape(node[1], 2)
    attrs = window_of(node, kernel, size).attrs
    product: Expr = node.call("nn.conv", node[0], node[1], groups=node.attr("group", 1), **attrs)
    return biased(node, product, 2)


def biased(node: Node, x: Expr, index: int) -> Expr:
    """Add a number for each channel, where the node has that input."""
    bias = node.optional(index)
    return x if bias is None else node.call("nn.bias_add", x, bias, axis=1)


@converter("ConvTranspose")
def conv_transpose(node: Node) -> Expr:
    size, kernel = node.shape(node[0], 2), node.shape(node[1], 2)
    rank = len(kernel)
    strides = node.each("strides", rank, 1, least=1)
    dilation = node.each("dilations", rank, 1, least=1)
    extra = node.each("output_padding", rank, 0)
    pads = node.each("pads", 2 * rank, 0)
    wanted, how = node.attr("output_shape"), node.attr("auto_pad", "NOTSET")
    if len(size) != rank or (wanted is not None and len(wanted) < rank):
        raise GraphError(f"its weight has {rank} dimensions of images of {len(size)}")
    full = [
        s * (n - 1) + e + (k - 1) * d + 1
        for n, k, s, d, e in zip(size, kernel, strides, dilation, extra, strict=True)
    ]
    if wanted is not None or how.startswith("SAME"):
        result = [n * s for n, s in zip(size, strides, strict=True)] if wanted is None else wanted
        whole = [f - r for f, r in zip(full, result[-rank:], strict=True)]
        low = [n // 2 if how == "SAME_UPPER" else n - n // 2 for n in whole]
        pads = (*low, *(n - x for n, x in zip(whole, low, strict=True)))
    # The result is longer than the windows reach where padding is negative.
    extra = tuple(e + max(-p, 0) for e, p in zip(extra, pads[rank:], strict=True))
    pads = (*pads[:rank], *(max(p, 0) for p in pads[rank:]))
    if any(p < 0 for p in pads):
        raise GraphError(f"its result is wider than its windows reach: padding {pads}")
    attrs = {"strides": strides, "padding": pads, "output_padding": extra, "dilation": dilation}
    attrs["groups"] = node.attr("group", 1)
    return biased(node, node.call("nn.conv_transpose", node[0], node[1], **attrs), 2)


def _pooling(node: Node) -> WindowAttributes:
    size = node.shape(node[0], 2)
    return window_of(node, node.each("kernel_shape", len(size), least=1), size)


@converter("MaxPool")
def max_pool(node: Node) -> list[Expr]:
    window = _pooling(node)
    attrs = {"pool_size": window.kernel, **window.attrs}
    if len(node.outputs) < 2 or not node.outputs[1]:
        return [node.call("nn.max_pool", node[0], **attrs)]
    order = bool(node.attr("storage_order", 0))
    both = node.call("nn.max_pool_places", node[0], column_major=order, **attrs)
    return [TupleGetItem(both, 0), TupleGetItem(both, 1)]


@converter("AveragePool")
def average_pool(node: Node) -> Expr:
    window = _pooling(node)
    counted = bool(node.attr("count_include_pad", 0))
    plain = all(d == 1 for d in window.dilation)
    if plain and not any(window.more):
        attrs = {k: v for k, v in window.attrs.items() if k != "dilation"}
        size = {"pool_size": window.kernel, "count_include_pad": counted}
        return node.call("nn.avg_pool", node[0], **size, **attrs)
    total = node.call("nn.sum_pool", node[0], pool_size=window.kernel, **window.attrs)
    share = np.ones((), "float64")
    for d, n in enumerate(node.shape(node[0], 2)):  # along which some elements count
        low, high = window.pads[d]
        taps = np.arange(window.kernel[d]) * window.dilation[d]
        steps = np.arange(node.shape(total)[2 + d])[:, None]
        at = steps * window.strides[d] + taps - low
        first, last = (-low, n + high) if counted else (0, n)
        share = share[..., None] / ((at >= first) & (at < last)).sum(axis=1)
    return node.multiply(total, share[None, None].astype(node.dtype(total)))


@converter("LpPool")
@converter("GlobalLpPool")
def lp_pool(node: Node) -> Expr:
    """The p-norm of each window, or of each channel."""
    p, powers = node.attr("p", 2), node.call("abs", node[0])
    if p < 1:
        raise GraphError(f"its p is {p}; give a number from 1 on")
    powers = powers if p == 1 else node.call("power", powers, float(p))
    if node.operator == "LpPool":
        window = _pooling(node)
        total = node.call("nn.sum_pool", powers, pool_size=window.kernel, **window.attrs)
    else:
        axes = tuple(range(2, node.rank(node[0])))
        total = node.call("sum", powers, axis=axes, keepdims=True)
    return total if p == 1 else node.call("power", total, 1 / p)


@converter("GlobalAveragePool")
@converter("GlobalMaxPool")
def global_pool(node: Node) -> Expr:
    name = "max" if node.operator == "GlobalMaxPool" else "mean"
    axes = tuple(range(2, node.rank(node[0])))
    return node.call(name, node[0], axis=axes, keepdims=True)


@converter("MaxUnpool", since=9)
def max_unpool(node: Node) -> Expr:
    """Elements at the indices where a pool found them, 0 elsewhere."""
    old = node.shape(node[0])
    rank = len(old) - 2
    kernel = node.each("kernel_shape", rank, least=1)
    strides = node.each("strides", rank, 1, least=1)
    pads = node.each("pads", 2 * rank, 0)
    along = zip(old[2:], strides, kernel, pads[:rank], pads[rank:], strict=True)
    shape = (*old[:2], *((n - 1) * s + k - low - high for n, s, k, low, high in along))
    zeros = node.call("broadcast_to", const(0, node.dtype(node[0])), shape=(prod(shape),))
    flat = [node.reshape(node[n], newshape=(-1,)) for n in (1, 0)]
    image = node.reshape(node.call("scatter_elements", zeros, *flat), newshape=shape)
    wanted = node.numbers(2) or shape
    if len(wanted) != len(shape) or any(w < n for w, n in zip(wanted, shape, strict=True)):
        raise GraphError(f"its output_shape {wanted} is smaller than {shape}")
    width = [(0, w - n) for w, n in zip(wanted, shape, strict=True)]
    return node.call("nn.pad", image, pad_width=width)
