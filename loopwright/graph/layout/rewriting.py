"""Calls of a function in their layouts, by a rule for each operator.

A call that is given a layout computes in it; one that does not support it, or is not asked, gets
its inputs in the original layout. A value is moved into another layout once, for all its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loopwright.graph.infer import Types
from loopwright.graph.ir.expr import Call, Expr, Function, TensorType
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.layout.layouts import FIRST, LAST, Layout, reshaped, turned
from loopwright.graph.op.shapes import is_static
from loopwright.graph.op.windows import CHANNELS_BLOCKED, CHANNELS_LAST
from loopwright.graph.registry import Pattern, get_op

#: The layout that a call is given; None: one in which it finds what it reads.
Chosen = Callable[[Call], "Layout | None"]
#: From a call to what it is in a layout; None where it does not know it.
Rule = Callable[["Rewriting", Call, Layout], "Expr | None"]


@dataclass
class Rewriting:
    types: Types  # of the original nodes
    chosen: Chosen  # the layout of each call
    #: original nodes to their forms by layout; the first is the one computed
    forms: dict[Expr, dict[Layout, Expr]] = field(default_factory=dict)

    def function(self, f: Function) -> Function:
        """The function with its calls in their layouts; parameters and results stay."""
        self.walk(f)
        new = self.plain(f)
        assert isinstance(new, Function)
        return new

    def walk(self, root: Expr) -> None:
        for e in post_order(root):
            if e not in self.forms:
                layout, form = self._entered(e)
                self.forms[e] = {layout: form}

    def _entered(self, e: Expr) -> tuple[Layout, Expr]:
        name = called(e)
        if isinstance(e, Call) and name is not None:
            layout = self.chosen(e) or self.found(e)
            form = None if layout == FIRST else rule_of(name)(self, e, layout)
            if form is not None:
                return layout, form
            left = leaving(self, e, self.found(e))
            if left is not None:
                return FIRST, left
        return FIRST, e.with_children(tuple(self.plain(c) for c in e.children))

    def found(self, call: Call) -> Layout:
        """The layout of a call's operands: the first that is not the original one."""
        every = (layout for a in call.args for layout in self.forms[a] if layout != FIRST)
        return next(every, FIRST)

    def home(self, e: Expr) -> Layout:
        return next(iter(self.forms[e]))

    def plain(self, e: Expr) -> Expr:
        return self.form(e, FIRST)

    def form(self, e: Expr, layout: Layout) -> Expr:
        """A node in a layout, which its shape must fit."""
        forms = self.forms[e]
        if layout not in forms:
            home = self.home(e)
            forms[layout] = home.moved(forms[home], self.shape(e), layout)
        return forms[layout]

    def beside(self, e: Expr, rank: int, layout: Layout) -> Expr:
        """An operand that is broadcast against one of some rank in a layout."""
        own = self.rank(e)
        if own == 0:
            return self.plain(e)
        if own == rank:
            return self.form(e, layout)
        shape = (1,) * (rank - own) + self.shape(e)
        return FIRST.moved(reshaped(self.plain(e), shape), shape, layout)

    def shape(self, e: Expr) -> tuple[Any, ...]:
        return self.types.tensor(e).shape

    def rank(self, e: Expr) -> int:
        return len(self.shape(e))


#: Fewer output channels than these do not fill a vector.
FEWEST = 8
#: An image of no more channels is read as it is: turning it would take a pass over memory.
_FEW = 4


def takes_over(name: str) -> bool:
    """Whether an operator other than convolutions and pools adopts the layout of its inputs."""
    return rule_of(name) not in (_stays, _conv, _pool)


def rule_of(name: str) -> Rule:
    if name in _RULES:
        return _RULES[name]
    pattern = get_op(name).pattern
    if pattern is Pattern.ELEMENTWISE:
        return _elementwise
    # Attributes of other calls may name dimensions.
    return _elementwise if pattern is Pattern.BROADCAST and not get_op(name).attrs else _stays


def _stays(_r: Rewriting, _call: Call, _layout: Layout) -> None:
    return None


def _suffix(layout: Layout) -> str:
    return CHANNELS_BLOCKED if layout.block else CHANNELS_LAST


