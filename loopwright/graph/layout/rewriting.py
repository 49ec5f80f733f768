"""The values of a function in the layouts in which they are known, and calls in a layout each.

A call that is given a layout computes in it; one that does not support it, or is not asked, gets
its inputs in the original layout. A value is moved into another layout once, for all its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loopwright.graph.ir.expr import Call, Expr, Function
from loopwright.graph.ir.types import TensorType, Type
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.layout.layouts import FIRST, Layout, reshaped

#: The layout that a call is given; None: one in which it finds what it reads.
Chosen = Callable[[Call], "Layout | None"]
#: From a call to what it is in a layout; None where it does not know it.
Rule = Callable[["Rewriting", Call, Layout], "Expr | None"]


@dataclass
class Rewriting:
    """Rewrites the calls of a function in their layouts."""

    types: Mapping[Expr, Type]  # of the original nodes
    chosen: Chosen  # the layout of each call
    rule_of: Callable[[str], Rule]
    #: a call that leaves its input's layout, over that layout; None where it does not, or cannot
    leaving: Rule
    #: original nodes to their forms by layout; the first is the one computed
    forms: dict[Expr, dict[Layout, Expr]] = field(default_factory=dict)

    def function(self, f: Function) -> Function:
        """The function with its calls in their layouts; parameters and results stay."""
        self.walk(f)
        made = self.plain(f)
        assert isinstance(made, Function)
        return made

    def walk(self, root: Expr) -> None:
        """Enter a node, after all its children."""
        for e in post_order(root):
            if e not in self.forms:
                layout, made = self._entered(e)
                self.forms[e] = {layout: made}

    def _entered(self, e: Expr) -> tuple[Layout, Expr]:
        name = called(e)
        if isinstance(e, Call) and name is not None:
            layout = self.chosen(e) or self.found(e)
            made = None if layout == FIRST else self.rule_of(name)(self, e, layout)
            if made is not None:
                return layout, made
            left = self.leaving(self, e, self.found(e))
            if left is not None:
                return FIRST, left
        return FIRST, e.with_children(tuple(self.plain(c) for c in e.children))

    def found(self, call: Call) -> Layout:
        """The layout of a call's operands: the first that is not the original one."""
        every = (layout for a in call.args for layout in self.forms[a] if layout != FIRST)
        return next(every, FIRST)

    def has(self, e: Expr, layout: Layout) -> bool:
        """Whether a value is known in a layout."""
        return layout in self.forms[e]

    def home(self, e: Expr) -> Layout:
        """The layout in which a value is computed."""
        return next(iter(self.forms[e]))

    def plain(self, e: Expr) -> Expr:
        """A node in the original layout."""
        return self.form(e, FIRST)

    def form(self, e: Expr, layout: Layout) -> Expr:
        """A node in a layout, which its shape must fit."""
        known = self.forms[e]
        if layout not in known:
            home = self.home(e)
            known[layout] = home.moved(known[home], self.shape(e), layout)
        return known[layout]

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
        """The extents of a tensor in the original layout."""
        t = self.types[e]
        assert isinstance(t, TensorType)
        return t.shape

    def rank(self, e: Expr) -> int:
        return len(self.shape(e))
