"""Scopes: the innermost block that encloses all uses of a node is where it is computed.

The branches of an `If` and the body of a `Function` are blocks of their own. A node that only one
branch reads is computed in it; one that both read, or something outside, before the `If`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from loopwright.graph.ir.expr import Expr, Function, If
from loopwright.graph.ir.visitor import post_order


@dataclass(eq=False)
class Block:
    """A sequence of nodes that ends in a value."""

    result: Expr  # its value
    outer: Block | None = None  # the enclosing block
    #: computed in it, in order, without those of inner blocks
    nodes: list[Expr] = field(default_factory=list)
    #: the blocks of its nodes: one of a function, two of an `If`
    inner: dict[Expr, list[Block]] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """The number of enclosing blocks."""
        return 0 if self.outer is None else 1 + self.outer.depth


def blocks(root: Expr) -> Block:
    """The block of an expression, with inner ones; pass a function's body, not the function."""
    top = Block(root)
    place: dict[Expr, Block] = {root: top}
    order = post_order(root)
    for e in reversed(order):  # users before what they use
        at = place[e]
        for child, block in _uses(e, at):
            known = place.get(child)
            place[child] = block if known is None else _common(known, block)
    for e in order:
        place[e].nodes.append(e)
    return top


def _uses(e: Expr, at: Block) -> list[tuple[Expr, Block]]:
    """The children of a node with the blocks in which it reads them."""
    if isinstance(e, If):
        then, otherwise = Block(e.then, at), Block(e.otherwise, at)
        at.inner[e] = [then, otherwise]
        return [(e.condition, at), (e.then, then), (e.otherwise, otherwise)]
    if isinstance(e, Function):
        body = Block(e.body, at)
        at.inner[e] = [body]
        return [*((p, body) for p in e.params), (e.body, body)]
    return [(c, at) for c in e.children]


def _common(a: Block, b: Block) -> Block:
    """The innermost block that encloses both."""
    while a is not b:
        deeper = a if a.depth >= b.depth else b
        outer = deeper.outer
        assert outer is not None  # all lie in one
        a, b = (outer, b) if deeper is a else (a, outer)
    return a
