"""Passes over quantised tensors: integer products, arithmetic in place of qnn, one factor each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from loopwright import dtypes
from loopwright.graph import dataflow_pattern as patterns
from loopwright.graph.infer import Types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, const
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called, post_order, rewrite_function, users
from loopwright.graph.op.narrow import BYTES, LONGEST
from loopwright.graph.op.shapes import pads_of
from loopwright.graph.passes import module_pass, typed_pass
from loopwright.graph.registry import get_op

#: Products, with the dimension of the weight that has the output channels.
CHANNELS = {"nn.conv": 0, "nn.dense": 0, "matmul": 1}
#: Products of two bytes less their zero points, of a sum at most, so that it fits int32.
_LONGEST_OF_VALUES = (1 << 31) // (255 * 255) - 1
#: Calls that choose or move elements of one input.
_MOVES = ("nn.max_pool", "reshape", "squeeze", "expand_dims", "nn.batch_flatten", "transpose")

_DATA, _OTHER = patterns.wildcard(), patterns.wildcard()
_SCALE, _ZERO, _OTHER_SCALE, _OTHER_ZERO = (patterns.is_constant() for _ in range(4))
_WEIGHT, _WEIGHT_SCALE, _WEIGHT_ZERO = (patterns.is_constant() for _ in range(3))
_QUANTIZE, _DEQUANTIZE = patterns.is_op("qnn.quantize"), patterns.is_op("qnn.dequantize")
_REAL = _DEQUANTIZE(_DATA, _SCALE, _ZERO)
_REAL_WEIGHT = _DEQUANTIZE(_WEIGHT, _WEIGHT_SCALE, _WEIGHT_ZERO)
_OTHER_REAL = _DEQUANTIZE(_OTHER, _OTHER_SCALE, _OTHER_ZERO)


def _product(m: patterns.Match) -> Expr | None:
    """The integer product in int32, by the scales of both operands."""
    root = m.call()
    name, weight = getattr(root.op, "name", ""), m.constant(_WEIGHT)
    channels = CHANNELS[name]
    scale = m.constant(_SCALE) * m.constant(_WEIGHT_SCALE)
    by_channel = m.constant(_WEIGHT_SCALE).ndim
    axis = m.attrs(_REAL_WEIGHT)["axis"] % weight.ndim
    fits = [
        m.constant(_SCALE).ndim == m.constant(_ZERO).ndim == 0,
        not m.constant(_WEIGHT_ZERO).any(),
        not by_channel or axis == channels,
        weight.size // weight.shape[channels] <= LONGEST,
        name != "matmul" or weight.ndim == 2,
        m.attrs().get("out_dtype", "") in ("", "float32"),
    ]
    if not all(fits):
        return None
    zero, rank = int(m.constant(_ZERO)), len(m.type(root).shape)
    inner = (1,) * (rank - 2) if name == "nn.conv" else ()
    total = _total(m, name, zero)
    if zero:
        # sum((x - zero) * w) is sum(x * w) - zero * sum(w).
        others = tuple(d for d in range(weight.ndim) if d != channels)
        less = -zero * weight.sum(axis=others, dtype="int32")
        total = get_op("add")(total, const(less.astype("int32").reshape(-1, *inner)))
    factor = scale.reshape(-1, *inner) if by_channel else scale
    real = get_op("cast")(total, dtype="float32")
    return get_op("multiply")(real, const(factor.astype("float32")), span=root.span)


def _total(m: patterns.Match, name: str, zero: int) -> Expr:
    """The sums of products; the image of a convolution is padded with its zero point."""
    attrs, data = dict(m.attrs()), m[_DATA]
    if name == "nn.conv" and zero:
        pads = pads_of(attrs["padding"], len(m.type(_DATA).shape) - 2)
        if any(pair != (0, 0) for pair in pads):
            data = get_op("nn.pad")(data, pad_width=((0, 0), (0, 0), *pads), pad_value=float(zero))
            attrs["padding"] = 0
    attrs["out_dtype"] = "int32"
    return get_op(name)(data, m[_WEIGHT], span=m.root.span, **attrs)


def _product_of_values(m: patterns.Match) -> Expr | None:
    """A product of two values, such as those of attention, by one scale of each."""
    root = m.call()
    shapes = [m.type(_DATA).shape, m.type(_OTHER).shape]
    count = shapes[0][-1] if shapes[0] else 0
    parameters = [m.constant(p) for p in (_SCALE, _ZERO, _OTHER_SCALE, _OTHER_ZERO)]
    fits = [
        all(p.ndim == 0 for p in parameters),
        all(len(shape) >= 2 for shape in shapes),
        all(m.type(part).dtype in BYTES for part in (_DATA, _OTHER)),
        m.attrs().get("out_dtype", "") in ("", "float32"),
    ]
    if not all(fits) or not isinstance(count, int) or count > _LONGEST_OF_VALUES:
        return None
    left, zero = _as_bytes(m, _DATA, int(parameters[1]), "uint8")
    right, other_zero = _as_bytes(m, _OTHER, int(parameters[3]), "int8")
    total = get_op("matmul")(left, right, out_dtype="int32", span=root.span)
    # sum((a - y) * (b - z)) is sum(a * b) - y * sum(b) - z * sum(a) + y * z * how many there are.
    for less, of, axis in ((zero, right, -2), (other_zero, left, -1)):
        if less:
            sums = get_op("sum")(get_op("cast")(of, dtype="int32"), axis=axis, keepdims=True)
            total = get_op("subtract")(total, get_op("multiply")(sums, const(less, "int32")))
    if zero and other_zero:
        total = get_op("add")(total, const(zero * other_zero * count, "int32"))
    factor = parameters[0] * parameters[2]
    real = get_op("cast")(total, dtype="float32")
    return get_op("multiply")(real, const(factor.astype("float32")), span=root.span)


def _as_bytes(
    m: patterns.Match, part: patterns.DFPattern, zero: int, dtype: str
) -> tuple[Expr, int]:
    """Integers in the dtype that the CPU's instructions take, and the zero point there."""
    if m.type(part).dtype == dtype:
        return m[part], zero
    move = 128 if dtype == "uint8" else -128
    wide = get_op("add")(get_op("cast")(m[part], dtype="int32"), const(move, "int32"))
    return get_op("cast")(wide, dtype=dtype), zero + move


