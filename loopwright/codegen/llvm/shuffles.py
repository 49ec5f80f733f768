"""Copies that swap two loops, through registers instead of an element at a time."""

# An unrolled loop around a vectorized one that copies ``to[v + u*S] = from[u + v*T]`` (or the other
# way round) is cut into squares of native vectors. A square is loaded by rows, turned by a network
# of log2(n) rounds of two-vector shuffles, and stored by columns: n*log2(n) shuffles where element
# loads would take n*n (Eklundh, IEEE Trans. Computers 1972).

from __future__ import annotations

from typing import NamedTuple

from loopwright import dtypes
from loopwright.codegen.llvm.emitter import Value, llvm_type
from loopwright.codegen.llvm.indices import LANE, IndexWriter, flat_offset
from loopwright.codegen.llvm.memory import FunctionMemory, memory_type
from loopwright.ir.affine import Affine, to_affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Call, Cast, Const, Expr, Var
from loopwright.ir.stmt import For, If, Store
from loopwright.ir.visitor import free_vars

#: Largest square that is turned, in elements a side; its rows are to stay in registers.
_LARGEST = 16


class BufferOffset(NamedTuple):
    buffer: Buffer
    offset: Affine


class _Loop(NamedTuple):
    """A loop of the copy: the variable that stands for it in offsets, and its extent."""

    atom: Var
    extent: int


