"""Redirection of accesses of buffers that a pass has replaced by others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from loopwright.errors import LowerError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr
from loopwright.ir.node import Node
from loopwright.ir.stmt import CallPacked, Prefetch, Store

Indices = tuple[Expr, ...]


def redirected(n: Node, new: Mapping[Buffer, Buffer], at: Callable[[Indices], Indices]) -> Node:
    """A node, its children redirected already, with accesses of buffers in ``new`` redirected.

    ``at`` gives the indices of an element in the replacement. A packed function cannot be given a
    buffer that is replaced.
    """
    match n:
        case Load(buffer=b, indices=idx, dtype=d) if b in new:
            return Load(new[b], at(idx), d)
        case Store(buffer=b, indices=idx, value=v, nontemporal=past) if b in new:
            return Store(new[b], at(idx), v, past)
        case Prefetch(buffer=b, indices=idx) if b in new:
            return Prefetch(new[b], at(idx))
        case CallPacked(name=name, buffers=buffers) if not new.keys().isdisjoint(buffers):
            moved = next(b for b in buffers if b in new)
            raise LowerError(
                f"call_packed {name!r} is given {moved.name!r}, of which every lane or virtual "
                "thread has its own; allocate it outside of that loop"
            )
    return n
