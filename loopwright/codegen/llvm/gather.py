"""Vector loads of elements that lie near each other, though not one after the other.

Stretches: ``A[v // 8 * 32 + v % 8]`` reads two stretches of neighbours. Each lane's offset is
known up to one base. The stretches are loaded whole and joined by a shuffle; nothing between them
is touched, so that what is kept in registers stays there.

Windows: in ``A[abs(v - 1)]``, ``A[min(v, 9)]`` and ``A[v // 2]`` no lane is further than one place
from the one before. So all lie in one vector of neighbours, wherever an axis is reflected, ends
or is repeated: it is loaded whole, from the least of the lanes' indices, and permuted.
"""

from __future__ import annotations

from typing import NamedTuple

from loopwright import dtypes
from loopwright.codegen.llvm.indices import LANE, IndexWriter, flat_offset
from loopwright.codegen.llvm.memory import Memory, memory_type
from loopwright.codegen.llvm.values import Value, llvm_type
from loopwright.ir.affine import Affine, to_affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Binary, Call, Cast, Const, Expr, Var
from loopwright.ir.traversal import free_vars


class Permutation(NamedTuple):
    """An intrinsic of x86 that picks lanes of a vector, and the dtype of the numbers of lanes."""

    intrinsic: str
    numbers: str


#: Permutations by bits of an element, whether it is a float, and lanes; and what the CPU needs.
_PERMUTATIONS = {
    (32, True, 16): (Permutation("avx512.permvar.sf.512", "int32"), 64),
    (32, False, 16): (Permutation("avx512.permvar.si.512", "int32"), 64),
    (64, True, 8): (Permutation("avx512.permvar.df.512", "int64"), 64),
    (64, False, 8): (Permutation("avx512.permvar.di.512", "int64"), 64),
    (32, True, 8): (Permutation("avx2.permps", "int32"), 32),
    (32, False, 8): (Permutation("avx2.permd", "int32"), 32),
}


def load_stretches(memory: Memory, b: Buffer, indices: tuple[Expr, ...]) -> Value | None:
    """Load a vector from stretches of neighbours; None where lanes are masked, their offsets are
    not known, or they lie otherwise."""
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


# ---------------------------------------------------------------- windows


def load_window(memory: Memory, b: Buffer, indices: tuple[Expr, ...]) -> Value | None:
    """Load a vector from a window of as many neighbours; None where lanes may lie further
    apart, the CPU does not permute such vectors, rows are shorter, or the buffer may be kept
    in registers."""
    w = memory.w
    permutation = _permutation(w, b)
    in_registers = w.pointers[b].startswith("%b")
    if permutation is None or b.symbolic or b.strides is not None or in_registers:
        return None
    *outer, last = indices
    row = b.extents[-1]
    if row < w.lanes or w.affine(last) is not None:
        return None
    if _steepness(w, last) != 1 or any(_steepness(w, i) != 0 for i in outer):
        return None
    at = w.ops.cast(w.expr(last), "int32")
    start = _start(w, at, row - w.lanes)
    first = Var("window", "int32")
    w.bound[first] = start
    ptr = _row(memory, b, (*outer, first))
    del w.bound[first]
    ty, size = f"<{w.lanes} x {memory_type(b.dtype)}>", dtypes.nbytes(b.dtype)
    x = w.emit(f"load {ty}, ptr {ptr}, align {size}")
    picks = w.ops.cast(w.ops.binary("-", at, start, "int32"), permutation.numbers)
    name, numbers = f"llvm.x86.{permutation.intrinsic}", llvm_type(permutation.numbers, w.lanes)
    w.declare(name, f"declare {ty} @{name}({ty}, {numbers})")
    return Value(w.emit(f"call {ty} @{name}({ty} {x}, {numbers} {picks.ref})"), b.dtype, w.lanes)


def _permutation(w: IndexWriter, b: Buffer) -> Permutation | None:
    if memory_type(b.dtype) != llvm_type(b.dtype):
        return None
    key = (dtypes.bits(b.dtype), dtypes.is_float(b.dtype), w.lanes)
    found, needed = _PERMUTATIONS.get(key, (None, 0))
    return found if w.module.permuted_bytes >= needed else None


def _start(w: IndexWriter, at: Value, last: int) -> Value:
    """Beginning of the window: the least index, but within the row, also where lanes that are
    switched off lie outside of it."""
    name = f"llvm.vector.reduce.smin.v{at.lanes}i32"
    ty = llvm_type("int32", at.lanes)
    w.declare(name, f"declare i32 @{name}({ty})")
    least = Value(w.pure(f"call i32 @{name}({ty} {at.ref})"), "int32")
    clamped = w.ops.binary("max", least, w.ops.const(0, least), "int32")
    return w.ops.binary("min", clamped, w.ops.const(last, clamped), "int32")


def _row(memory: Memory, b: Buffer, indices: tuple[Expr, ...]) -> str:
    """Pointer to an element; to the first one where no lane is active, since the row of such a
    load need not exist."""
    w = memory.w
    offset = w.offset(b, indices)
    if w.mask is None:
        return memory.pointer(b, offset)
    at = w.pure(f"select i1 {w.any_active()}, i64 {w.i64(offset).ref}, i64 0")
    return w.pure(f"getelementptr {memory_type(b.dtype)}, ptr {w.pointers[b]}, i64 {at}")


def _steepness(w: IndexWriter, e: Expr) -> int | None:
    """Largest move of an index from one lane to the next; None where that is not known."""
    form = w.affine(e)
    if form is not None:
        return abs(form.terms.get(LANE, 0))
    match e:
        case Cast(value=x) if dtypes.is_int(e.dtype) and dtypes.is_int(x.dtype):
            return _steepness(w, x) if dtypes.bits(e.dtype) >= dtypes.bits(x.dtype) else None
        case Call(fn="abs", args=(x,)):
            return _steepness(w, x)
        case Binary(op="//", a=x, b=Const(value=int(n))) if n > 0:
            steps = _steepness(w, x)
            return None if steps is None else -(-steps // n)
        case Binary(op="+" | "-" | "min" | "max" as op, a=x, b=y):
            both = [_steepness(w, x), _steepness(w, y)]
            known = [n for n in both if n is not None]
            if len(known) < len(both):
                return None
            return max(known) if op in ("min", "max") else sum(known)
    return 0 if _is_uniform(w, e) else None


def _is_uniform(w: IndexWriter, e: Expr) -> bool:
    for v in free_vars(e):
        if v in w.bound and w.bound[v].lanes > 1:
            return False
        if v not in w.bound and (v not in w.env or LANE in w.env[v].terms):
            return False
    return True
