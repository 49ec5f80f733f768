"""`CallPacked` as LLVM IR: DLPack tensors on the stack, and a call of ``lw_call_packed``.

The layout is that of `loopwright.runtime.packed_calls`; a ``DLTensor`` is written as six words of a
little-endian machine.
"""

from __future__ import annotations

from loopwright import dtypes
from loopwright.codegen.llvm.indices import IndexWriter
from loopwright.errors import CodegenError
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr
from loopwright.ir.stmt import CallPacked, Check
from loopwright.runtime import FIRST_CODE, record_name
from loopwright.runtime import packed_calls as calls

_TENSOR_WORDS = 6


def write_call(w: IndexWriter, s: CallPacked) -> None:
    """Call a packed function, and leave the function with a code where it has not run."""
    if w.lanes != 1:
        raise CodegenError(f"llvm: call_packed {s.name!r} stands in vector code")
    if s.name not in w.module.packed:
        w.module.packed.append(s.name)
    w.declare(calls.CALL, f"declare void @{calls.CALL}(ptr, ptr, ptr, i32)")
    count = len(s.args)
    values = _room(w, "values", count + 1)
    kinds = _room(w, "kinds", count + 1)
    for k, arg in enumerate(s.args):
        kind, ty, ref = _value(w, arg, k)
        at = w.emit(f"getelementptr i64, ptr {values}, i64 {k}")
        w.put(f"store {ty} {ref}, ptr {at}, align 8")
        at = w.emit(f"getelementptr i32, ptr {kinds}, i64 {k}")
        w.put(f"store i32 {kind}, ptr {at}, align 4")
    given = f"ptr {_text(w, s.name)}, ptr {values}, ptr {kinds}, i32 {count}"
    went = w.emit(f"getelementptr i64, ptr {values}, i64 {count}")
    w.put(f"store i64 {calls.INTERRUPTED}, ptr {went}, align 8")
    w.put(f"call void @{calls.CALL}({given})")
    status = w.emit(f"load i64, ptr {went}, align 8")
    code = w.emit(f"trunc i64 {status} to i32")
    bad = w.emit(f"icmp ne i32 {code}, 0")
    fail, ok = w.label("fail"), w.label("ok")
    w.put(f"br i1 {bad}, label %{fail}, label %{ok}")
    w.start(fail)
    w.put(f"ret i32 {code}")
    w.start(ok)


def _value(w: IndexWriter, arg: Buffer | Expr | str, k: int) -> tuple[int, str, str]:
    """Kind, LLVM type and operand of an argument."""
    if isinstance(arg, str):
        return calls.TEXT, "ptr", _text(w, arg)
    if isinstance(arg, Buffer):
        kind = calls.INPUT if arg in w.module.inputs else calls.TENSOR
        return kind, "ptr", _tensor(w, arg, k)
    value = w.expr(arg)
    if dtypes.is_float(arg.dtype):
        return calls.FLOAT, "double", w.ops.cast(value, "float64").ref
    word = w.ops.cast(value, "int64").ref
    if arg.dtype == "bool":
        return calls.BOOL, "i64", word
    return calls.UINT if dtypes.is_unsigned(arg.dtype) else calls.INT, "i64", word


def _tensor(w: IndexWriter, b: Buffer, k: int) -> str:
    shape = _room(w, f"shape{k}", len(b.shape) + 1)
    for d, n in enumerate(b.shape):
        at = w.emit(f"getelementptr i64, ptr {shape}, i64 {d}")
        w.put(f"store i64 {w.count_of(n)}, ptr {at}, align 8")
    one_lane = 1 << 16
    dtype = calls.type_code(b.dtype) | calls.type_bits(b.dtype) << 8 | one_lane
    words = [
        ("ptr", w.pointers[b]),
        ("i64", "1"),  # the CPU, number 0
        ("i64", str(len(b.shape) | dtype << 32)),
        ("ptr", shape),
        ("ptr", "null"),
        ("i64", "0"),
    ]
    tensor = _room(w, f"tensor{k}", _TENSOR_WORDS)
    for place, (ty, ref) in enumerate(words):
        at = w.emit(f"getelementptr i64, ptr {tensor}, i64 {place}")
        w.put(f"store {ty} {ref}, ptr {at}, align 8")
    return tensor


def _room(w: IndexWriter, use: str, words: int) -> str:
    """Words in the function's frame; calls that follow each other, as unrolled ones, share them."""

    def make() -> str:
        reg = f"%packed{len(w.allocas)}"
        w.allocas.append(f"  {reg} = alloca [{words} x i64], align 8")
        return reg

    return w.cached((use, words), make)


def _text(w: IndexWriter, text: str) -> str:
    """A constant text, which ends with a zero."""
    data = text.encode() + b"\0"
    name = f"@lw_text_{data.hex()}"
    escaped = "".join(f"\\{byte:02x}" for byte in data)
    w.declare(name, f'{name} = private constant [{len(data)} x i8] c"{escaped}"')
    return name


# ---------------------------------------------------------------- checks
#
# Checks of a program that watches itself, as LLVM IR text.
#
# The module has one record, ``lw_checks_NAME``: a word that tells whether it is taken, then the
# values of the check that failed. One of the threads that fail at once takes it. The function
# returns `FIRST_CODE` and the number of the check.


def write_check(w: IndexWriter, s: Check) -> None:
    """Leave the function with a code unless the condition holds."""
    cond = w.expr(s.cond)
    if cond.lanes != 1:
        raise CodegenError("llvm: a check stands in vector code; run the loop one by one")
    number = len(w.module.checks)
    w.module.checks.append(s.text)
    w.module.check_words = max(w.module.check_words, 1 + len(s.values))
    record = f"@{record_name(w.module.name)}"
    size = f"[{w.module.check_words} x i64]"
    w.module.declares["checks"] = f"{record} = global {size} zeroinitializer, align 8"
    ok, bad, mine, out = (w.label(x) for x in ("holds", "fails", "record", "leave"))
    w.put(f"br i1 {cond.ref}, label %{ok}, label %{bad}")
    w.start(bad)
    w.scopes.append({})
    taken = w.emit(f"cmpxchg ptr {record}, i64 0, i64 {FIRST_CODE + number} acq_rel monotonic")
    won = w.emit(f"extractvalue {{ i64, i1 }} {taken}, 1")
    w.put(f"br i1 {won}, label %{mine}, label %{out}")
    w.start(mine)
    for k, e in enumerate(s.values):
        at = w.emit(f"getelementptr i64, ptr {record}, i64 {k + 1}")
        w.put(f"store i64 {w.i64(w.index(e)).ref}, ptr {at}, align 8")
    w.put(f"br label %{out}")
    w.start(out)
    w.put(f"ret i32 {FIRST_CODE + number}")
    w.scopes.pop()
    w.start(ok)
