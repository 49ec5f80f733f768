"""Copies that swap two loops, through registers instead of an element at a time.

An unrolled loop around a vectorized one that copies ``to[v + u*S] = from[u + v*T]`` (or the other
way round) is cut into squares of native vectors. A square is loaded by rows, turned by a network of
log2(n) rounds of two-vector shuffles, and stored by columns: n*log2(n) shuffles where element loads
would take n*n (Eklundh, IEEE Trans. Computers 1972).
"""

from __future__ import annotations

from typing import NamedTuple

from loopwright import dtypes
from loopwright.codegen.llvm.indices import IndexWriter
from loopwright.codegen.llvm.memory import Memory, memory_type
from loopwright.ir.affine import Affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var
from loopwright.ir.stmt import For, If, Store

#: Largest square that is turned, in elements a side; its rows are to stay in registers.
_LARGEST = 16


class BufferOffset(NamedTuple):
    """Elements of a buffer, by their offset as an affine form."""

    buffer: Buffer
    offset: Affine


class _Loop(NamedTuple):
    """A loop of the copy: the variable that stands for it in offsets, and its extent."""

    atom: Var
    extent: int


def transposed_copy(memory: Memory, s: For) -> bool:
    """Write an unrolled loop as turned squares if it is such a copy; whether it was."""
    w, inner = memory.w, s.body
    if not isinstance(inner, For) or inner.kind != "vectorized":
        return False
    copy = inner.body
    if not isinstance(copy, Store) or not isinstance(copy.value, Load):
        return False
    to, source = copy.buffer, copy.value.buffer
    n = min(w.module.vector_bytes // dtypes.nbytes(to.dtype), _LARGEST)
    whole = n > 1 and s.extent % n == 0 and inner.extent % n == 0
    if not whole or w.lanes != 1 or w.mask is not None:
        return False
    if to.dtype != source.dtype or to.dtype == "bool":
        return False
    u, v = atoms(w, s, inner)
    a = w.offset_form(to, copy.indices)
    b = w.offset_form(source, copy.value.indices)
    if a is None or b is None:
        return False
    sides = (_Loop(u, s.count), _Loop(v, inner.count))
    for along, across in (sides, sides[::-1]):
        # ``along`` runs through memory where it is read, ``across`` where it is written.
        if (b.terms.get(along.atom), a.terms.get(across.atom)) != (1, 1):
            continue
        if b.terms.get(across.atom, 0) in (0, 1) or a.terms.get(along.atom, 0) in (0, 1):
            continue
        past = copy.nontemporal and memory.may_stream(to, n)
        _squares(memory, BufferOffset(to, a), BufferOffset(source, b), (along, across), n, past)
        return True
    return False


def rest_of_copy(w: IndexWriter, s: For) -> For | None:
    """Plain loops for an unrolled one that copies what is left of a tile; None for any other.

    Such a loop holds elements behind a guard, with lanes that lie apart. It runs once where the
    tile's whole squares run often, but written out it would be most of the text.
    """
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
    """Let a variable of affine forms stand for each loop's."""
    atoms = [Var(f"%u{k}", "int64") for k in range(len(loops))]
    for loop, atom in zip(loops, atoms, strict=True):
        w.env[loop.var] = Affine.of(atom)
        w.ranges[atom] = (0, loop.count - 1)
    return atoms


def _squares(
    memory: Memory,
    to: BufferOffset,
    source: BufferOffset,
    loops: tuple[_Loop, _Loop],
    n: int,
    past: bool,
) -> None:
    """Call the function that turns a square, for each square of the copy."""
    w, (along, across) = memory.w, loops
    steps_to, steps_source = to.offset.terms[along.atom], source.offset.terms[across.atom]
    corner = {along.atom: Affine(0), across.atom: Affine(0)}
    first, start = to.offset.substitute(corner), source.offset.substitute(corner)
    turn = _turning(w, memory_type(to.buffer.dtype), dtypes.nbytes(to.buffer.dtype), n, past)
    for i in range(0, along.extent, n):
        for j in range(0, across.extent, n):
            rows = memory.address(source.buffer, start + (i + steps_source * j))
            columns = memory.address(to.buffer, first + (j + steps_to * i))
            w.put(
                f"call void @{turn}(ptr {rows}, i64 {steps_source}, ptr {columns}, i64 {steps_to})"
            )


def _turning(w: IndexWriter, ty: str, align: int, n: int, past: bool) -> str:
    """Name of the module's function that transposes a square of n x n elements, written once.

    It is called and not inlined: the optimiser takes 5 to 10 ms for each copy of the network. With
    ``past`` it stores past the caches where all columns lie on multiples of their size.
    """
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
    head = "ptr noalias %from, i64 %from.step, ptr noalias %to, i64 %to.step"
    w.module.functions.append(
        "\n".join(
            [
                f"define internal void @{name}({head}) noinline nounwind {{",
                "entry:",
                *lines,
                "  ret void",
                "}",
            ]
        )
    )
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
    """Write the network; the columns of the square whose rows are ``%r0``, ``%r1``, ...

    A round rotates the bits of an element's number (row * n + column) by one: even elements of each
    pair of vectors go to the first half, odd ones to the second. All rounds are alike, so they are
    a loop: instruction selection looks long through chains of shuffles that are written out.
    """
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
