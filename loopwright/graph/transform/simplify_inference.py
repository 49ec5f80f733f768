"""SimplifyInference: batch normalisation in inference becomes a scale and a shift.

The scale after a convolution or a dense layer is multiplied into its weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loopwright import dtypes
from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, OpRef, const
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.types import TensorType, Type
from loopwright.graph.ir.visitor import called, post_order, rewrite_each, users
from loopwright.graph.registry import get_op
from loopwright.graph.transform.fold_scale_axis import CHANNELS
from loopwright.graph.transform.module_pass import module_pass


@module_pass(opt_level=0, name="SimplifyInference")
def simplify_inference(module: IRModule) -> IRModule:
    """Write every ``nn.batch_norm`` as ``data * scale + shift``, in float32 where it is narrower.

    The scale is gamma / sqrt(variance + epsilon), the shift beta - mean * scale. Both are constants
    where the parameters are, so that FoldConstant computes them. Where the data are a product with
    a constant weight that nothing else reads, and have the axis of its output channels, the weight
    is scaled: sums of products round elsewhere, as when they are added up in another order.
    """
    types = infer_types(module)
    return module.with_functions({n: _simplified(f, types) for n, f in module.functions.items()})


def _simplified(f: Function, types: Mapping[Expr, Type]) -> Function:
    readers = users(post_order(f))

    def change(old: Expr, new: Expr) -> Expr:
        if called(new) != "nn.batch_norm":
            return new
        assert isinstance(old, Call)
        assert isinstance(new, Call)
        data = types[old.args[0]]
        assert isinstance(data, TensorType)
        alone = len(readers[old.args[0]]) == 1
        return _scale_and_shift(new, data, alone)

    made = rewrite_each(f, change)
    assert isinstance(made, Function)
    return made


def _scale_and_shift(call: Call, data_type: TensorType, alone: bool) -> Expr:
    add, multiply, subtract, cast = (get_op(n) for n in ("add", "multiply", "subtract", "cast"))
    rank, dtype = len(data_type.shape), data_type.dtype
    axis, epsilon = call.attrs["axis"] % rank, call.attrs["epsilon"]
    narrow = dtype in dtypes.HALVES
    given = [cast(e, dtype="float32") for e in call.args] if narrow else call.args
    data, gamma, beta, mean, variance = given
    inner = range(1, rank - axis)  # dimensions behind the channels

    shifted = add(variance, const(epsilon, "float32" if narrow else dtype))
    scale = multiply(gamma, get_op("rsqrt")(shifted))
    shift = _spread(subtract(beta, multiply(mean, scale)), inner)
    scaled = _with_scaled_weight(data, scale, axis, rank) if alone else None
    if scaled is None:
        scaled = multiply(data, _spread(scale, inner), span=call.span)
    found = add(scaled, shift, span=call.span)
    return cast(found, dtype=dtype, span=call.span) if narrow else found


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
