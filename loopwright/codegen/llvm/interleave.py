"""Copies that lay a few rows in turn beside each other, through registers.

An unrolled loop around a vectorized one that copies ``to[u + v*g] = from[v + u*T]`` for g rows, as
operands of dot product instructions are packed, loads a vector of each row and interleaves them by
shuffles; element by element it would take a store for each.
"""

from __future__ import annotations

from loopwright import dtypes
from loopwright.codegen.llvm.memory import Memory, memory_type
from loopwright.codegen.llvm.transpose import BufferOffset, atoms
from loopwright.ir.affine import Affine
from loopwright.ir.buffer import Load
from loopwright.ir.stmt import For, Store

#: Rows that are interleaved.
_ROWS = (2, 4)


def interleaved_copy(memory: Memory, s: For) -> bool:
    """Write an unrolled loop as shuffles if it is such a copy; whether it was."""
    w, inner = memory.w, s.body
    if s.count not in _ROWS or w.lanes != 1 or w.mask is not None:
        return False
    if not isinstance(inner, For) or inner.kind != "vectorized":
        return False
    copy = inner.body
    if not isinstance(copy, Store) or not isinstance(copy.value, Load):
        return False
    to, source = copy.buffer, copy.value.buffer
    if to.dtype != source.dtype or to.dtype == "bool":
        return False
    u, v = atoms(w, s, inner)
    a, b = w.offset_form(to, copy.indices), w.offset_form(source, copy.value.indices)
    if a is None or b is None:
        return False
    if (a.terms.get(u), a.terms.get(v), b.terms.get(v)) != (1, s.count, 1):
        return False
    corner = {u: Affine(0), v: Affine(0)}
    first, start = (
        BufferOffset(to, a.substitute(corner)),
        BufferOffset(source, b.substitute(corner)),
    )
    apart = b.terms.get(u, 0)
    at, piece = 0, max(1, w.module.vector_bytes // dtypes.nbytes(to.dtype) // s.count)
    while at < inner.count:
        if at + piece > inner.count:
            piece //= 2
            continue
        rows = [_moved(start, at + apart * k) for k in range(s.count)]
        _interleave(memory, _moved(first, at * s.count), rows, piece)
        at += piece
    return True


def _moved(x: BufferOffset, by: int) -> BufferOffset:
    return BufferOffset(x.buffer, x.offset + by)


def _interleave(memory: Memory, to: BufferOffset, rows: list[BufferOffset], lanes: int) -> None:
    """Store a vector of each row, their elements in turn."""
    w, ty, align = memory.w, memory_type(to.buffer.dtype), dtypes.nbytes(to.buffer.dtype)
    vectors = [
        w.emit(f"load <{lanes} x {ty}>, ptr {memory.address(x.buffer, x.offset)}, align {align}")
        for x in rows
    ]
    while len(vectors) > 1:
        half = len(vectors) // 2
        picks = ", ".join(f"i32 {k // 2 + k % 2 * lanes}" for k in range(2 * lanes))
        vty = f"<{lanes} x {ty}>"
        vectors = [
            w.emit(f"shufflevector {vty} {x}, {vty} {y}, <{2 * lanes} x i32> <{picks}>")
            for x, y in zip(vectors[:half], vectors[half:], strict=True)
        ]
        lanes *= 2
    at = memory.address(to.buffer, to.offset)
    w.put(f"store <{lanes} x {ty}> {vectors[0]}, ptr {at}, align {align}")
