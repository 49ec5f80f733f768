"""FoldScaleAxis: factors of output channels are multiplied into constant weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, const
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.types import TensorType, Type
from loopwright.graph.ir.visitor import called, post_order, rewrite_each, users
from loopwright.graph.transform.module_pass import module_pass

#: Products whose weight has the output channels first, and which dimension of the result they are.
CHANNELS = {"nn.conv": 1, "nn.dense": -1}


@module_pass(opt_level=2, name="FoldScaleAxis")
def fold_scale_axis(module: IRModule) -> IRModule:
    """Write ``product(data, weight) * factor`` as ``product(data, weight * factor)``.

    Where the weight and the factor are constants, the factor is one for each output channel, and
    nothing else reads the product. Rounding differs in the last places, as it does when products
    are added up in another order, and a sum near the limits of its dtype may be infinite on one
    side alone, so that only targets with ``-fastmath`` ask for it.
    """
    types = infer_types(module)
    return module.with_functions({n: _folded(f, types) for n, f in module.functions.items()})


def _folded(f: Function, types: Mapping[Expr, Type]) -> Function:
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

    made = rewrite_each(f, change)
    assert isinstance(made, Function)
    return made


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