_MOVED, _LIMIT = patterns.is_op(*_MOVES)(patterns.wildcard()), patterns.is_constant()
_LIMITED = patterns.is_op("nn.relu")(_DATA) | patterns.is_op("maximum", "minimum")(_DATA, _LIMIT)


def _one_number(m: patterns.Match) -> bool:
    return not (m.constant(_SCALE).ndim or m.constant(_ZERO).ndim)


def _quantized_first(m: patterns.Match) -> Expr | None:
    """Quantise elements before they are moved: quantisation keeps their order."""
    if not _one_number(m):
        return None
    moved = m.call(_MOVED)
    attrs = {**m.attrs(), "axis": -1}
    inner = get_op("qnn.quantize")(moved.args[0], m[_SCALE], m[_ZERO], span=m.root.span, **attrs)
    return replace(moved, args=(inner,))


_MOVED_REAL = patterns.is_op(*_MOVES)(_REAL)


def _dequantized_last(m: patterns.Match) -> Expr | None:
    if not _one_number(m):
        return None
    root = m.call()
    moved = replace(root, args=(m[_DATA],))
    return get_op("qnn.dequantize")(moved, m[_SCALE], m[_ZERO], span=root.span)


_AGAIN_SCALE, _AGAIN_ZERO = patterns.is_constant(), patterns.is_constant()


def _there_and_back(m: patterns.Match) -> Expr | None:
    """Remove a dequantisation followed by the same quantisation."""
    first, again = m.constant(_SCALE), m.constant(_AGAIN_SCALE)
    same = np.array_equal(first, again)
    same = same and np.array_equal(m.constant(_ZERO), m.constant(_AGAIN_ZERO))
    same = same and m.attrs()["out_dtype"] == m.type(_DATA).dtype
    return m[_DATA] if same and _one_number(m) else None


def _held_anyway(m: patterns.Match) -> Expr | None:
    """Remove a limit that the range of the integers implies."""
    limit = m.constant(_LIMIT) if _LIMIT in m else np.zeros(())
    if not _one_number(m) or limit.ndim or not m.constant(_SCALE) > 0:
        return None
    low, high = dtypes.limits(m.attrs()["out_dtype"])
    whole = np.rint(limit / m.constant(_SCALE)) + m.constant(_ZERO)
    held = whole >= high if called(m[_LIMITED]) == "minimum" else whole <= low
    return replace(m.call(), args=(m[_DATA], *m.call().args[1:])) if held else None


#: In the order in which they are tried.
RULES = (
    patterns.Rule(patterns.is_op(*CHANNELS)(_REAL, _REAL_WEIGHT), _product),
    patterns.Rule(patterns.is_op("matmul")(_REAL, _OTHER_REAL), _product_of_values),
    patterns.Rule(_QUANTIZE(_REAL, _AGAIN_SCALE, _AGAIN_ZERO), _there_and_back),
    patterns.Rule(_QUANTIZE(_LIMITED, _SCALE, _ZERO), _held_anyway),
    patterns.Rule(_QUANTIZE(_MOVED, _SCALE, _ZERO), _quantized_first),
    patterns.Rule(_MOVED_REAL, _dequantized_last),
)


@module_pass(opt_level=1)
def FakeQuantizationToInteger(module: IRModule) -> IRModule:
    """Write products of dequantised data and weights as products of whole numbers in int32.

    The weight is a constant with the zero point 0, and one scale or one for each output channel;
    the data have one scale and one zero point, which are constants, as have both operands of a
    `matmul` of two values: there sums of either operand make up for the zero point of the other.
    What moves elements, a pool of the largest among it, works on whole numbers. The name is that of
    TVM's pass: ``dense(dequantize(x, 0.5, 3), dequantize(w, 0.25, 0))`` becomes
    ``cast(dense(x, w) + const, float32) * 0.125``, with a product in int32.
    """
    return patterns.rewrite(RULES, module)


