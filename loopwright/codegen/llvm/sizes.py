"""Symbolic sizes in LLVM: addresses with symbolic strides, and how much workspace is needed.

Numbers of bytes are ints or, where they depend on sizes, expressions in int64 that the function
computes for its addresses and that the manifest holds for whoever calls it.
"""

from __future__ import annotations

from functools import reduce as fold
from typing import TYPE_CHECKING, Any

from loopwright import dtypes
from loopwright.ir.affine import Affine, interval
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var, binary, cast
from loopwright.ir.sizes import SizeVar
from loopwright.ir.traversal import free_vars

if TYPE_CHECKING:
    from loopwright.codegen.llvm.indices import IndexWriter


#: A number of bytes.
Bytes = Any


class SizeNames:
    """What the names made of sizes at the start of a function stand for."""

    def __init__(self, known: dict[Var, Expr] | None = None) -> None:
        self.known = dict(known or {})

    def learn(self, v: Var, value: Expr) -> None:
        """Note a definition if it depends on sizes only."""
        if all(isinstance(w, SizeVar) or w in self.known for w in free_vars(value)):
            self.known[v] = value

    def definition(self, n: Bytes) -> Bytes:
        """A number of bytes over the size variables only."""

        def go(e: Any) -> Any:
            return go(self.known[e]) if e in self.known else e.map_children(go)

        return n if isinstance(n, int) else go(n)


def nbytes(b: Buffer) -> Bytes:
    """Bytes of a buffer, rounded up to whole cache lines."""
    if not b.symbolic:
        return -(-b.nbytes // 64) * 64
    dims = [cast(n, "int64") for n in b.shape]
    size = fold(lambda x, y: binary("*", x, y), dims)
    return (size * dtypes.nbytes(b.dtype) + 63) // 64 * 64


def larger(a: Bytes, b: Bytes) -> Bytes:
    """The larger of two."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if b == 0 or a == b else b if a == 0 else binary("max", a, b)


def last_index(w: IndexWriter, n: Any) -> int:
    """The largest index below an extent, as far as known."""
    if isinstance(n, int):
        return n - 1
    most = interval(n, w.env, w.ranges)
    return most[1] - 1 if most is not None else 1 << 40


def flat_symbolic(w: IndexWriter, b: Buffer, indices: list[Affine]) -> Affine | None:
    """Offset in elements of an access to a buffer of symbolic shape, over registers.

    None where the lanes of a vector lie a symbolic distance apart.
    """
    from loopwright.codegen.llvm.memory import LANE

    out = Affine(0)
    for i, n in zip(indices, b.shape, strict=True):
        if LANE in out.terms and not isinstance(n, int):
            return None
        out = (out * n if isinstance(n, int) else _times(w, out, n)) + i
    return out


def _times(w: IndexWriter, x: Affine, n: Expr) -> Affine:
    """``x * n``: one multiplication for each register of x, shared within a scope."""
    length = w.count_of(n)
    if not length.startswith("%"):
        return x * int(length)
    out = Affine(0, {w.atom(length): x.const} if x.const else {})
    for v, c in x.terms.items():
        out = out + Affine(0, {w.atom(_product(w, v, length)): c})
    return out


def _product(w: IndexWriter, v: Var, length: str) -> str:
    return w.cached(("product", v, length), lambda: w.emit(f"mul i64 {v.name}, {length}"))
