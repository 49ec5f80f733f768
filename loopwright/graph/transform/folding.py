"""Passes that compute constants, and fold factors of channels into weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from loopwright import dtypes
from loopwright.graph.infer import Types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, OpRef, TensorType, Type, const
from loopwright.graph.ir.visitor import called, post_order, rewrite_function, users
from loopwright.graph.kernels import evaluate
from loopwright.graph.passes import typed_pass
from loopwright.graph.registry import get_op

#: A result that is larger than what it is computed from, and than so many elements, stays a
#: computation: a broadcast constant would fill the file of the model.
_LARGE = 1 << 16


@typed_pass(opt_level=2)
def FoldConstant(f: Function, types: Types) -> Function:
    """Replace calls of operators over constants by their values."""
    constant: set[Expr] = set()
    order = post_order(f)
    for e in order:
        if isinstance(e, Constant) or (called(e) is not None and _is_known(e, constant, types)):
            constant.add(e)
    readers = users(order)
    # Values that something else reads; what lies between them needs none.
    wanted = [e for e in order if e in constant and not isinstance(e, Constant)]
    wanted = [e for e in wanted if any(r not in constant for r in readers[e])]
    if not wanted:
        return f
    values = dict(zip(wanted, map(const, evaluate(wanted)), strict=True))
    return rewrite_function(f, lambda _, e: values.get(e, e))


def _is_known(e: Expr, constant: set[Expr], types: Types) -> bool:
    *args, _ = e.children
    if not all(a in constant for a in args):
        return False
    size, largest = _elements(types[e]), max((_elements(types[a]) for a in args), default=0)
    return 0 < size <= max(_LARGE, largest)


def _elements(t: Type) -> int:
    """The number of elements of a tensor; 0 where that is not known, or it is no tensor."""
    if not isinstance(t, TensorType):
        return 0
    return prod(n if isinstance(n, int) else 0 for n in t.shape)


#: Products whose weight has the output channels first, and which dimension of the result they are.
CHANNELS = {"nn.conv": 1, "nn.dense": -1}


@typed_pass(opt_level=2)
def FoldScaleAxis(f: Function, types: Types) -> Function:
    """Write ``product(data, weight) * factor`` as ``product(data, weight * factor)``.

    Where the weight and the factor are constants, the factor is one for each output channel, and
    nothing else reads the product. Rounding differs in the last places, as it does when products
    are added up in another order, and a sum near the limits of its dtype may be infinite on one
    side alone, so that only targets with ``-fastmath`` ask for it.
    """
    readers = users(post_order(f))

    def change(old: Expr, new: Expr) -> Expr:
        if called(old) != "multiply" or not isinstance(old, Call) or not isinstance(new, Call):
            return new
        for n in (0, 1):
            product, factor = new.args[n], new.args[1 - n]
            if len(readers[old.args[n]]) == 1 and isinstance(factor, Constant):
                scaled = _scaled(product, factor, types[old], types[old.args[n]])
                if scaled is not None:
                    return scaled
        return new

    return rewrite_function(f, change)


def _scaled(product: Expr, factor: Constant, result: Type, own: Type) -> Expr | None:
    """The product with a scaled weight; None where the factor cannot be folded in."""
    name = called(product)
    if name not in CHANNELS or not isinstance(product, Call) or result != own:
        return None
    weight = product.args[1]
    if not isinstance(weight, Constant) or not isinstance(own, TensorType):
        return None
    rank, channels = len(own.shape), weight.data.shape[0]
    at = CHANNELS[name] % rank
    shape = (1,) * (rank - factor.data.ndim) + factor.data.shape
    if any(n != 1 for d, n in enumerate(shape) if d != at) or shape[at] not in (1, channels):
        return None
    column = factor.data.reshape(-1, *(1,) * (weight.data.ndim - 1))
    data = (weight.data * column).astype(weight.data.dtype)
    return replace(product, args=(product.args[0], const(data, name=weight.name)))


@typed_pass(opt_level=0)
def SimplifyInference(f: Function, types: Types) -> Function:
    """Write every ``nn.batch_norm`` as ``data * scale + shift``, in float32 where it is narrower.

    The scale is gamma / sqrt(variance + epsilon), the shift beta - mean * scale. Both are constants
    where the parameters are, so that FoldConstant computes them. Where the data are a product with
    a constant weight that nothing else reads, and have the axis of its output channels, the weight
    is scaled: sums of products round elsewhere, as when they are added up in another order.
    """
    readers = users(post_order(f))

    def change(old: Expr, new: Expr) -> Expr:
        if called(new) != "nn.batch_norm":
            return new
        assert isinstance(old, Call)
        assert isinstance(new, Call)
        return _scale_and_shift(new, types.tensor(old.args[0]), len(readers[old.args[0]]) == 1)

    return rewrite_function(f, change)


def _scale_and_shift(call: Call, data_type: TensorType, alone: bool) -> Expr:
    add, multiply, subtract, cast = (get_op(n) for n in ("add", "multiply", "subtract", "cast"))
    rank, dtype = len(data_type.shape), data_type.dtype
    axis, epsilon = call.attrs["axis"] % rank, call.attrs["epsilon"]
    narrow = dtype in dtypes.HALVES
    args = [cast(e, dtype="float32") for e in call.args] if narrow else call.args
    data, gamma, beta, mean, variance = args
    inner = range(1, rank - axis)  # dimensions behind the channels

    shifted = add(variance, const(epsilon, "float32" if narrow else dtype))
    scale = multiply(gamma, get_op("rsqrt")(shifted))
    shift = _spread(subtract(beta, multiply(mean, scale)), inner)
    scaled = _with_scaled_weight(data, scale, axis, rank) if alone else None
    if scaled is None:
        scaled = multiply(data, _spread(scale, inner), span=call.span)
    result = add(scaled, shift, span=call.span)
    return cast(result, dtype=dtype, span=call.span) if narrow else result


def _spread(e: Expr, axes: Sequence[int]) -> Expr:
    return get_op("expand_dims")(e, axis=tuple(axes)) if axes else e


def _with_scaled_weight(data: Expr, scale: Expr, axis: int, rank: int) -> Expr | None:
    """A product with a scaled weight; None where the data are none, or have another axis."""
    at = CHANNELS.get(called(data) or "")
    if at is None or at % rank != axis or not isinstance(data, Call):
        return None
    weight = data.args[1]
    leaves = [e for e in post_order(scale) if not isinstance(e, (Call, OpRef))]
    if not isinstance(weight, Constant) or not all(isinstance(e, Constant) for e in leaves):
        return None
    column = _spread(scale, range(1, len(weight.data.shape)))
    return replace(data, args=(data.args[0], get_op("multiply")(weight, column)))
