"""SimplifyInference: batch normalisation, as it is in inference, becomes a scale and a shift."""

from __future__ import annotations

from typing import Any

from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Call, Expr, const
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.types import TensorType
from loopwright.graph.ir.visitor import called, rewrite_each
from loopwright.graph.registry import get_op
from loopwright.graph.transform.module_pass import module_pass


@module_pass(opt_level=0, name="SimplifyInference")
def simplify_inference(module: IRModule) -> IRModule:
    """Write every ``nn.batch_norm`` as ``data * scale + shift``.

    The scale is gamma / sqrt(variance + epsilon), the shift beta - mean * scale. Both are constants
    where the parameters are, so that FoldConstant and FoldScaleAxis can take them further.
    """
    types = infer_types(module)

    def change(old: Expr, new: Expr) -> Expr:
        if called(new) != "nn.batch_norm":
            return new
        assert isinstance(old, Call)
        assert isinstance(new, Call)
        data = types[old.args[0]]
        assert isinstance(data, TensorType)
        return _scale_and_shift(new, data)

    made: dict[str, Any] = {n: rewrite_each(f, change) for n, f in module.functions.items()}
    return IRModule(made)


def _scale_and_shift(call: Call, data_type: TensorType) -> Expr:
    add, multiply, subtract = (get_op(n) for n in ("add", "multiply", "subtract"))
    data, gamma, beta, mean, variance = call.args
    rank, epsilon = len(data_type.shape), call.attrs["epsilon"]
    inner = tuple(range(1, rank - call.attrs["axis"] % rank))  # dimensions behind the channels

    def spread(e: Expr) -> Expr:
        return get_op("expand_dims")(e, axis=inner) if inner else e

    shifted = add(variance, const(epsilon, data_type.dtype))
    scale = multiply(gamma, get_op("rsqrt")(shifted))
    shift = subtract(beta, multiply(mean, scale))
    return add(multiply(data, spread(scale), span=call.span), spread(shift), span=call.span)
