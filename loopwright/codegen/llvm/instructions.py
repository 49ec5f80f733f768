"""`IntrinsicCall` as LLVM IR, where the target's CPU has the instruction.

``vpdpbusd`` multiplies unsigned by signed bytes. Where both are signed, 128 is added to one of them
by flipping its highest bit, and 128 times the sum of the other is taken off again; where both are
unsigned, 128 is taken off one of them. Loops around share what that costs: the sum is that of one
operand alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loopwright.codegen.llvm.emitter import Emitter
from loopwright.codegen.llvm.memory import Memory
from loopwright.ir.buffer import Load
from loopwright.ir.instructions import DOT_PRODUCTS
from loopwright.ir.stmt import IntrinsicCall

#: Four bytes of which each has its highest bit set: four times 128, or -128.
_HIGHEST = -0x7F7F7F80


def write_instruction(memory: Memory, s: IntrinsicCall) -> bool:
    """Write an instruction; False: the CPU has none, or it stands in vector code."""
    w = memory.w
    dot = DOT_PRODUCTS.get(s.name)
    native = 0 if dot is None else min(dot.lanes, w.module.dot_lanes[dot.result])
    if dot is None or not native or w.lanes != 1 or w.mask is not None:
        return False
    c, a, b = s.operands
    added = _products(w, native, dot.data, dot.kernel)
    group = w.emit(f"load i32, ptr {_pointer(memory, a)}, align 1")
    if dot.data == dot.kernel == "int8":
        # Before it is a vector: LLVM 22 never ends with a vector of which it knows one lane.
        group = w.emit(f"xor i32 {group}, {_HIGHEST}")
    at = [_pointer(memory, x) for x in (c, b)]
    ty, words = _vector(native, dot.result), f"<{native} x i32>"
    one = w.emit(f"insertelement {words} poison, i32 {group}, i64 0")
    data = w.emit(f"shufflevector {words} {one}, {words} poison, {words} zeroinitializer")
    for first in range(0, dot.lanes, native):
        own, other = (_further(w, p, first) for p in at)
        old = w.emit(f"load {ty}, ptr {own}, align 4")
        kernel = w.emit(f"load {words}, ptr {other}, align 1")
        w.put(f"store {ty} {added(old, data, kernel)}, ptr {own}, align 4")
    return True


#: From sums and the words of two operands to the new sums.
_Added = Callable[[str, str, str], str]


def _products(w: Emitter, lanes: int, data: str, kernel: str) -> _Added:
    """How products of some element types are added."""
    if data == "bfloat16":
        return _Halves(w, lanes).added
    unit = _Bytes(w, lanes)
    return {
        ("uint8", "int8"): unit.added,
        ("int8", "uint8"): lambda old, a, b: unit.added(old, b, a),
        ("int8", "int8"): unit.both_signed,
        ("uint8", "uint8"): unit.both_unsigned,
    }[data, kernel]


@dataclass(frozen=True)
class _Halves:
    """Products of bfloat16 by pairs."""

    w: Emitter
    lanes: int

    def added(self, old: str, a: str, b: str) -> str:
        """``vdpbf16ps``."""
        ty, pairs = _vector(self.lanes, "float32"), f"<{2 * self.lanes} x bfloat>"
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}"
        self.w.declare(name, f"declare {ty} @{name}({ty}, {pairs}, {pairs})")
        x, y = (self.w.emit(f"bitcast <{self.lanes} x i32> {words} to {pairs}") for words in (a, b))
        return self.w.emit(f"call {ty} @{name}({ty} {old}, {pairs} {x}, {pairs} {y})")


@dataclass(frozen=True)
class _Bytes:
    """Products of bytes by fours."""

    w: Emitter
    lanes: int

    def added(self, old: str, unsigned: str, signed: str) -> str:
        """``vpdpbusd``."""
        ty = _vector(self.lanes, "int32")
        name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
        self.w.declare(name, f"declare {ty} @{name}({ty}, {ty}, {ty})")
        return self.w.emit(f"call {ty} @{name}({ty} {old}, {ty} {unsigned}, {ty} {signed})")

    def both_signed(self, old: str, a: str, b: str) -> str:
        """``(a + 128) * b - 128 * b``, given ``a + 128``."""
        more = self.added("zeroinitializer", self._highest, b)
        return self.added(self._less(old, more), a, b)

    def both_unsigned(self, old: str, a: str, b: str) -> str:
        """``a * (b - 128) - a * -128``."""
        less = self.added("zeroinitializer", a, self._highest)
        flipped = self.w.emit(f"xor {_vector(self.lanes, 'int32')} {b}, {self._highest}")
        return self.added(self._less(old, less), a, flipped)

    @property
    def _highest(self) -> str:
        return "<" + ", ".join([f"i32 {_HIGHEST}"] * self.lanes) + ">"

    def _less(self, a: str, b: str) -> str:
        return self.w.emit(f"sub {_vector(self.lanes, 'int32')} {a}, {b}")


def _vector(lanes: int, dtype: str) -> str:
    return f"<{lanes} x {'i32' if dtype == 'int32' else 'float'}>"


def _pointer(memory: Memory, x: Load) -> str:
    return memory.pointer(x.buffer, memory.w.offset(x.buffer, x.indices))


def _further(w: Emitter, pointer: str, words: int) -> str:
    return pointer if not words else w.emit(f"getelementptr i32, ptr {pointer}, i64 {words}")
