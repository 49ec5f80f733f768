"""Checks of a program that watches itself, as LLVM IR text.

The module has one record, ``lw_checks_NAME``: a word that tells whether it is taken, then the
values of the check that failed. One of the threads that fail at once takes it. The function returns
`FIRST_CODE` and the number of the check.
"""

from __future__ import annotations

from loopwright.codegen.llvm.indices import IndexWriter
from loopwright.errors import CodegenError
from loopwright.ir.stmt import Check
from loopwright.runtime.objects import FIRST_CODE, record_name


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