def transposed_copy(memory: FunctionMemory, s: For) -> bool:
    """Write an unrolled loop as turned squares if it is such a copy; whether it was."""
    w, copy = memory.w, _copy_in(memory.w, s)
    if copy is None:
        return False
    (u, v), (to, a), (_, b) = copy.loops, copy.to, copy.source
    n = min(w.module.vector_bytes // dtypes.nbytes(to.dtype), _LARGEST)
    if n <= 1 or u.extent % n or v.extent % n:
        return False
    for along, across in ((u, v), (v, u)):
        # ``along`` runs through memory where it is read, ``across`` where it is written.
        if (b.terms.get(along.atom), a.terms.get(across.atom)) != (1, 1):
            continue
        if b.terms.get(across.atom, 0) in (0, 1) or a.terms.get(along.atom, 0) in (0, 1):
            continue
        past = copy.nontemporal and memory.may_stream(to, n)
        _squares(memory, copy.to, copy.source, (along, across), n, past)
        return True
    return False


class _Copy(NamedTuple):
    loops: tuple[_Loop, _Loop]
    to: BufferOffset
    source: BufferOffset
    nontemporal: bool


def _copy_in(w: IndexWriter, s: For) -> _Copy | None:
    """The copy that is all of the vectorized loop in a loop; None where that changes the dtype."""
    match s.body:
        case (
            For(kind="vectorized", body=Store(buffer=to, value=Load() as load) as copy) as inner
        ) if w.lanes == 1 and w.mask is None and to.dtype == load.buffer.dtype != "bool":
            u, v = atoms(w, s, inner)
            a, b = w.offset_form(to, copy.indices), w.offset_form(load.buffer, load.indices)
            if a is not None and b is not None:
                loops = _Loop(u, s.count), _Loop(v, inner.count)
                ends = BufferOffset(to, a), BufferOffset(load.buffer, b)
                return _Copy(loops, *ends, copy.nontemporal)
    return None


def rest_of_copy(w: IndexWriter, s: For) -> For | None:
    """Plain loops for an unrolled one that copies what is left of a tile; None for any other."""
    # Such a loop holds elements behind a guard, with lanes that lie apart. It runs once where the
    # tile's whole squares run often, but written out it would be most of the text.
    match s.body:
        case If(
            cond=cond,
            then=For(kind="vectorized", body=Store(value=Load() as read) as copy) as inner,
            orelse=None,
        ) if w.lanes == 1:
            if any(w.pointers[b].startswith("%b") for b in (copy.buffer, read.buffer)):
                return None
            _, v = atoms(w, s, inner)
            forms = [w.offset_form(x.buffer, x.indices) for x in (copy, read)]
            if all(f is not None and f.terms.get(v) == 1 for f in forms):
                return None
            elements = For(inner.var, inner.extent, "serial", copy)
            return For(s.var, s.extent, "serial", If(cond, elements))
    return None


def atoms(w: IndexWriter, *loops: For) -> list[Var]:
    atoms = [Var(f"%u{k}", "int64") for k in range(len(loops))]
    for loop, atom in zip(loops, atoms, strict=True):
        w.env[loop.var] = Affine.of(atom)
        w.ranges[atom] = (0, loop.count - 1)
    return atoms


def _squares(
    memory: FunctionMemory,
    to: BufferOffset,
    source: BufferOffset,
    loops: tuple[_Loop, _Loop],
    n: int,
    past: bool,
) -> None:
    w, (along, across) = memory.w, loops
    steps_to, steps_source = to.offset.terms[along.atom], source.offset.terms[across.atom]
    corner = {along.atom: Affine(0), across.atom: Affine(0)}
    first, start = to.offset.substitute(corner), source.offset.substitute(corner)
    turn = _turning(w, memory_type(to.buffer.dtype), dtypes.nbytes(to.buffer.dtype), n, past)
    for i in range(0, along.extent, n):
        for j in range(0, across.extent, n):
            rows = memory.address(source.buffer, start + (i + steps_source * j))
            columns = memory.address(to.buffer, first + (j + steps_to * i))
            steps = f"i64 {steps_source}, ptr {columns}, i64 {steps_to}"
            w.put(f"call void @{turn}(ptr {rows}, {steps})")


def _turning(w: IndexWriter, ty: str, align: int, n: int, past: bool) -> str:
    """Name of the module's function that transposes a square of n x n elements, written once; with
    ``past`` it stores past the caches where all columns lie on multiples of their size."""
    # It is called and not inlined: the optimiser takes 5 to 10 ms for each copy of the network.
    name = f"turn_{ty}x{n}" + ("_past" if past else "")
    if name in w.module.squares:
        return name
    w.module.squares.add(name)
    vty = f"<{n} x {ty}>"
    lines = []
    for k in range(n):
        lines.append(f"  %i{k} = mul i64 %from.step, {k}")
        lines.append(f"  %f{k} = getelementptr {ty}, ptr %from, i64 %i{k}")
        lines.append(f"  %r{k} = load {vty}, ptr %f{k}, align {align}")
    columns = _turned(lines, n, vty)
    for k in range(n):
        lines.append(f"  %j{k} = mul i64 %to.step, {k}")
        lines.append(f"  %t{k} = getelementptr {ty}, ptr %to, i64 %j{k}")
    if past:
        lines += _aligned_first(columns, vty, align, n, w.module.nontemporal())
    for k, column in enumerate(columns):
        lines.append(f"  store {vty} {column}, ptr %t{k}, align {align}")
    params = "ptr noalias %from, i64 %from.step, ptr noalias %to, i64 %to.step"
    head = f"define internal void @{name}({params}) noinline nounwind {{"
    w.module.functions.append("\n".join([head, "entry:", *lines, "  ret void", "}"]))
    return name


def _aligned_first(columns: list[str], vty: str, align: int, n: int, metadata: str) -> list[str]:
    """Lines that store columns past the caches and return, where all lie on multiples of their
    size; elsewhere they go on."""
    lines = [
        "  %at = ptrtoint ptr %to to i64",
        f"  %apart = mul i64 %to.step, {align}",
        "  %either = or i64 %at, %apart",
        f"  %low = and i64 %either, {n * align - 1}",
        "  %aligned = icmp eq i64 %low, 0",
        "  br i1 %aligned, label %past, label %through",
        "past:",
    ]
    for k, column in enumerate(columns):
        lines.append(
            f"  store {vty} {column}, ptr %t{k}, align {n * align}, !nontemporal {metadata}"
        )
    return [*lines, "  ret void", "through:"]


def _turned(lines: list[str], n: int, vty: str) -> list[str]:
    """Write the network; the columns of the square whose rows are ``%r0``, ``%r1``, ..."""
    # A round rotates the bits of an element's number (row * n + column) by one: even elements of
    # each pair of vectors go to the first half, odd ones to the second. All rounds are alike, so
    # they are a loop: instruction selection looks long through chains of shuffles that are written
    # out.
    lines += ["  br label %round", "round:"]
    lines.append("  %turn = phi i32 [ 0, %entry ], [ %next, %round ]")
    halves: list[list[str]] = [[], []]
    shuffles = []
    for k in range(n):
        picks = ", ".join(f"i32 {2 * lane + k % 2}" for lane in range(n))
        pair = f"{vty} %x{k - k % 2}, {vty} %x{k + 1 - k % 2}"
        shuffles.append(f"  %s{k} = shufflevector {pair}, <{n} x i32> <{picks}>")
        halves[k % 2].append(f"%s{k}")
    rows = halves[0] + halves[1]
    lines += [f"  %x{k} = phi {vty} [ %r{k}, %entry ], [ {x}, %round ]" for k, x in enumerate(rows)]
    lines += [*shuffles, "  %next = add nuw nsw i32 %turn, 1"]
    lines.append(f"  %more = icmp ult i32 %next, {n.bit_length() - 1}")
    lines += ["  br i1 %more, label %round, label %turned", "turned:"]
    return rows


# ---------------------------------------------------------------- interleaved copies
#
# Copies that lay a few rows in turn beside each other, through registers.
#
# An unrolled loop around a vectorized one that copies ``to[u + v*g] = from[v + u*T]`` for g rows,
# as operands of dot product instructions are packed, loads a vector of each row and interleaves
# them by shuffles; element by element it would take a store for each.


def interleaved_copy(memory: FunctionMemory, s: For) -> bool:
    """Write an unrolled loop as shuffles if it is such a copy; whether it was."""
    w, copy = memory.w, _copy_in(memory.w, s)
    if copy is None or s.count not in (2, 4):
        return False
    ((u, _), (v, count)), (to, a), (source, b) = copy.loops, copy.to, copy.source
    if (a.terms.get(u), a.terms.get(v), b.terms.get(v)) != (1, s.count, 1):
        return False
    corner = {u: Affine(0), v: Affine(0)}
    first = BufferOffset(to, a.substitute(corner))
    start = BufferOffset(source, b.substitute(corner))
    apart = b.terms.get(u, 0)
    at, piece = 0, max(1, w.module.vector_bytes // dtypes.nbytes(to.dtype) // s.count)
    while at < count:
        if at + piece > count:
            piece //= 2
            continue
        rows = [_moved(start, at + apart * k) for k in range(s.count)]
        _interleave(memory, _moved(first, at * s.count), rows, piece)
        at += piece
    return True


def _moved(x: BufferOffset, by: int) -> BufferOffset:
    return BufferOffset(x.buffer, x.offset + by)


def _interleave(
    memory: FunctionMemory, to: BufferOffset, rows: list[BufferOffset], lanes: int
) -> None:
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


# ---------------------------------------------------------------- gathers
#
# Vector loads of elements that lie near each other, though not one after the other.
#
# Stretches: ``A[v // 8 * 32 + v % 8]`` reads two stretches of neighbours. Each lane's offset is
# known up to one base. The stretches are loaded whole and joined by a shuffle; nothing between them
# is touched, so that what is kept in registers stays there.
#
# Windows: in ``A[abs(v - 1)]``, ``A[min(v, 9)]`` and ``A[v // 2]`` no lane is further than one
# place from the one before. So all lie in one vector of neighbours, wherever an axis is reflected,
# ends or is repeated: it is loaded whole, from the least of the lanes' indices, and permuted.


#: Intrinsics of x86 that pick lanes of a vector, by bits of an element, whether it is a float, and
#: lanes: name, dtype of the numbers of lanes, and `permuted_bytes` that the CPU needs.
_PERMUTATIONS = {
    (32, True, 16): ("avx512.permvar.sf.512", "int32", 64),
    (32, False, 16): ("avx512.permvar.si.512", "int32", 64),
    (64, True, 8): ("avx512.permvar.df.512", "int64", 64),
    (64, False, 8): ("avx512.permvar.di.512", "int64", 64),
    (32, True, 8): ("avx2.permps", "int32", 32),
    (32, False, 8): ("avx2.permd", "int32", 32),
}


def load_stretches(memory: FunctionMemory, b: Buffer, indices: tuple[Expr, ...]) -> Value | None:
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


def _joined(memory: FunctionMemory, b: Buffer, first: Affine, steps: list[int]) -> Value | None:
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


def load_window(memory: FunctionMemory, b: Buffer, indices: tuple[Expr, ...]) -> Value | None:
    """Load a vector from a window of as many neighbours; None where lanes may lie further apart,
    the CPU does not permute such vectors, rows are shorter, or the buffer may be kept in registers.
    """
    w = memory.w
    key = (dtypes.bits(b.dtype), dtypes.is_float(b.dtype), w.lanes)
    intrinsic, numbers, needed = _PERMUTATIONS.get(key, ("", "", 0))
    permutes = intrinsic and memory_type(b.dtype) == llvm_type(b.dtype)
    if not permutes or w.module.permuted_bytes < needed or w.pointers[b].startswith("%b"):
        return None
    if b.symbolic or b.strides is not None:
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
    picks = w.ops.cast(w.ops.binary("-", at, start, "int32"), numbers)
    name, nty = f"llvm.x86.{intrinsic}", llvm_type(numbers, w.lanes)
    w.declare(name, f"declare {ty} @{name}({ty}, {nty})")
    return Value(w.emit(f"call {ty} @{name}({ty} {x}, {nty} {picks.ref})"), b.dtype, w.lanes)


def _start(w: IndexWriter, at: Value, last: int) -> Value:
    """Beginning of the window: the least index, but within the row, also where lanes that are
    switched off lie outside of it."""
    name = f"llvm.vector.reduce.smin.v{at.lanes}i32"
    ty = llvm_type("int32", at.lanes)
    w.declare(name, f"declare i32 @{name}({ty})")
    least = Value(w.pure(f"call i32 @{name}({ty} {at.ref})"), "int32")
    clamped = w.ops.binary("max", least, w.ops.const(0, least), "int32")
    return w.ops.binary("min", clamped, w.ops.const(last, clamped), "int32")


def _row(memory: FunctionMemory, b: Buffer, indices: tuple[Expr, ...]) -> str:
    """Pointer to an element; to the first one where no lane is active, since the row of such a load
    need not exist."""
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
            moves = [n for n in both if n is not None]
            if len(moves) < len(both):
                return None
            return max(moves) if op in ("min", "max") else sum(moves)
    uniform = all(
        w.bound[v].lanes == 1 if v in w.bound else v in w.env and LANE not in w.env[v].terms
        for v in free_vars(e)
    )
    return 0 if uniform else None
