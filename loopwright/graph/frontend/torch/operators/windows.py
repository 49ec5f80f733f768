"""Converters of convolutions, pools, padding and resizing of images."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, prod
from typing import Any

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.conversion import last_step
from loopwright.graph.frontend.torch.node import Node, converter
from loopwright.graph.frontend.torch.operators.nn import require_one_dtype, wide_sums
from loopwright.graph.ir.expr import Expr

#: One number for all dimensions of an image, one for each; an empty list is left out.
Numbers = int | Sequence[int]


def several(value: Numbers, rank: int) -> tuple[int, ...]:
    numbers = (value,) if isinstance(value, int) else tuple(value)
    return numbers * rank if len(numbers) == 1 else numbers


@converter("convolution")
def convolution(
    node: Node, x: Expr, weight: Expr, bias: Expr | None, stride: Numbers, padding: Numbers,
    dilation: Numbers, transposed: bool, output_padding: Numbers, groups: int,
) -> Expr:  # fmt: skip
    rank = node.rank(x) - 2
    if rank < 1:
        raise GraphError(f"its input has {node.rank(x)} dimensions; a batch of images has more")
    require_one_dtype(node, x, weight, bias)
    attrs: dict[str, Any] = {
        "strides": several(stride, rank),
        "padding": several(padding, rank),
        "dilation": several(dilation, rank),
        "groups": groups,
    }
    if transposed:
        attrs["output_padding"] = several(output_padding, rank)
        result = node.call("nn.conv_transpose", x, weight, **attrs)
    else:
        wide = "" if bias is None else wide_sums(node, x)
        result = node.call("nn.conv", x, weight, out_dtype=wide, **attrs)
    if bias is None:
        return result
    bias = node.cast(bias, node.dtype(result))
    return node.as_result(node.call("nn.bias_add", result, bias, axis=1))


def _window(
    node: Node, x: Expr, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers,
    ceil_mode: bool, rank: int,
) -> dict[str, tuple[int, ...]]:  # fmt: skip
    """Attributes of a pool; with ``ceil_mode`` padding behind the image for the last windows."""
    if node.rank(x) != rank + 2:
        raise GraphError(f"its input has {node.rank(x)} dimensions; give a batch, {rank + 2}")
    size, window = node.shape(x)[2:], several(kernel, rank)
    steps = several(stride, rank) if stride not in ((), []) else window
    pads, spread = several(padding, rank), several(dilation, rank)
    high = list(pads)
    for d in range(rank if ceil_mode else 0):
        reach = (window[d] - 1) * spread[d] + 1
        high[d] += last_step(size[d], reach, steps[d], pads[d], pads[d])
    return {"pool_size": window, "strides": steps, "padding": (*pads, *high), "dilation": spread}


@converter("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(
    node: Node, x: Expr, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = 0,
    dilation: Numbers = 1, ceil_mode: bool = False,
) -> list[Expr | None]:  # fmt: skip
    rank = 2 if "2d" in node.operator else 3
    attrs = _window(node, x, kernel_size, stride, padding, dilation, ceil_mode, rank)
    return [node.call("nn.max_pool", x, **attrs)]


@converter("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    node: Node, x: Expr, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Expr:  # fmt: skip
    rank = int(node.operator[-2])
    attrs = _window(node, x, kernel_size, stride, padding, 1, ceil_mode, rank)
    del attrs["dilation"]
    pads = attrs["padding"]
    if pads[:rank] != pads[rank:] and count_include_pad:
        raise GraphError("a mean over windows that leave the padded image is not supported")
    if divisor_override is None:
        return node.call("nn.avg_pool", x, **attrs, count_include_pad=count_include_pad)
    mean = node.call("nn.avg_pool", x, **attrs, count_include_pad=True)
    return node.multiply(mean, prod(attrs["pool_size"]) / divisor_override)


@converter("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(node: Node, x: Expr, output_size: Numbers) -> Expr:
    """Means of as many windows as the result has elements."""
    rank = int(node.operator[-2])
    size, wanted = node.shape(x)[-rank:], several(output_size, rank)
    if node.rank(x) != rank + 2 or any(n % w for n, w in zip(size, wanted, strict=True)):
        raise GraphError(f"windows of several sizes, as {size} to {wanted} has, are not supported")
    window = tuple(n // w for n, w in zip(size, wanted, strict=True))
    return node.call("nn.avg_pool", x, pool_size=window, strides=window)


@converter("constant_pad_nd")
def constant_pad(node: Node, x: Expr, pad: Sequence[int], value: float = 0) -> Expr:
    """Pad the last dimensions with one value; crop them where the padding is negative."""
    rank, inside = node.rank(x), x
    pairs = [(0, 0)] * (rank - len(pad) // 2)
    pairs += [(pad[n], pad[n + 1]) for n in range(len(pad) - 2, -1, -2)]
    if any(n < 0 for p in pairs for n in p):
        shape = node.shape(x)
        begin = [max(-low, 0) for low, _ in pairs]
        end = [n + min(high, 0) for n, (_, high) in zip(shape, pairs, strict=True)]
        inside = node.call("strided_slice", x, begin=begin, end=end)
    width = [(max(low, 0), max(high, 0)) for low, high in pairs]
    if not any(n for p in width for n in p):
        return inside
    return node.call("nn.pad", inside, pad_width=width, pad_value=value)


@converter(*(f"{how}_pad{rank}d" for how in ("reflection", "replication") for rank in (1, 2, 3)))
def mirrored_pad(node: Node, x: Expr, padding: Sequence[int]) -> Expr:
    """Pad the last dimensions with mirrored elements, or with copies of those at the border."""
    if any(n < 0 for n in padding):
        raise GraphError("negative padding, which takes elements away, is not supported")
    mode: Any = "reflect" if node.operator.startswith("reflection") else "edge"
    image, rank = x, node.rank(x)
    for n in range(len(padding) // 2):
        at = rank - 1 - n
        places = np.pad(np.arange(node.shape(x)[at]), padding[2 * n : 2 * n + 2], mode=mode)
        image = node.call("take", image, places, axis=at)
    return image


@converter("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def upsample_nearest(
    node: Node, x: Expr, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
) -> Expr:
    image = x
    for d, (old, new) in enumerate(zip(node.shape(x)[2:], node.extents()[2:], strict=True)):
        step = old / new if scale_factors is None else 1 / scale_factors[d]
        places = [min(floor(n * step), old - 1) for n in range(new)]
        image = node.call("take", image, np.array(places, "int64"), axis=d + 2)
    return image


@converter("upsample_bilinear2d.vec", "upsample_linear1d.vec", "upsample_trilinear3d.vec")
def upsample_linear(
    node: Node, x: Expr, output_size: Sequence[int] | None, align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Expr:  # fmt: skip
    image = x
    for d, (old, new) in enumerate(zip(node.shape(x)[2:], node.extents()[2:], strict=True)):
        step = old / new if scale_factors is None else 1 / scale_factors[d]
        places = ((np.arange(new) + 0.5) * step - 0.5).clip(0.0)
        if align_corners:
            places = np.arange(new) * ((old - 1) / (new - 1) if new > 1 else 0.0)
        low = np.minimum(np.floor(places), old - 1).astype("int64")
        taps = np.stack([low, np.minimum(low + 1, old - 1)], axis=1)
        part = places - low
        constants = (taps, node.number(np.stack([1 - part, part], axis=1), node.dtype(x)))
        image = node.call("nn.resample", image, *constants, axis=d + 2)
    return image