def convolves(data: Sequence[Any], weight: Sequence[Any], groups: int, layout: Layout) -> bool:
    """Whether (N, C, ...) with (O, C / groups, ...) can be computed in a layout."""
    channels, (outputs, inner, *_) = data[1], weight
    by_channel = groups == channels == outputs and inner == 1
    if not (isinstance(outputs, int) and outputs >= FEWEST and (groups == 1 or by_channel)):
        return False
    if layout.block == 0:
        return True
    few = groups == 1 and has_few(data)
    return (
        is_static([*data, *weight]) and outputs % layout.block == 0 and (few or layout.fits(data))
    )


def has_few(data: Sequence[Any]) -> bool:
    """Whether an image has so few channels that a convolution reads it in the original layout."""
    return isinstance(data[1], int) and data[1] <= _FEW


def _conv(r: Rewriting, call: Call, layout: Layout) -> Expr | None:
    data, weight = call.args
    attrs = get_op("nn.conv").complete(call.attrs)
    groups, shape = attrs["groups"], r.shape(weight)
    if not convolves(r.shape(data), shape, groups, layout):
        return None
    # Windows of whole numbers only: the operator says so where they are not.
    first = has_few(r.shape(data)) and groups == 1 and layout not in r.forms[data]
    image = r.plain(data) if first else r.form(data, layout)
    if layout == LAST:
        packed = turned(r.plain(weight), (*range(2, len(shape)), 1, 0))
    else:  # (O, C, ...) as (O / o, C / c, ..., c, o); c is 1, or as large as o
        outputs, channels, *window = shape
        n, block = len(window), layout.block
        inner = 1 if groups > 1 or first or channels == 1 else block
        apart = (outputs // block, block, channels // inner, inner, *window)
        packed = turned(reshaped(r.plain(weight), apart), (0, 2, *range(4, n + 4), 3, 1))
    own = "channels_first" if first else _suffix(layout).removeprefix("_")
    op = get_op(f"nn.conv{_suffix(layout)}")
    return op(image, packed, span=call.span, **{**attrs, "data_layout": own})


def _pool(r: Rewriting, call: Call, layout: Layout) -> Expr | None:
    (data,) = call.args
    if not _can_be(r, data, layout):
        return None
    return _of_form(r, call, layout, f"{called(call)}{_suffix(layout)}")


def _of_form(
    r: Rewriting, call: Call, layout: Layout, name: str | None = None, **attrs: Any
) -> Expr:
    """A call of one operand in a layout, with some attributes changed."""
    form = r.form(call.args[0], layout)
    return get_op(name or called(call) or "")(form, span=call.span, **{**call.attrs, **attrs})


def _can_be(r: Rewriting, data: Expr, layout: Layout) -> bool:
    """Whether a value is in a layout, or fits it where this was chosen for its reader."""
    return layout in r.forms[data] or (layout != FIRST and layout.fits(r.shape(data)))


def _elementwise(r: Rewriting, call: Call, layout: Layout) -> Expr | None:
    t = r.types[call]
    if not isinstance(t, TensorType) or not layout.fits(t.shape):
        return None
    rank = len(t.shape)
    for a in call.args:
        shape = r.shape(a)
        if len(shape) != rank and not is_static(shape):
            return None
        if shape and not layout.fits((1,) * (rank - len(shape)) + shape):
            return None
    has_form = any(r.rank(a) == rank and layout in r.forms[a] for a in call.args)
    if not has_form and r.chosen(call) is None:
        return None
    return replace(call, args=tuple(r.beside(a, rank, layout) for a in call.args))


def _bias(r: Rewriting, call: Call, layout: Layout) -> Expr | None:
    data, bias = call.args
    if not _can_be(r, data, layout):
        return None
    rank, axis = r.rank(data), call.attrs["axis"] % r.rank(data)
    at = layout.axes(axis, rank)
    if len(at) == 1:
        op = get_op("nn.bias_add")
        return op(r.form(data, layout), r.plain(bias), axis=at[0], span=call.span)
    shape = (1, *r.shape(bias), *(1,) * (rank - 2))
    wide = FIRST.moved(reshaped(r.plain(bias), shape), shape, layout)
    return get_op("add")(r.form(data, layout), wide, span=call.span)


def _concatenation(r: Rewriting, call: Call, layout: Layout) -> Expr | None:
    if not all(_can_be(r, a, layout) for a in call.args):
        return None
    axis = call.attrs["axis"] % r.rank(call)
    # A single channel has blocks of its own size: it does not stand beside others.
    if layout.block and any(r.shape(a)[1] == 1 for a in call.args):
        return None
    args = [r.form(a, layout) for a in call.args]
    return get_op("concatenate")(*args, axis=layout.axes(axis, r.rank(call))[0], span=call.span)


def _slice(r: Rewriting, call: Call, layout: Layout) -> Expr | None:
    """A slice of some axes, which are named in the result."""
    (data,) = call.args
    if not _can_be(r, data, layout):
        return None
    rank, axes = r.rank(data), call.attrs["axes"]
    named = range(len(call.attrs["begin"])) if axes is None else axes
    moved = [layout.axes(a, rank) for a in named]
    if any(len(m) > 1 for m in moved):
        return None  # part of the channels
    return _of_form(r, call, layout, axes=[m[0] for m in moved])


def _padding(r: Rewriting, call: Call, layout: Layout) -> Expr | None:
    (data,) = call.args
    width = call.attrs["pad_width"]
    if not _can_be(r, data, layout) or (layout.block and any(width[1])):
        return None
    image = tuple(width[2:])
    order = (*width[:2], *image, (0, 0)) if layout.block else (width[0], *image, width[1])
    return _of_form(r, call, layout, pad_width=order)


def _kept_reduction(r: Rewriting, call: Call, layout: Layout) -> Expr | None:
    """A reduction whose dimensions stay, with the extent 1."""
    (data,) = call.args
    if not call.attrs["keepdims"] or not _can_be(r, data, layout):
        return None
    return _of_form(r, call, layout, axis=_moved_axes(r, call, layout))


REDUCTIONS = ("sum", "max", "min", "prod", "mean")
_RULES: dict[str, Rule] = {
    "nn.conv": _conv,
    "nn.max_pool": _pool,
    "nn.avg_pool": _pool,
    "nn.bias_add": _bias,
    "nn.pad": _padding,
    "strided_slice": _slice,
    "concatenate": _concatenation,
    **dict.fromkeys(REDUCTIONS, _kept_reduction),
}


def leaving(r: Rewriting, call: Call, layout: Layout) -> Expr | None:
    """A call that reads a layout and gives the original order of elements; None where none does."""
    if layout == FIRST or not leaves_freely(r, call):
        return None
    (data,) = call.args
    form, shape = r.form(data, layout), r.shape(call)
    if called(call) in FLATTENING:
        return get_op("reshape")(form, newshape=shape, span=call.span)
    reduced = get_op(called(call) or "")(form, axis=_moved_axes(r, call, layout), span=call.span)
    return reshaped(reduced, shape) if layout.block else reduced


def leaves_freely(r: Rewriting, call: Call) -> bool:
    """Whether a call can read any layout, and its result's elements are in the original order.

    So can reductions that leave no dimension of the image, or no channels, and reshapes of images
    of one element.
    """
    name = called(call)
    if name not in (*FLATTENING, *REDUCTIONS) or r.rank(call.args[0]) < 3:
        return False
    old, new = r.shape(call.args[0]), r.shape(call)
    if name in FLATTENING:
        return all(n == 1 for n in old[2:]) and is_static(old) and is_static(new)
    axes, image = _axes(r, call), set(range(2, len(old)))
    return not call.attrs["keepdims"] and (image <= set(axes) or 1 in axes)


def _axes(r: Rewriting, call: Call) -> tuple[int, ...]:
    rank, axis = r.rank(call.args[0]), call.attrs["axis"]
    axes = range(rank) if axis is None else (axis,) if isinstance(axis, int) else axis
    return tuple(a % rank for a in axes)


def _moved_axes(r: Rewriting, call: Call, layout: Layout) -> tuple[int, ...]:
    rank = r.rank(call.args[0])
    return tuple(sorted(at for a in _axes(r, call) for at in layout.axes(a, rank)))


#: Calls that keep the order of elements in memory.
FLATTENING = ("reshape", "squeeze", "expand_dims", "nn.batch_flatten")
