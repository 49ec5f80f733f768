"""Workspace of a function, as a number of bytes or a formula over its sizes, which generated code
computes for its addresses and the manifest holds for whoever calls the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce as fold
from typing import Any

from loopwright import dtypes
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var, binary, cast
from loopwright.ir.node import same
from loopwright.ir.sizes import SizeVar
from loopwright.ir.traversal import free_vars

#: A number of bytes: an int, or an int64 expression over size variables.
Bytes = int | Expr


class SizeDefinitions:
    """Definitions of the variables that a function computes from its sizes."""

    def __init__(self, by_variable: Mapping[Var, Expr] | None = None) -> None:
        self.by_variable = dict(by_variable or {})

    def learn(self, v: Var, value: Expr) -> None:
        """Note a definition if it depends on sizes only."""
        if all(isinstance(w, SizeVar) or w in self.by_variable for w in free_vars(value)):
            self.by_variable[v] = value

    def definition(self, n: Bytes) -> Bytes:
        """A number of bytes over the size variables only."""
        return n if isinstance(n, int) else self._expand(n)

    def _expand(self, e: Any) -> Any:  # an expression gives an expression
        if isinstance(e, Var) and e in self.by_variable:
            return self._expand(self.by_variable[e])
        return e.map_children(self._expand)


def buffer_bytes(b: Buffer) -> Bytes:
    """Bytes of a buffer, rounded up to whole cache lines."""
    if not b.symbolic:
        return -(-b.nbytes // 64) * 64
    dims = [cast(n, "int64") for n in b.shape]
    size = fold(lambda x, y: binary("*", x, y), dims)
    return (size * dtypes.nbytes(b.dtype) + 63) // 64 * 64


def kept_offsets(buffers: Sequence[Buffer]) -> list[int]:
    """Offsets of the buffers between the parts of a function in the workspace of the whole, which
    begins with them; last, that of the parts' workspace."""
    offsets = [0]
    for b in buffers:
        offsets.append(offsets[-1] + -(-b.nbytes // 64) * 64)
    return offsets


def larger(a: Bytes, b: Bytes) -> Bytes:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if same(a, b) or same(b, 0) else b if same(a, 0) else binary("max", a, b)
