"""ConvertLayout: convolutions, and what lies between them, with the channels side by side.

What a convolution reads and writes is (N, ..., C) afterwards: vectors then run along channels,
which are as many in a narrow image as in a wide one, and its constant weight is turned beforehand.
Calls that work on such values take their layout over; where one does not know it, the value is
turned back before it, once for all its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, const
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.types import TensorType, Type
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.registry import Pattern, get_op
from loopwright.graph.transform.module_pass import module_pass

#: Fewer output channels than these do not fill a vector.
_FEWEST = 8
#: An image of no more channels is read as it is: turning it would take a pass over memory.
_FEW = 4


@module_pass(opt_level=2, name="ConvertLayout")
def convert_layout(module: IRModule) -> IRModule:
    """Write convolutions as `nn.conv_channels_last`, with what follows in that layout.

    Convolutions of one group, and those of each channel by itself, are taken, where there are
    enough output channels to fill a vector. Parameters and results of functions stay as they are.
    """
    types = infer_types(module)
    made = {n: _converted(f, types) for n, f in module.functions.items()}
    same = all(f is module.functions[n] for n, f in made.items())
    return module if same else IRModule(made)


def _converted(f: Function, types: Mapping[Expr, Type]) -> Function:
    layouts = _Layouts(types)
    for e in post_order(f):
        layouts.enter(e)
    made = layouts.plain(f)
    assert isinstance(made, Function)
    return made


@dataclass
class _Layouts:
    """The values of a function in the layouts in which they are known.

    Attributes:
        types: of the nodes as they were.
        first: nodes as they were, over what was converted.
        last: those with their channels last.
    """

    types: Mapping[Expr, Type]
    first: dict[Expr, Expr] = field(default_factory=dict)
    last: dict[Expr, Expr] = field(default_factory=dict)

    def enter(self, e: Expr) -> None:
        """Convert a node whose children are known."""
        name = called(e)
        if isinstance(e, Call) and name is not None:
            made = _rule_of(name)(self, e)
            if made is not None:
                self.last[e] = made
                return
            flat = _flattened(self, e) if name in _FLATTENING else None
            reduced = _reduced(self, e) if name in _REDUCTIONS else None
            found = flat or reduced
            if found is not None:
                self.first[e] = found
                return
        self.first[e] = e.with_children(tuple(self.plain(c) for c in e.children))

    def plain(self, e: Expr) -> Expr:
        """A node as it was; turned back where it is known with its channels last alone."""
        if e not in self.first:
            self.first[e] = _turned(self.last[e], _to_first(self.rank(e)))
        return self.first[e]

    def turned(self, e: Expr) -> Expr:
        """A node with its channels last."""
        if e not in self.last:
            self.last[e] = _turned(self.plain(e), _to_last(self.rank(e)))
        return self.last[e]

    def beside(self, e: Expr, rank: int) -> Expr:
        """An operand that is broadcast against one of some rank with its channels last."""
        own = self.rank(e)
        if own == 0:
            return self.plain(e)
        if own == rank:
            return self.turned(e)
        shape = (1,) * (rank - own) + self.shape(e)
        wide = _reshaped(self.plain(e), shape)
        return _turned(wide, _to_last(rank))

    def shape(self, e: Expr) -> tuple[Any, ...]:
        """The extents of a tensor as it was."""
        t = self.types[e]
        assert isinstance(t, TensorType)
        return t.shape

    def rank(self, e: Expr) -> int:
        """Its dimensions."""
        return len(self.shape(e))


def _to_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _to_first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _turned(e: Expr, axes: tuple[int, ...]) -> Expr:
    """Its dimensions in another order; of a constant at once."""
    if isinstance(e, Constant):
        return const(np.transpose(e.data, axes), name=e.name)
    return get_op("transpose")(e, axes=axes)


def _reshaped(e: Expr, shape: tuple[int, ...]) -> Expr:
    if isinstance(e, Constant):
        return const(e.data.reshape(shape), name=e.name)
    return get_op("reshape")(e, newshape=shape)


def _is_static(shape: tuple[Any, ...]) -> bool:
    return all(isinstance(n, int) for n in shape)


# ---------------------------------------------------------------- what takes the layout over

#: From a call to what it is with its channels last; None where it stays as it is.
_Rule = Callable[[_Layouts, Call], "Expr | None"]


def _rule_of(name: str) -> _Rule:
    if name in _RULES:
        return _RULES[name]
    pattern = get_op(name).pattern
    if pattern is Pattern.ELEMENTWISE:
        return _elementwise
    # Attributes of other calls may name dimensions.
    return _elementwise if pattern is Pattern.BROADCAST and not get_op(name).attrs else _stays


def _stays(_layouts: _Layouts, _call: Call) -> None:
    return None


def _conv(layouts: _Layouts, call: Call) -> Expr | None:
    data, weight = call.args
    attrs = get_op("nn.conv").complete(call.attrs)
    channels, (outputs, inner, *_) = layouts.shape(data)[1], layouts.shape(weight)
    groups, rank = attrs["groups"], layouts.rank(data)
    by_channel = groups == channels == outputs and inner == 1
    if not (isinstance(outputs, int) and outputs >= _FEWEST and (groups == 1 or by_channel)):
        return None
    # Windows of whole numbers only: the operator says so where they are not.
    turned = _turned(layouts.plain(weight), (*range(2, rank), 1, 0))
    few = isinstance(channels, int) and channels <= _FEW
    if few and groups == 1 and data not in layouts.last:
        given, layout = layouts.plain(data), "channels_first"
    else:
        given, layout = layouts.turned(data), "channels_last"
    op = get_op("nn.conv_channels_last")
    return op(given, turned, span=call.span, **{**attrs, "data_layout": layout})


def _pool(layouts: _Layouts, call: Call) -> Expr | None:
    if call.args[0] not in layouts.last:
        return None
    op = get_op(f"{called(call)}_channels_last")
    return op(layouts.turned(call.args[0]), span=call.span, **call.attrs)


def _elementwise(layouts: _Layouts, call: Call) -> Expr | None:
    t = layouts.types[call]
    if not isinstance(t, TensorType) or len(t.shape) < 3:
        return None
    rank = len(t.shape)
    if not any(a in layouts.last and layouts.rank(a) == rank for a in call.args):
        return None
    if not all(layouts.rank(a) == rank or _is_static(layouts.shape(a)) for a in call.args):
        return None
    args = tuple(layouts.beside(a, rank) for a in call.args)
    return replace(call, args=args)


def _bias(layouts: _Layouts, call: Call) -> Expr | None:
    data, bias = call.args
    if data not in layouts.last:
        return None
    rank = layouts.rank(data)
    at = _to_last(rank).index(call.attrs["axis"] % rank)
    op = get_op("nn.bias_add")
    return op(layouts.turned(data), layouts.plain(bias), axis=at, span=call.span)


def _concatenation(layouts: _Layouts, call: Call) -> Expr | None:
    if not all(a in layouts.last for a in call.args):
        return None
    rank = layouts.rank(call)
    at = _to_last(rank).index(call.attrs["axis"] % rank)
    args = [layouts.turned(a) for a in call.args]
    return get_op("concatenate")(*args, axis=at, span=call.span)


def _slice(layouts: _Layouts, call: Call) -> Expr | None:
    """A slice of some axes; of all of them, they are named."""
    (data,) = call.args
    if data not in layouts.last:
        return None
    rank, axes = layouts.rank(data), call.attrs["axes"]
    given = range(len(call.attrs["begin"])) if axes is None else axes
    moved = [_to_last(rank).index(a % rank) for a in given]
    attrs = {**call.attrs, "axes": moved}
    return get_op("strided_slice")(layouts.turned(data), span=call.span, **attrs)


def _padding(layouts: _Layouts, call: Call) -> Expr | None:
    (data,) = call.args
    if data not in layouts.last:
        return None
    width = [call.attrs["pad_width"][a] for a in _to_last(layouts.rank(data))]
    attrs = {**call.attrs, "pad_width": width}
    return get_op("nn.pad")(layouts.turned(data), span=call.span, **attrs)


def _kept_reduction(layouts: _Layouts, call: Call) -> Expr | None:
    """A reduction whose dimensions stay, with the extent 1."""
    (data,) = call.args
    if data not in layouts.last or not call.attrs["keepdims"]:
        return None
    attrs = {**call.attrs, "axis": _moved_axes(layouts, call)}
    op = get_op(called(call) or "")
    return op(layouts.turned(data), span=call.span, **attrs)


_REDUCTIONS = ("sum", "max", "min", "prod", "mean")
_RULES: dict[str, _Rule] = {
    "nn.conv": _conv,
    "nn.max_pool": _pool,
    "nn.avg_pool": _pool,
    "nn.bias_add": _bias,
    "nn.pad": _padding,
    "strided_slice": _slice,
    "concatenate": _concatenation,
    **dict.fromkeys(_REDUCTIONS, _kept_reduction),
}


# ---------------------------------------------------------------- what leaves it


def _moved_axes(layouts: _Layouts, call: Call) -> tuple[int, ...]:
    """The axes of a reduction where channels are last."""
    rank, axis = layouts.rank(call.args[0]), call.attrs["axis"]
    given = range(rank) if axis is None else (axis,) if isinstance(axis, int) else axis
    return tuple(sorted(_to_last(rank).index(a % rank) for a in given))


def _reduced(layouts: _Layouts, call: Call) -> Expr | None:
    """A reduction that leaves no dimension of the image, or no channels: the rest is in order."""
    (data,) = call.args
    if data not in layouts.last:
        return None
    axes, last = _moved_axes(layouts, call), layouts.rank(data) - 1
    image = set(range(1, last))
    if not (image <= set(axes) or last in axes):
        return None
    op = get_op(called(call) or "")
    return op(layouts.turned(data), axis=axes, span=call.span)


#: Calls that keep the order of elements in memory.
_FLATTENING = ("reshape", "squeeze", "expand_dims", "nn.batch_flatten")


def _flattened(layouts: _Layouts, call: Call) -> Expr | None:
    """Another shape of images of one element: their order in memory is the same."""
    (data,) = call.args
    if data not in layouts.last:
        return None
    old, new = layouts.shape(data), layouts.shape(call)
    if any(n != 1 for n in old[2:]) or not (_is_static(old) and _is_static(new)):
        return None
    return get_op("reshape")(layouts.turned(data), newshape=new, span=call.span)
