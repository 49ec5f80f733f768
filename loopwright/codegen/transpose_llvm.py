"""Copies that swap two loops, through registers instead of an element at a time.

An unrolled loop around a vectorized one that copies ``to[v + u*S] = from[u + v*T]`` (or the other
way round) is cut into squares of native vectors. A square is loaded by rows, turned by a network of
log2(n) rounds of two-vector shuffles, and stored by columns: n*log2(n) shuffles where element loads
would take n*n (Eklundh, IEEE Trans. Computers 1972).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright import dtypes
from loopwright.codegen.memory_llvm import memory_type
from loopwright.ir.affine import Affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.stmt import For, Store

if TYPE_CHECKING:
    from loopwright.codegen.writer_llvm import FunctionWriter

#: Largest square that is turned, in elements a side; its rows are to stay in registers.
_LARGEST = 16


def transposed_copy(w: FunctionWriter, s: For) -> bool:
    """Write an unrolled loop as turned squares if it is such a copy; whether it was."""
    inner = s.body
    if not isinstance(inner, For) or inner.kind != "vectorized":
        return False
    copy = inner.body
    if not isinstance(copy, Store) or not isinstance(copy.value, Load):
        return False
    to, source = copy.buffer, copy.value.buffer
    n = w.m.vector_bytes // dtypes.nbytes(to.dtype)
    whole = 2 <= n <= _LARGEST and s.extent % n == 0 and inner.extent % n == 0
    if not whole or w.lanes != 1 or w.mask is not None:
        return False
    if to.dtype != source.dtype or to.dtype == "bool":
        return False
    a, b = w.offset_of(to, copy.indices), w.offset_of(source, copy.value.indices)
    if a is None or b is None:
        return False
    loops = (s, inner)
    for along, across in (loops, loops[::-1]):
        # ``along`` runs through memory where it is read, ``across`` where it is written.
        if (b.terms.get(along.var), a.terms.get(across.var)) != (1, 1):
            continue
        if b.terms.get(across.var, 0) in (0, 1) or a.terms.get(along.var, 0) in (0, 1):
            continue
        _squares(w, to, a, source, b, along, across, n)
        return True
    return False


def _squares(
    w: FunctionWriter,
    to: Buffer,
    a: Affine,
    source: Buffer,
    b: Affine,
    along: For,
    across: For,
    n: int,
) -> None:
    steps_to, steps_source = a.terms[along.var], b.terms[across.var]
    here = {along.var: Affine(0), across.var: Affine(0)}
    first, start = (x.substitute({**w.env, **here}) for x in (a, b))
    vty = f"<{n} x {memory_type(to.dtype)}>"
    align = dtypes.nbytes(to.dtype)
    for i in range(0, along.extent, n):
        for j in range(0, across.extent, n):
            rows = []
            for k in range(n):
                place = w.memory.address(source, start + (i + steps_source * (j + k)))
                rows.append(w.emit(f"load {vty}, ptr {place}, align {align}"))
            for k, column in enumerate(_turned(w, rows, vty)):
                place = w.memory.address(to, first + (j + steps_to * (i + k)))
                w.put(f"store {vty} {column}, ptr {place}, align {align}")


def _turned(w: FunctionWriter, rows: list[str], vty: str) -> list[str]:
    """The columns of a square given by its rows.

    A round rotates the bits of an element's number (row * n + column) by one: even elements of each
    pair of vectors go to the first half, odd ones to the second.
    """
    n = len(rows)
    for _ in range(n.bit_length() - 1):
        halves: list[list[str]] = [[], []]
        for k in range(0, n, 2):
            for odd in (0, 1):
                picks = ", ".join(f"i32 {2 * lane + odd}" for lane in range(n))
                pair = f"{vty} {rows[k]}, {vty} {rows[k + 1]}"
                halves[odd].append(w.emit(f"shufflevector {pair}, <{n} x i32> <{picks}>"))
        rows = halves[0] + halves[1]
    return rows
