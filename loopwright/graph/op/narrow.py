"""Numbers of few bits: floats of 8 and 4 bits as stored, and quantised integers.

The formats are those of Micikevicius et al. (2022), of Noune et al. (2022; ``fnuz``) and of the OCP
Microscaling Formats (2023; `float4_e2m1fn`, the scale `float8_e8m0fnu`), named as in ml_dtypes.
Quantised integers are ``real = (whole - zero_point) * scale`` (Jacob et al., 2018), as in Relay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopwright import dtypes, te
from loopwright.errors import GraphError, did_you_mean
from loopwright.graph.op.shapes import axis_of, require_same
from loopwright.graph.registry import Pattern, register_op
from loopwright.ops import compute

#: Bits of the fraction and bias of the exponent of float32.
_FRACTION, _BIAS = 23, 127


@dataclass(frozen=True)
class Format:
    width: int  # bits
    fraction: int  # bits of the fraction
    bias: int  # of the exponent
    largest: int  # bits of the largest finite number
    nan: int | None  # bits of NaN, without its sign; None where there is none
    over: int  # bits of the result of an overflow that does not saturate, without its sign
    signed_zero: bool  # where there is no -0, its bits are the only NaN
    infinite: bool = False  # whether ``over`` is an infinity

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)


FORMATS = {
    "float8_e4m3fn": Format(8, 3, 7, 0x7E, 0x7F, 0x7F, True),
    "float8_e4m3fnuz": Format(8, 3, 8, 0x7F, 0x80, 0x80, False),
    "float8_e5m2": Format(8, 2, 15, 0x7B, 0x7E, 0x7C, True, infinite=True),
    "float8_e5m2fnuz": Format(8, 2, 16, 0x7F, 0x80, 0x80, False),
    "float4_e2m1fn": Format(4, 1, 1, 0x7, None, 0x7, True),
}
#: Powers of two alone: an exponent of 8 bits with the bias of float32.
SCALE = "float8_e8m0fnu"
ROUNDINGS = ("up", "down")


def _format(name: str) -> Format | None:
    """The format of a name; None for powers of two alone."""
    if name not in FORMATS and name != SCALE:
        names = [*FORMATS, SCALE]
        raise GraphError(
            f"there is no format {name!r}{did_you_mean(name, names)}; use one of {', '.join(names)}"
        )
    return FORMATS.get(name)


@register_op("decode_float", Pattern.ELEMENTWISE)
def decode_float(data: te.Tensor, *, dtype: str) -> te.Tensor:
    """The bits (uint8) of floats of a format as float32."""
    _require(data, "uint8", "decode_float")
    f = _format(dtype)

    def value(*i: Any) -> Any:
        bits = data(*i).astype("int32")
        return _power(bits) if f is None else _number(bits, f)

    return compute(data.shape, value, name="decoded")


@register_op("encode_float", Pattern.ELEMENTWISE)
def encode_float(
    data: te.Tensor, *, dtype: str, saturate: bool = True, rounding: str = "up"
) -> te.Tensor:
    """float32 as the bits (uint8) of a format, rounded to even; ``saturate`` holds what is too big.

    ``rounding`` is that of powers of two alone, away from or towards zero.
    """
    _require(data, "float32", "encode_float")
    f = _format(dtype)
    if rounding not in ROUNDINGS:
        raise GraphError(f"rounding is {rounding!r}; there are {', '.join(ROUNDINGS)}")

    def value(*i: Any) -> Any:
        x = data(*i)
        whole = _exponent(x, saturate, rounding == "up") if f is None else _bits(x, f, saturate)
        return whole.astype("uint8")

    return compute(data.shape, value, name="encoded")


def _require(data: te.Tensor, dtype: str, name: str) -> None:
    if data.dtype != dtype:
        raise GraphError(f"{name} takes {dtype}, got {data.dtype}; cast it")


def _number(bits: Any, f: Format) -> Any:
    """Decode bits; without an exponent they count in the smallest step."""
    rest = te.bitwise_and(bits, f.sign - 1)
    moved = te.shift_left(rest, _FRACTION - f.fraction) + ((_BIAS - f.bias) << _FRACTION)
    small = rest.astype("float32") * 2.0 ** (1 - f.bias - f.fraction)
    size = te.if_then_else(rest < 1 << f.fraction, small, te.reinterpret("float32", moved))
    nan = te.const(float("nan"), "float32")
    if f.nan is not None and f.signed_zero:
        infinity = te.const(float("inf"), "float32")
        beyond = te.if_then_else(te.equal(rest, f.over), infinity, nan) if f.infinite else nan
        size = te.if_then_else(rest > f.largest, beyond, size)
    number = te.if_then_else(te.equal(te.bitwise_and(bits, f.sign), 0), size, -size)
    if f.nan is not None and not f.signed_zero:
        number = te.if_then_else(te.equal(bits, f.nan), nan, number)
    return number


def _bits(x: Any, f: Format, saturate: bool) -> Any:
    """Encode a number, rounded to the nearest, ties to even."""
    all_bits = te.reinterpret("int32", x)
    size_bits = te.bitwise_and(all_bits, 0x7FFFFFFF)
    size = te.reinterpret("float32", size_bits)
    gone = _FRACTION - f.fraction
    odd = te.bitwise_and(te.shift_right(size_bits, gone), 1)
    rounded = te.shift_right(size_bits + ((1 << (gone - 1)) - 1) + odd, gone)
    normal = rounded - ((_BIAS - f.bias) << f.fraction)
    steps = te.min(size, 2.0 ** (1 - f.bias)) * 2.0 ** (f.bias - 1 + f.fraction)
    small = te.nearbyint(steps).astype("int32")
    code = te.if_then_else(size < 2.0 ** (1 - f.bias), small, normal)
    code = te.if_then_else(code > f.largest, f.largest if saturate else f.over, code)
    if f.nan is None:
        code = te.if_then_else(te.isnan(x), 0, code)
    elif f.signed_zero:
        code = te.if_then_else(te.isnan(x), f.nan, code)
    signed = te.if_then_else(all_bits < 0, code + f.sign, code)
    if f.signed_zero:
        return signed
    # The bits of -0 are NaN: zeros lose their sign.
    alone = te.any(te.equal(code, 0), te.equal(code, f.sign))
    return te.if_then_else(te.isnan(x), f.sign, te.if_then_else(alone, code, signed))


def _power(bits: Any) -> Any:
    """2 ** (bits - 127); 255 is NaN, and 0 has half the smallest exponent of float32."""
    shifted = te.shift_left(bits, _FRACTION)
    smallest = te.const(1 << (_FRACTION - 1), "int32")
    number = te.reinterpret("float32", te.if_then_else(te.equal(bits, 0), smallest, shifted))
    return te.if_then_else(te.equal(bits, 255), te.const(float("nan"), "float32"), number)


def _exponent(x: Any, saturate: bool, up: bool) -> Any:
    """The exponent of a number, rounded; its sign is lost, infinities and NaN become NaN."""
    size_bits = te.bitwise_and(te.reinterpret("int32", x), 0x7FFFFFFF)
    exponent = te.shift_right(size_bits, _FRACTION)
    rest = te.bitwise_and(size_bits, (1 << _FRACTION) - 1)
    if not up:
        return exponent
    more = te.if_then_else(rest > 0, exponent + 1, exponent)
    held = te.min(more, 254) if saturate else more
    return te.if_then_else(te.equal(exponent, 255), 255, held)


@register_op("wrap_integer", Pattern.ELEMENTWISE)
def wrap_integer(data: te.Tensor, *, bits: int, signed: bool) -> te.Tensor:
    """The lowest bits of int32, as int8 where they have a sign, else as uint8."""
    _require(data, "int32", "wrap_integer")
    if not 1 <= bits <= 8:
        raise GraphError(f"wrap_integer keeps 1 to 8 bits, got {bits}")
    top = 1 << (bits - 1)

    def value(*i: Any) -> Any:
        low = te.bitwise_and(data(*i), 2 * top - 1)
        return (te.bitwise_xor(low, top) - top).astype("int8") if signed else low.astype("uint8")

    return compute(data.shape, value, name="wrapped")


#: Dtypes of quantised tensors.
BYTES = ("int8", "uint8")
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
    if out_dtype not in BYTES:
        raise GraphError(f"quantised tensors are {' or '.join(BYTES)}, not {out_dtype}")
    at = _parameters(data, scale, zero_point, axis)
    low, high = dtypes.limits(out_dtype)

    def value(*i: Any) -> Any:
        s, z = _of(scale, i, at), _of(zero_point, i, at)
        whole = te.nearbyint(data(*i) / s) + z.astype("float32")
        return te.max(te.min(whole, float(high)), float(low)).astype(out_dtype)

    return compute(data.shape, value, name="quantize")


@register_op("qnn.dequantize", Pattern.BROADCAST)
def dequantize(
    data: te.Tensor, scale: te.Tensor, zero_point: te.Tensor, *, axis: int = -1
) -> te.Tensor:
    """(data - zero point) * scale, as float32; both as `qnn.quantize` has them."""
    at = _parameters(data, scale, zero_point, axis)

    def value(*i: Any) -> Any:
        whole = data(*i).astype("int32") - _of(zero_point, i, at)
        return whole.astype("float32") * _of(scale, i, at)

    return compute(data.shape, value, name="dequantize")


def _parameters(data: te.Tensor, scale: te.Tensor, zero_point: te.Tensor, axis: int) -> int:
    """The axis counted from 0; checks that scale and zero point fit the data."""
    rank = len(data.shape)
    for t, dtype in ((scale, "float32"), (zero_point, "int32")):
        if t.dtype != dtype or len(t.shape) > 1:
            raise GraphError(f"{t.name} is {dtype} of one dimension at most, got {t!r}")
        if t.shape:
            at = axis_of(axis, rank)
            require_same(t.shape[0], data.shape[at], f"the extents of {t.name} and axis {axis}")
    return axis_of(axis, rank or 1)


def _of(t: te.Tensor, index: Any, at: int) -> Any:
    return t(index[at]) if t.shape else t()