_VALUES, _ANY_SCALE, _ANY_ZERO = patterns.wildcard(), patterns.wildcard(), patterns.wildcard()


def _spread(m: patterns.Match, e: Expr) -> Expr:
    """A scale or a zero point in a shape that is broadcast over the data."""
    if not m.type(e).shape:
        return e
    rank = len(m.type(_VALUES).shape)
    inner = rank - 1 - m.attrs()["axis"] % rank
    if isinstance(e, Constant):
        return const(e.data.reshape(-1, *(1,) * inner))
    return get_op("reshape")(e, newshape=(-1, *(1,) * inner)) if inner else e


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Constant) and not e.data.any()


def _quantized(m: patterns.Match) -> Expr:
    scale, dtype = _spread(m, m[_ANY_SCALE]), m.attrs()["out_dtype"]
    whole = get_op("round")(get_op("divide")(m[_VALUES], scale))
    if not _is_zero(m[_ANY_ZERO]):
        whole = get_op("add")(whole, get_op("cast")(_spread(m, m[_ANY_ZERO]), dtype="float32"))
    return get_op("cast")(whole, dtype=dtype)  # a cast holds numbers in the range of its dtype


def _dequantized(m: patterns.Match) -> Expr:
    whole = m[_VALUES]
    if not _is_zero(m[_ANY_ZERO]):
        whole = get_op("subtract")(get_op("cast")(whole, dtype="int32"), _spread(m, m[_ANY_ZERO]))
    return get_op("multiply")(get_op("cast")(whole, dtype="float32"), _spread(m, m[_ANY_SCALE]))


_CANONICAL = (
    patterns.Rule(patterns.is_op("qnn.quantize")(_VALUES, _ANY_SCALE, _ANY_ZERO), _quantized),
    patterns.Rule(patterns.is_op("qnn.dequantize")(_VALUES, _ANY_SCALE, _ANY_ZERO), _dequantized),
)


@module_pass(opt_level=0)
def QnnCanonicalize(module: IRModule) -> IRModule:
    """Write ``qnn.quantize`` and ``qnn.dequantize`` as the arithmetic that they are.

    The name is that of TVM's pass. ``quantize(x, 0.5, 3)`` of uint8 becomes
    ``cast(round(x / 0.5) + cast(3, float32), uint8)``.
    """
    return patterns.rewrite(_CANONICAL, module)


#: Calls whose result is scaled as their operands are, where the factor is above 0.
_ALIKE = ("add", "subtract", "maximum", "minimum", "nn.relu")


@typed_pass(opt_level=1)
def FoldRequantize(f: Function, types: Types) -> Function:
    """Write ``round((x * factor + bias) / scale)`` as ``round(x * factor' + bias')``.

    Where whole numbers became real ones by a constant factor, and become whole ones again, by one
    constant scale, after sums and limits by constants, or a sum with other such numbers, and
    nothing else reads what lies between. A division of each element is saved. Rounding differs in
    the last places of the float, so that a result may differ by 1 where it lies between two whole
    numbers; Jacob et al. (2018) have one factor in place of both scales as well. So
    ``round((cast(x) * 0.5 + 3) / 2)`` becomes ``round(cast(x) * 0.25 + 1.5)``.
    """
    readers = users(post_order(f))

    def scaled(old: Expr, new: Expr, by: float) -> Expr | None:
        """An expression divided by a number; None where that cannot be folded in."""
        if isinstance(new, Constant):
            return _divided(new, by)
        if not isinstance(old, Call) or not isinstance(new, Call) or len(readers[old]) != 1:
            return None
        name = called(new)
        if name == "multiply":
            whole, factor = new.args
            if called(whole) != "cast" or not isinstance(whole, Call):
                return None
            if not dtypes.is_int(types.tensor(whole.args[0]).dtype):
                return None
            less = _divided(factor, by) if isinstance(factor, Constant) else None
            return None if less is None else replace(new, args=(whole, less))
        if name not in _ALIKE:
            return None
        each = [scaled(a, b, by) for a, b in zip(old.args, new.args, strict=True)]
        args = tuple(e for e in each if e is not None)
        return replace(new, args=args) if len(args) == len(each) else None

    def change(old: Expr, new: Expr) -> Expr:
        if called(new) != "round" or not isinstance(old, Call) or not isinstance(new, Call):
            return new
        whole, divided = old.args[0], new.args[0]
        if called(divided) != "divide" or len(readers[whole]) != 1:
            return new
        assert isinstance(whole, Call)
        assert isinstance(divided, Call)
        scale = divided.args[1]
        if not isinstance(scale, Constant) or scale.data.ndim or not scale.data > 0:
            return new
        inner = scaled(whole.args[0], divided.args[0], float(scale.data))
        return new if inner is None else replace(new, args=(inner,))

    return rewrite_function(f, change)


def _divided(c: Constant, by: float) -> Constant | None:
    """A constant divided by a number; None where that overflows its dtype."""
    with np.errstate(over="ignore"):
        quotient = (c.data.astype("float64") / by).astype(c.data.dtype)
    return const(quotient) if np.isfinite(quotient).all() else None
