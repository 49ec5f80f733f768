"""`IntrinsicCall` as LLVM IR, where the target's CPU has the instruction."""

# ``vpdpbusd`` multiplies unsigned by signed bytes. Where both are signed, 128 is added to one of
# them by flipping its highest bit, and 128 times the sum of the other is taken off again; where
# both are unsigned, 128 is taken off one of them. That sum is of one operand alone, so that loops
# that are written out around share it, and it is taken off once at their end.
#
# Without ``vpdpbusd`` bytes are extended to 16 bits, the even and the odd ones by themselves, and
# ``vpmaddwd`` multiplies pairs of either: two products and two sums for each vector, whatever the
# signs. What is extended is shared by the vectors and rows of a tile that is written out; numbers
# that are held in 16 bits take one product and one sum.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from loopwright.codegen.llvm.emitter import Emitter, Value
from loopwright.codegen.llvm.memory import FunctionMemory
from loopwright.ir.instructions import DOT_PRODUCTS, DotProduct
from loopwright.ir.stmt import For, IntrinsicCall, Seq, Stmt
from loopwright.target import PAIRS_OF_SHORTS

#: Four bytes of which each has its highest bit set: four times 128, or -128.
_HIGHEST = -0x7F7F7F80


def write_instruction(
    memory: FunctionMemory, s: IntrinsicCall, late: ZeroPointCorrections | None = None
) -> bool:
    """Write an instruction; False: the CPU has none, or it stands in vector code. ``late`` gets
    what is to be taken off sums later; None: it is taken off here."""
    w = memory.w
    dot = DOT_PRODUCTS.get(s.name)
    native = 0 if dot is None else min(dot.lanes, w.module.dot_lanes[dot.result])
    if dot is None or not native or w.lanes != 1 or w.mask is not None:
        return False
    corrections = ZeroPointCorrections(w) if late is None else late
    c, a, b = (memory.pointer(x.buffer, memory.w.offset(x.buffer, x.indices)) for x in s.operands)
    data = Factor(w.splat(Value(w.emit(f"load i32, ptr {a}, align 1"), "int32"), native).ref, a)
    add = _Products(w, native, dot, corrections).add
    for first in range(0, dot.lanes, native):
        own, other = (
            w.pure(f"getelementptr i32, ptr {p}, i64 {first}") if first else p for p in (c, b)
        )
        add(own, data, Factor(w.emit(f"load <{native} x i32>, ptr {other}, align 1"), other))
    if late is None:
        corrections.apply()
    return True


def is_corrected(s: Stmt) -> bool:
    """Whether a statement is nothing but dot products from which something has to be taken off, in
    loops that are written out."""
    match s:
        case For(kind="unrolled", body=body):
            return is_corrected(body)
        case Seq(stmts=stmts):
            return all(is_corrected(x) for x in stmts)
        case IntrinsicCall(name=name):
            dot = DOT_PRODUCTS.get(name)
            return dot is not None and dot.data == dot.kernel in ("int8", "uint8")
    return False


class Factor(NamedTuple):
    """A vector of words, and a pointer to where it was loaded from."""

    words: str
    pointer: str


class ZeroPointCorrections:
    """Amounts to be taken off sums in memory; sums with the same one share it, summed up once."""

    def __init__(self, w: Emitter) -> None:
        self._w = w
        self._owed: dict[tuple[str, int], str] = {}
        self._summed: dict[tuple[str, str], str] = {}

    def owe(self, own: str, lanes: int, of: str, add: Callable[[str], str]) -> None:
        """Note more to be taken off the sum of ``lanes`` lanes at ``own``; ``add`` writes what was
        owed before with that added, and the operand at ``of`` determines the amount."""
        before = self._owed.get((own, lanes), "zeroinitializer")
        if (before, of) not in self._summed:
            self._summed[before, of] = add(before)
        self._owed[own, lanes] = self._summed[before, of]

    def apply(self) -> None:
        w = self._w
        for (own, lanes), more in self._owed.items():
            ty = _vector(lanes, "int32")
            old = w.emit(f"load {ty}, ptr {own}, align 4")
            left = w.emit(f"sub {ty} {old}, {more}")
            w.put(f"store {ty} {left}, ptr {own}, align 4")


