"""Products of one input become one, and a product of concatenated inputs becomes several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.graph.infer import Types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, If, const, elements
from loopwright.graph.ir.structural import attrs_key
from loopwright.graph.ir.visitor import called, post_order, rewrite_function, users
from loopwright.graph.passes import typed_pass
from loopwright.graph.registry import Pattern, get_op

#: Branches that are worth a product of their own, as in TVM.
MIN_BRANCHES = 3


@dataclass(frozen=True)
class Product:
    weight_axis: int  # of the output channels in its weight, the second input
    result_axis: int  # of the output channels in its result, from the end where it is negative
    #: whether a call can be combined, by its attributes and its weight
    fits: Callable[[Mapping[str, Any], np.ndarray[Any, Any]], bool]


@dataclass(eq=False)
class _Group:
    """Calls that become one, each with those after it, as far as these are the same for all."""

    axis: int  # of the results, along which they are split again
    chains: list[list[Call]]  # for each branch the product, then the calls after it
    combined: Expr | None = None  # the combined value, once its input is known


def combined(f: Function, products: Mapping[str, Product], types: Types) -> Function:
    """Make one product of three or more of one input and constant weights.

    Control flow is left as it is: what one branch needs would be computed for both.
    """
    order = post_order(f)
    if any(isinstance(e, If) for e in order):
        return f
    combining = _Combining(types, users(order))
    for calls in _alike(order, products):
        combining.enter(calls, products[called(calls[0]) or ""])
    if not combining.heads:
        return f
    return rewrite_function(f, combining.change)


def _alike(order: Sequence[Expr], products: Mapping[str, Product]) -> list[list[Call]]:
    """Groups of calls of equal input, attributes, and weights up to the number of channels."""
    groups: dict[tuple[Any, ...], list[Call]] = {}
    for e in order:
        name = called(e)
        if name is None or name not in products or not isinstance(e, Call) or len(e.args) != 2:
            continue
        weight, attrs = e.args[1], get_op(name).complete(e.attrs)
        product = products[name]
        if not isinstance(weight, Constant) or not product.fits(attrs, weight.data):
            continue
        shape = list(weight.data.shape)
        shape[product.weight_axis] = 0
        key = (name, e.args[0], attrs_key(attrs), tuple(shape), str(weight.data.dtype))
        groups.setdefault(key, []).append(e)
    return [calls for calls in groups.values() if len(calls) >= MIN_BRANCHES]


@dataclass(eq=False)
class _Combining:
    types: Types
    readers: Mapping[Expr, Sequence[Expr]]
    heads: dict[Expr, tuple[_Group, Product]] = field(default_factory=dict)
    lasts: dict[Expr, tuple[_Group, int]] = field(default_factory=dict)

    def enter(self, calls: Sequence[Call], product: Product) -> None:
        rank = len(self.types.tensor(calls[0]).shape)
        group = _Group(product.result_axis % rank, [[c] for c in calls])
        while self._follow(group):
            pass
        self.heads[calls[0]] = group, product
        self.lasts |= {chain[-1]: (group, n) for n, chain in enumerate(group.chains)}

    def _follow(self, group: _Group) -> bool:
        """Add the next call of each branch; False where they differ."""
        following = []
        for chain in group.chains:
            readers = self.readers[chain[-1]]
            if len(readers) != 1 or not isinstance(readers[0], Call):
                return False
            following.append(readers[0])
        kinds = {
            self._kind(a, chain[-1], group.axis)
            for a, chain in zip(following, group.chains, strict=True)
        }
        if len(kinds) != 1 or None in kinds or len(set(following)) < len(following):
            return False
        for chain, call in zip(group.chains, following, strict=True):
            chain.append(call)
        return True

    def _kind(self, call: Call, before: Call, axis: int) -> tuple[Any, ...] | None:
        """Equal for calls that can be combined; None where a call uses more than one channel."""
        name, t = called(call), self.types.tensor(before)
        if name is None or self.types[call] != t or get_op(name).pattern > Pattern.BROADCAST:
            return None
        attrs = attrs_key(get_op(name).complete(call.attrs))
        if call.args == (before,):
            return name, attrs
        if len(call.args) != 2 or attrs:
            return None
        at = call.args.index(before)
        other = call.args[1 - at]
        if not isinstance(other, Constant) or not t.static:
            return None
        wide = (1,) * (len(t.shape) - other.data.ndim) + other.data.shape
        by_channel = all(n == 1 for d, n in enumerate(wide) if d != axis)
        return (name, at) if by_channel else None

    def change(self, old: Expr, new: Expr) -> Expr:
        if old in self.heads:
            assert isinstance(new, Call)
            group, product = self.heads[old]
            group.combined = self._combined(group, product, new)
        if old not in self.lasts:
            return new
        group, n = self.lasts[old]
        assert group.combined is not None  # the first branch comes before its own end and others'
        sizes = [self._channels(chain, group.axis) for chain in group.chains]
        begin = sum(sizes[:n])
        bounds = {"begin": (begin,), "end": (begin + sizes[n],), "axes": (group.axis,)}
        return get_op("strided_slice")(group.combined, span=old.span, **bounds)

    def _channels(self, chain: Sequence[Call], axis: int) -> int:
        n = self.types.tensor(chain[0]).shape[axis]
        assert isinstance(n, int)
        return n

    def _combined(self, group: _Group, product: Product, head: Call) -> Expr:
        """One product with all channels, and one of each call that follows."""
        weights = [_constant(chain[0].args[1]) for chain in group.chains]
        weight = const(np.concatenate(weights, axis=product.weight_axis))
        result: Expr = Call(head.op, (head.args[0], weight), head.attrs, span=head.span)
        for n, call in enumerate(group.chains[0][1:], 1):
            result = self._follower(group, n, call, result)
        return result

    def _follower(self, group: _Group, n: int, call: Call, data: Expr) -> Expr:
        if len(call.args) == 1:
            return Call(call.op, (data,), call.attrs, span=call.span)
        before = group.chains[0][n - 1]
        at = call.args.index(before)
        rank = len(self.types.tensor(before).shape)
        parts = []
        for chain in group.chains:
            own = _constant(chain[n].args[1 - at])
            wide = own.reshape((1,) * (rank - own.ndim) + own.shape)
            shape = [1] * rank
            shape[group.axis] = self._channels(chain, group.axis)
            parts.append(np.broadcast_to(wide, shape))
        other = const(np.concatenate(parts, axis=group.axis))
        args = (data, other) if at == 0 else (other, data)
        return Call(call.op, args, call.attrs, span=call.span)


def _constant(e: Expr) -> np.ndarray[Any, Any]:
    assert isinstance(e, Constant)
    return e.data


@typed_pass(opt_level=2)
def CombineParallelConv2D(f: Function, types: Types) -> Function:
    """Write three or more convolutions of one input with constant weights as one, cut apart.

    The pass has TVM's name and number of branches. Windows, strides, padding and dilation must be
    the same, and there is one group. What follows each of them alike, such as the sum with a bias
    and an activation, is combined too: ``relu(conv(x, a))``, ``relu(conv(x, b))`` and
    ``relu(conv(x, c))`` become slices of the channels of ``relu(conv(x, [a b c]))``.
    """
    product = Product(0, 1, lambda attrs, weight: attrs["groups"] == 1)
    return combined(f, {"nn.conv": product}, types)


@typed_pass(opt_level=2)
def CombineParallelDense(f: Function, types: Types) -> Function:
    """Write three or more products of one input with constant weights as one product, cut apart.

    The pass has TVM's name and number of branches. What follows each of them alike, such as the
    sum with a bias, is combined too: ``dense(x, q)``, ``dense(x, k)`` and ``dense(x, v)`` become
    slices of ``dense(x, [q k v])``.
    """
    products = {
        "nn.dense": Product(0, -1, lambda attrs, weight: True),
        "matmul": Product(1, -1, lambda attrs, weight: weight.ndim == 2),
    }
    return combined(f, products, types)


#: Operators that compute each channel by itself, and more of it than one element.
_BY_CHANNEL = ("nn.max_pool", "nn.avg_pool")


@typed_pass(opt_level=2)
def SplitConcatenation(f: Function, types: Types) -> Function:
    """Write a convolution of concatenated channels as the sum of convolutions of the parts.

    Convolutions are linear, so that the sum is that over all channels, rounded in another order.
    The weight has to be a constant of one group, nothing else may read the concatenation, and the
    sums that are read and written once more for each further part have to be smaller than it: so
    it is in the layers of SqueezeNet (Iandola et al., 2016) that make few channels of many. Pools
    between are made of each part before they are concatenated. ``conv([x y], w)`` becomes
    ``conv(x, w[:, :4]) + conv(y, w[:, 4:])``, where x has four channels.
    """
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
    static = all(types.tensor(x).static for x in e.args)
    return e.args if axis % len(t.shape) == 1 and floats and static else ()


def _sum(conv: Call, parts: tuple[Expr, ...], types: Types) -> Expr:
    """A convolution as the sum of those of its parts, where that pays."""
    weight, attrs = conv.args[1], get_op("nn.conv").complete(conv.attrs)
    if not isinstance(weight, Constant) or attrs["groups"] != 1 or attrs["out_dtype"]:
        return conv
    once_more = (len(parts) - 1) * elements(types.tensor(conv))
    if once_more >= sum(elements(types.tensor(x)) for x in parts):
        return conv
    total: Expr | None = None
    begin = 0
    for x in parts:
        channels = types.tensor(x).shape[1]
        assert isinstance(channels, int)
        own = const(weight.data[:, begin : begin + channels].copy(), name=weight.name)
        product = Call(conv.op, (x, own), conv.attrs, span=conv.span)
        total = product if total is None else get_op("add")(product, total, span=conv.span)
        begin += channels
    assert total is not None
    return total
