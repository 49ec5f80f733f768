"""Every word that names a kind of loop, axis, mark, memory or place: once, with its meaning.

These are strings in traces, records and printed programs. Their types let the checker refuse a
misspelt word; the tuples beside them serve error messages and tests of words from outside.
"""

from __future__ import annotations

from typing import Literal, get_args

#: How a loop of the IR runs: one iteration after the other, as lanes of vectors, written out, on
#: the thread pool, or as a thread axis of a kernel (whose name is the loop's ``tag``).
LoopKind = Literal["serial", "vectorized", "unrolled", "parallel", "thread"]
LOOP_KINDS: tuple[LoopKind, ...] = get_args(LoopKind)

#: What a schedule may mark a loop as: any kind but the plain one.
MarkKind = Literal["vectorized", "unrolled", "parallel", "thread"]
MARK_KINDS: tuple[MarkKind, ...] = get_args(MarkKind)

#: Whether iterations of an axis write different elements, or are combined into one.
AxisKind = Literal["spatial", "reduce"]
AXIS_KINDS: tuple[AxisKind, ...] = get_args(AxisKind)

#: What an `IterVar` stands for: an axis of a compute, or a thread axis that loops are bound to.
IterVarKind = Literal["spatial", "reduce", "thread"]

#: Where a buffer lies: in memory of all threads, of one thread, or of one block of a kernel. What a
#: block gets when it is launched (``shared.dyn``) may be larger than what kernels declare.
Scope = Literal["global", "local", "shared", "shared.dyn"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
#: Memory that the threads of a block share.
SHARED: tuple[Scope, ...] = ("shared", "shared.dyn")

#: Where a stage is computed: on its own, inside a loop of another, or in its readers' expressions.
AttachKind = Literal["root", "at", "inline"]
ATTACH_KINDS: tuple[AttachKind, ...] = get_args(AttachKind)