@dataclass(frozen=True)
class _Products:
    w: Emitter
    lanes: int
    dot: DotProduct
    corrections: ZeroPointCorrections

    def add(self, own: str, a: Factor, b: Factor) -> None:
        """Add the products of two operands, the first one equal in all lanes, to a sum."""
        ty = _vector(self.lanes, self.dot.result)
        old = self.w.emit(f"load {ty}, ptr {own}, align 4")
        new = self._halves(old, a, b) if self.dot.result == "float32" else self._of(old, own, a, b)
        self.w.put(f"store {ty} {new}, ptr {own}, align 4")

    def _of(self, old: str, own: str, a: Factor, b: Factor) -> str:
        """The new sum of products of integers, but for what is owed."""
        if self.dot.group == 2:
            return self._pair(old, *(self._shorts(x.words) for x in (a, b)))
        if self.w.module.has_dots_by_pairs:
            return self._pairs(old, a.words, b.words)
        match self.dot.data, self.dot.kernel:
            case "int8", "uint8":
                return self._bytes(old, b.words, a.words)
            case "int8", "int8":  # (a + 128) * b - 128 * b
                self._owe(own, b, lambda sums: self._bytes(sums, self._highest, b.words))
                return self._bytes(old, self._flipped(a), b.words)
            case "uint8", "uint8":  # a * (b - 128) - a * -128
                self._owe(own, a, lambda sums: self._bytes(sums, a.words, self._highest))
                return self._bytes(old, a.words, self._flipped(b))
        return self._bytes(old, a.words, b.words)

    def _owe(self, own: str, of: Factor, add: Callable[[str], str]) -> None:
        self.corrections.owe(own, self.lanes, of.pointer, add)

    def _bytes(self, old: str, unsigned: str, signed: str) -> str:
        """``vpdpbusd``: products of bytes by fours."""
        ty = _vector(self.lanes, "int32")
        name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
        self.w.declare(name, f"declare {ty} @{name}({ty}, {ty}, {ty})")
        return self.w.emit(f"call {ty} @{name}({ty} {old}, {ty} {unsigned}, {ty} {signed})")

    def _pairs(self, old: str, a: str, b: str) -> str:
        """``vpmaddwd`` twice: products of bytes as numbers of 16 bits, by pairs."""
        each = self._extended(a, self.dot.data), self._extended(b, self.dot.kernel)
        for x, y in zip(*each, strict=True):
            old = self._pair(old, x, y)
        return old

    def _pair(self, old: str, a: str, b: str) -> str:
        """``vpmaddwd``: products of numbers of 16 bits, by pairs."""
        ty, name = _vector(self.lanes, "int32"), PAIRS_OF_SHORTS[self.lanes]
        shorts = f"<{2 * self.lanes} x i16>"
        self.w.declare(name, f"declare {ty} @{name}({shorts}, {shorts})")
        products = self.w.emit(f"call {ty} @{name}({shorts} {a}, {shorts} {b})")
        return self.w.emit(f"add {ty} {old}, {products}")

    def _shorts(self, words: str) -> str:
        ty = _vector(self.lanes, "int32")
        return self.w.emit(f"bitcast {ty} {words} to <{2 * self.lanes} x i16>")

    def _extended(self, words: str, dtype: str) -> tuple[str, str]:
        """The even and the odd bytes of words, each as 16 bits."""
        shorts = f"<{2 * self.lanes} x i16>"
        all_of = self._shorts(words)
        eight = f"<{', '.join(['i16 8'] * (2 * self.lanes))}>"
        moved = self.w.emit(f"shl {shorts} {all_of}, {eight}")
        shift = "ashr" if dtype == "int8" else "lshr"
        even, odd = (self.w.emit(f"{shift} {shorts} {x}, {eight}") for x in (moved, all_of))
        return even, odd

    def _halves(self, old: str, a: Factor, b: Factor) -> str:
        """``vdpbf16ps``: products of bfloat16 by pairs."""
        ty, pairs = _vector(self.lanes, "float32"), f"<{2 * self.lanes} x bfloat>"
        words = _vector(self.lanes, "int32")
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}"
        self.w.declare(name, f"declare {ty} @{name}({ty}, {pairs}, {pairs})")
        x, y = (self.w.emit(f"bitcast {words} {p.words} to {pairs}") for p in (a, b))
        return self.w.emit(f"call {ty} @{name}({ty} {old}, {pairs} {x}, {pairs} {y})")

    def _flipped(self, x: Factor) -> str:
        """Bytes with their highest bits flipped: 128 more, or less, in the other type."""
        return self.w.pure(f"xor {_vector(self.lanes, 'int32')} {x.words}, {self._highest}")

    @property
    def _highest(self) -> str:
        """A vector of bytes of which each has its highest bit set."""
        # It goes through an empty piece of assembly in front of all loops: LLVM 22 never ends with
        # a flipped vector of which it knows one lane and the constant.
        w, ty = self.w, _vector(self.lanes, "int32")
        ref = f"%highest{self.lanes}"
        constant = "<" + ", ".join([f"i32 {_HIGHEST}"] * self.lanes) + ">"
        line = f'  {ref} = call {ty} asm "", "=v,0"({ty} {constant})'
        if line not in w.allocas:
            w.allocas.append(line)
        return ref


def _vector(lanes: int, dtype: str) -> str:
    return f"<{lanes} x {'i32' if dtype == 'int32' else 'float'}>"
