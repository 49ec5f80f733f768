"""Every word that names a kind of loop, axis, mark, memory or place: once, with its meaning.

These are strings in traces, records and printed programs. Their types let the checker refuse a
misspelt word; the tuples beside them serve error messages and tests of words from outside.
"""

from __future__ import annotations

from typing import Literal, get_args

#: Execution of a loop of the IR: one iteration after the other, as lanes of vectors, written out,
#: on the thread pool, or as a thread axis of a kernel (whose name is the loop's ``tag``).
LoopKind = Literal["serial", "vectorized", "unrolled", "parallel", "thread"]
LOOP_KINDS: tuple[LoopKind, ...] = get_args(LoopKind)

#: Marks of a loop in a schedule: any kind but the plain one.
MarkKind = Literal["vectorized", "unrolled", "parallel", "thread"]

#: Whether iterations of an axis write different elements, or are combined into one.
AxisKind = Literal["spatial", "reduce"]

#: Meaning of an `IterVar`: an axis of a compute, or a thread axis that loops are bound to.
IterVarKind = Literal["spatial", "reduce", "thread"]

#: Memory of a buffer: that of all threads, of one thread, or of one block of a kernel. That of a
#: block is declared by the kernel or given to it when it is launched, ``shared.dyn``. A buffer of
#: scope ``warp`` is spread over the registers of 32 threads (see `WARP_LANES`).
Scope = Literal["global", "local", "shared", "shared.dyn", "warp"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
#: Memory that the threads of a block share.
SHARED: tuple[Scope, ...] = ("shared", "shared.dyn")
#: The first dimensions of a buffer of scope ``warp``: element ``[g, t, ...]`` is a register of lane
#: ``4 * g + t``. So do the fragments of all instructions ``mma`` of PTX count lanes: ``g`` is what
#: its manual calls groupID, ``t`` threadID_in_group.
WARP_LANES = (8, 4)
#: Threads of a warp: those that differ in threadIdx.x only, which has that many.
WARP_SIZE = 32

#: Place of a stage: on its own, inside a loop of another, or in its readers' expressions.
AttachKind = Literal["root", "at", "inline"]
