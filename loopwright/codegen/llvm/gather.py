"""Vector loads from one or two stretches of neighbours: ``A[v // 8 * 32 + v % 8]`` reads two.

Each lane's offset is known up to one base. The stretches are loaded whole and joined by a shuffle;
nothing between them is touched, so that what is kept in registers stays there.
"""

from __future__ import annotations

from loopwright import dtypes
from loopwright.codegen.llvm.indices import LANE, IndexWriter, flat_offset
from loopwright.codegen.llvm.memory import Memory, memory_type
from loopwright.codegen.llvm.ops import Value, llvm_type
from loopwright.ir.affine import Affine, to_affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr
from loopwright.ir.traversal import free_vars


def load_stretches(memory: Memory, b: Buffer, indices: tuple[Expr, ...]) -> Value | None:
    """Load a vector from stretches of neighbours.

    Returns:
        The value; None where lanes are masked, their offsets are not known, or they lie otherwise.
    """
    w = memory.w
    same = memory_type(b.dtype) == llvm_type(b.dtype)
    if w.lanes == 1 or w.mask is not None or not same or b.symbolic:
        return None
    if all(w.affine(i) is not None for i in indices):
        return None
    at = [_lane_offset(w, b, indices, lane) for lane in range(w.lanes)]
    first = at[0]
    if first is None:
        return None
    steps = [x.const - first.const for x in at if x is not None and x.terms == first.terms]
    return _joined(memory, b, first, steps) if len(steps) == w.lanes else None


def _lane_offset(w: IndexWriter, b: Buffer, indices: tuple[Expr, ...], lane: int) -> Affine | None:
    """Offset in elements of one lane."""
    parts = []
    for i in indices:
        variables = free_vars(i)
        if not w.bound.keys().isdisjoint(variables):
            return None
        env = {v: w.env[v].substitute({LANE: Affine(lane)}) for v in variables if v in w.env}
        part = to_affine(i, env, w.ranges)
        if part is None:
            return None
        parts.append(part)
    return flat_offset(b, parts)


def _joined(memory: Memory, b: Buffer, first: Affine, steps: list[int]) -> Value | None:
    """One load for each stretch, and a shuffle; None where there are more than two."""
    w = memory.w
    n, ty, size = w.lanes, memory_type(b.dtype), dtypes.nbytes(b.dtype)
    wanted = sorted(set(steps))
    starts = [k for i, k in enumerate(wanted) if i == 0 or k != wanted[i - 1] + 1]
    length = len(wanted) // len(starts)
    even = all(k + length - 1 in wanted for k in starts) and length * len(starts) == len(wanted)
    if len(starts) > 2 or length == 1 or not even:
        return None
    vty, parts = f"<{length} x {ty}>", []
    for k in starts:
        p = memory.address(b, first + k)
        parts.append(w.emit(f"load {vty}, ptr {p}, align {size}"))
    place = {k: i for i, k in enumerate(wanted)}
    mask = ", ".join(f"i32 {place[k]}" for k in steps)
    other = parts[1] if len(parts) == 2 else "poison"
    out = w.emit(f"shufflevector {vty} {parts[0]}, {vty} {other}, <{n} x i32> <{mask}>")
    return Value(out, b.dtype, n)
