"""Quantised tensors: integers that represent real numbers by a scale and a zero point.

``real = (whole - zero_point) * scale`` (Jacob et al., 2018). The names are those of Relay's QNN.
"""

from __future__ import annotations

from typing import Any

from loopwright import dtypes, te
from loopwright.errors import GraphError
from loopwright.graph.op.shapes import axis_of, require_same
from loopwright.graph.registry import Pattern, register_op

#: Dtypes of quantised tensors.
WHOLE = ("int8", "uint8")
#: The most products in a sum such that sums of 255 * 128 fit int32.
LONGEST = (1 << 31) // (255 * 128) - 1


@register_op("qnn.quantize", Pattern.BROADCAST)
def quantize(
    data: te.Tensor,
    scale: te.Tensor,
    zero_point: te.Tensor,
    *,
    axis: int = -1,
    out_dtype: str = "int8",
) -> te.Tensor:
    """data / scale, rounded to even, plus the zero point, held in the range of the dtype.

    Scale (float32) and zero point (int32) are one number, or one for each index of the axis.
    """
    if out_dtype not in WHOLE:
        raise GraphError(f"quantised tensors are {' or '.join(WHOLE)}, not {out_dtype}")
    at = _parameters(data, scale, zero_point, axis)
    low, high = dtypes.limits(out_dtype)

    def value(*i: Any) -> Any:
        s, z = _of(scale, i, at), _of(zero_point, i, at)
        found = te.nearbyint(data(*i) / s) + z.astype("float32")
        return te.max(te.min(found, float(high)), float(low)).astype(out_dtype)

    tensor: te.Tensor = te.compute(data.shape, value, name="quantize")
    return tensor


@register_op("qnn.dequantize", Pattern.BROADCAST)
def dequantize(
    data: te.Tensor, scale: te.Tensor, zero_point: te.Tensor, *, axis: int = -1
) -> te.Tensor:
    """(data - zero point) * scale, as float32; both as `qnn.quantize` has them."""
    at = _parameters(data, scale, zero_point, axis)

    def value(*i: Any) -> Any:
        whole = data(*i).astype("int32") - _of(zero_point, i, at)
        return whole.astype("float32") * _of(scale, i, at)

    tensor: te.Tensor = te.compute(data.shape, value, name="dequantize")
    return tensor


def _parameters(data: te.Tensor, scale: te.Tensor, zero_point: te.Tensor, axis: int) -> int:
    """The axis counted from 0; checks that scale and zero point fit the data."""
    at = axis_of(axis, len(data.shape))
    for t, dtype in ((scale, "float32"), (zero_point, "int32")):
        if t.dtype != dtype or len(t.shape) > 1:
            raise GraphError(f"{t.name} is {dtype} of one dimension at most, got {t!r}")
        if t.shape:
            require_same(t.shape[0], data.shape[at], f"the extents of {t.name} and axis {axis}")
    return at


def _of(t: te.Tensor, index: Any, at: int) -> Any:
    return t(index[at]) if t.shape else t()
