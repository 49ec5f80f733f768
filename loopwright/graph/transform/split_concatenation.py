"""SplitConcatenation: readers of concatenated channels read the parts, without a copy."""

from __future__ import annotations

from math import prod

import numpy as np

from loopwright.graph.infer import Types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, TensorType, const
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called, post_order, rewrite_function, users
from loopwright.graph.passes import module_pass
from loopwright.graph.registry import get_op

#: Operators that compute each channel by itself, and more of it than one element.
_BY_CHANNEL = ("nn.max_pool", "nn.avg_pool")


@module_pass(opt_level=2)
def SplitConcatenation(module: IRModule) -> IRModule:
    """Write a convolution of concatenated channels as the sum of convolutions of the parts.

    Convolutions are linear, so that the sum is that over all channels, rounded in another order.
    The weight has to be a constant of one group, nothing else may read the concatenation, and the
    sums that are read and written once more for each further part have to be smaller than it: so
    it is in the layers of SqueezeNet (Iandola et al., 2016) that make few channels of many. Pools
    between are made of each part before they are concatenated.

    Before::

        def @main(%x: float32[1, 4, 8, 8], %y: float32[1, 4, 8, 8]) {
          %0 = concatenate(%x, %y, axis=1);
          nn.conv(%0, const[w: float32[2, 8, 1, 1]], ...)
        }

    After::

        def @main(%x: float32[1, 4, 8, 8], %y: float32[1, 4, 8, 8]) {
          %0 = nn.conv(%x, const[w: float32[2, 4, 1, 1]], ...);
          %1 = nn.conv(%y, const[w: float32[2, 4, 1, 1]], ...);
          add(%1, %0)
        }
    """
    types = Types(module)
    return module.with_functions({n: _split(f, types) for n, f in module.functions.items()})


def _split(f: Function, types: Types) -> Function:
    readers = users(post_order(f))

    def change(old: Expr, new: Expr) -> Expr:
        name = called(new)
        if name not in (*_BY_CHANNEL, "nn.conv") or not isinstance(new, Call):
            return new
        assert isinstance(old, Call)
        parts = _parts(new.args[0], types)
        if len(parts) < 2 or len(readers[old.args[0]]) != 1:
            return new
        if name in _BY_CHANNEL:
            pooled = [Call(new.op, (x,), new.attrs, span=new.span) for x in parts]
            return get_op("concatenate")(*pooled, axis=1, span=new.span)
        return _sum(new, parts, types)

    return rewrite_function(f, change)


def _parts(e: Expr, types: Types) -> tuple[Expr, ...]:
    """The float tensors that an expression concatenates along channels; else none."""
    if called(e) != "concatenate" or not isinstance(e, Call):
        return ()
    t = types.tensor(e)
    axis = get_op("concatenate").complete(e.attrs)["axis"]
    floats = np.issubdtype(t.dtype, np.floating) if t.dtype != "bfloat16" else True
    known = all(types.tensor(x).static for x in e.args)
    return e.args if axis % len(t.shape) == 1 and floats and known else ()


def _sum(conv: Call, parts: tuple[Expr, ...], types: Types) -> Expr:
    """A convolution as the sum of those of its parts, where that pays."""
    weight, attrs = conv.args[1], get_op("nn.conv").complete(conv.attrs)
    if not isinstance(weight, Constant) or attrs["groups"] != 1 or attrs["out_dtype"]:
        return conv
    once_more = (len(parts) - 1) * _elements(types.tensor(conv))
    if once_more >= sum(_elements(types.tensor(x)) for x in parts):
        return conv
    found: Expr | None = None
    begin = 0
    for x in parts:
        channels = types.tensor(x).shape[1]
        assert isinstance(channels, int)
        own = const(weight.data[:, begin : begin + channels].copy(), name=weight.name)
        product = Call(conv.op, (x, own), conv.attrs, span=conv.span)
        found = product if found is None else get_op("add")(product, found, span=conv.span)
        begin += channels
    assert found is not None
    return found


def _elements(t: TensorType) -> int:
    return prod(n for n in t.shape if isinstance(n, int))
