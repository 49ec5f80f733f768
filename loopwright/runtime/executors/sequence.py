"""Bound calls one after the other: in one piece of compiled code where possible.

Python takes about half a microsecond for a call of a kernel that is bound; the code of sequence.ll
some nanoseconds. It releases the interpreter's lock once, for all kernels together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from loopwright.runtime import linker, pool
from loopwright.runtime.function import BoundCall, failure

_SYMBOL = "lw_run_steps"


def sequence(calls: Sequence[Any], groups: Collection[range] = ()) -> Callable[[], None]:
    """A function that runs bound calls in order, with their arrays as they are bound now.

    Where `in_one_piece` is true of them, it is one piece of compiled code; else a loop in Python.
    Calls of a group, whose places are adjacent, do not depend on each other and run in parallel on
    the threads of parallel loops; the loop in Python ignores groups. After a RunError the calls
    behind it did not run.
    """
    held = tuple(calls)
    return _in_one(held, groups) if in_one_piece(held) else _one_by_one(held)


def in_one_piece(calls: Sequence[object]) -> bool:
    """Whether calls can be one piece of compiled code.

    They can where LLVM is in this process, as it is where kernels were linked here, and all of them
    are of compiled code of the host.
    """
    return bool(calls) and linker.is_loaded() and all(map(_is_compiled, calls))


def _is_compiled(call: object) -> bool:
    return isinstance(call, BoundCall) and call.function.timer is None


def _one_by_one(calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
    def run() -> None:
        for call in calls:
            call()

    return run


def _in_one(calls: Sequence[BoundCall], groups: Collection[range]) -> Callable[[], None]:
    together = {group.start: len(group) for group in groups}
    steps = (ctypes.c_uint64 * (4 * len(calls)))()
    for n, call in enumerate(calls):
        pointers = ctypes.addressof(call.pointers)
        steps[4 * n : 4 * n + 4] = [call.entry, pointers, call.workspace or 0, together.get(n, 1)]
    code, count = _code(), len(calls)

    def run() -> None:
        failed = code(steps, count)
        if failed:
            number, rc = failed >> 32, ctypes.c_int32(failed & 0xFFFFFFFF).value
            raise failure(calls[number - 1].function, rc)

    return run


@lru_cache(maxsize=1)
def _code() -> Callable[..., int]:
    text = Path(__file__).with_name("sequence.ll").read_text()
    imports = {pool.LAUNCH: pool.launch_address(0)}
    linked = linker.link(linker.compile_text(text), [_SYMBOL], imports).keep_forever()
    signature = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64)
    return signature(linked.addresses[_SYMBOL])
