"""`IntrinsicCall` as LLVM IR, where the target's CPU has the instruction."""

from __future__ import annotations

from loopwright.codegen.llvm.emitter import Emitter
from loopwright.codegen.llvm.memory import Memory
from loopwright.ir.buffer import Load
from loopwright.ir.stmt import IntrinsicCall

#: Lanes of the instruction for dot products of bytes.
_DOTS = {f"dot_{lanes}x4_u8s8s32": lanes for lanes in (4, 8, 16)}
#: Bits of a vector of int32 by its lanes.
_BITS = {4: 128, 8: 256, 16: 512}


def write_instruction(memory: Memory, s: IntrinsicCall) -> bool:
    """Write an instruction; False: the CPU has none, or it stands in vector code."""
    w = memory.w
    lanes = _DOTS.get(s.name, 0)
    native = min(lanes, w.module.dot_lanes)
    if not native or w.lanes != 1 or w.mask is not None:
        return False
    c, a, b = s.operands
    four = w.emit(f"load i32, ptr {_pointer(memory, a)}, align 1")
    at = [_pointer(memory, x) for x in (c, b)]
    ty = f"<{native} x i32>"
    name = f"llvm.x86.avx512.vpdpbusd.{_BITS[native]}"
    w.declare(name, f"declare {ty} @{name}({ty}, {ty}, {ty})")
    one = w.emit(f"insertelement {ty} poison, i32 {four}, i64 0")
    bytes_a = w.emit(f"shufflevector {ty} {one}, {ty} poison, <{native} x i32> zeroinitializer")
    for first in range(0, lanes, native):
        own, other = (_further(w, p, first) for p in at)
        old = w.emit(f"load {ty}, ptr {own}, align 4")
        bytes_b = w.emit(f"load {ty}, ptr {other}, align 1")
        new = w.emit(f"call {ty} @{name}({ty} {old}, {ty} {bytes_a}, {ty} {bytes_b})")
        w.put(f"store {ty} {new}, ptr {own}, align 4")
    return True


def _pointer(memory: Memory, x: Load) -> str:
    return memory.pointer(x.buffer, memory.w.offset(x.buffer, x.indices))


def _further(w: Emitter, pointer: str, words: int) -> str:
    return pointer if not words else w.emit(f"getelementptr i32, ptr {pointer}, i64 {words}")
