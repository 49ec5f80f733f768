"""The places of a function where a layout is chosen, and where values change layouts.

A convolution or a pool is a place, and so is an elementwise call or a concatenation that reads
several of them; a call that reads one place alone belongs to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loopwright.graph.ir.expr import Call, Constant, Expr, Function
from loopwright.graph.ir.types import TensorType, Type
from loopwright.graph.ir.visitor import called, post_order, users
from loopwright.graph.layout.layouts import FIRST, LAST, Layout
from loopwright.graph.layout.rewriting import Rewriting
from loopwright.graph.layout.rules import (
    convolves,
    has_few,
    leaves_freely,
    leaving,
    rule_of,
    takes_over,
)
from loopwright.graph.registry import get_op

_POOLS = ("nn.max_pool", "nn.avg_pool")


@dataclass
class Places:
    types: Mapping[Expr, Type]
    anchors: list[Call] = field(default_factory=list)  # the call that makes each place
    of_call: dict[Expr, int] = field(default_factory=dict)  # the place of each call that has one
    #: two places, and the type of the value that the second reads from the first
    edges: list[tuple[int, int, TensorType]] = field(default_factory=list)
    #: a place, and the type of a value that it reads from outside of all places
    entering: list[tuple[int, TensorType]] = field(default_factory=list)
    #: a place, and the type of a value of it that is read in the original layout
    leaving: list[tuple[int, TensorType]] = field(default_factory=list)

    @staticmethod
    def of(f: Function, types: Mapping[Expr, Type]) -> Places:
        """The places of a function, in the order of its calls."""
        made = Places(types)
        order = post_order(f.body)
        for e in order:
            if isinstance(e, Call) and called(e) is not None:
                made._enter(e)
        readers = users(order)
        r = Rewriting(types, lambda _: None, rule_of, leaving)
        for e, place in made.of_call.items():
            outside = [u for u in readers.get(e, ()) if not made._reads(u, e)]
            free = all(isinstance(u, Call) and leaves_freely(r, u) for u in outside)
            if e is f.body or not free:
                made.leaving.append((place, made._type(e)))
        return made

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(called(a) or "" for a in self.anchors)

    def is_kernel(self, place: int) -> bool:
        """Whether a place has a kernel of its own: a convolution, or a pool."""
        return called(self.anchors[place]) in ("nn.conv", *_POOLS)

    def candidates(self, place: int, layouts: Sequence[Layout]) -> list[Layout]:
        """The layouts that a place can have; the original one always is among them."""
        call = self.anchors[place]
        return [one for one in layouts if one == FIRST or self._can(call, one)]

    def converted(self) -> list[Layout]:
        """The layouts that `ConvertLayout` gives the places."""
        found: list[Layout] = []
        for n, anchor in enumerate(self.anchors):
            if called(anchor) == "nn.conv":
                found.append(LAST if self._can(anchor, LAST) else FIRST)
                continue
            read = [found[a] for a, b, _ in self.edges if b == n and a < n]
            found.append(LAST if LAST in read else FIRST)
        return found

    def _can(self, call: Call, layout: Layout) -> bool:
        data = self._type(call.args[0]).shape
        if called(call) == "nn.conv":
            groups = get_op("nn.conv").complete(call.attrs)["groups"]
            return convolves(data, self._type(call.args[1]).shape, groups, layout)
        if called(call) in _POOLS:
            return layout.fits(data)
        return all(layout.fits(self._type(a).shape) for a in (call, *self._images(call)))

    def _enter(self, call: Call) -> None:
        t = self.types[call]
        if not isinstance(t, TensorType) or len(t.shape) < 3:
            return
        name = called(call) or ""
        if name in ("nn.conv", *_POOLS):
            self._add(call)
        elif takes_over(name):
            near = {self.of_call[a] for a in self._images(call) if a in self.of_call}
            if len(near) == 1 and not self._images_from_outside(call):
                (self.of_call[call],) = near
            elif near:
                self._add(call)

    def _add(self, call: Call) -> None:
        place = len(self.anchors)
        self.anchors.append(call)
        self.of_call[call] = place
        for a in self._images(call):
            if a in self.of_call:
                self.edges.append((self.of_call[a], place, self._type(a)))
            elif not isinstance(a, Constant):
                self.entering.append((place, self._type(a)))

    def _images_from_outside(self, call: Call) -> bool:
        """Whether it reads an image that no place makes."""
        read = (a for a in self._images(call) if a not in self.of_call)
        return any(not isinstance(a, Constant) for a in read)

    def _images(self, call: Call) -> tuple[Expr, ...]:
        """The operands of a call that have the layout of its place."""
        if called(call) == "nn.conv":
            data, weight = call.args
            few = has_few(self._type(data).shape) and len(self._type(weight).shape) > 2
            return () if few else (data,)
        if called(call) == "nn.bias_add":
            return call.args[:1]
        rank = len(self._type(call).shape)
        return tuple(a for a in dict.fromkeys(call.args) if len(self._type(a).shape) == rank)

    def _reads(self, user: Expr, e: Expr) -> bool:
        """Whether a call with a place reads a value in that place's layout."""
        return isinstance(user, Call) and user in self.of_call and e in self._images(user)

    def _type(self, e: Expr) -> TensorType:
        t = self.types[e]
        assert isinstance(t, TensorType)
        return t
