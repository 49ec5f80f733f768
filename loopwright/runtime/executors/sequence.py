"""Bound calls one after the other: in one piece of compiled code where that can be.

Python takes about half a microsecond for a call of a kernel that is bound; the code of sequence.ll
some nanoseconds. It gives the interpreter's lock away once, for all kernels together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from loopwright.runtime import linker
from loopwright.runtime.function import BoundCall, failure

_SYMBOL = "lw_run_steps"


def sequence(calls: Sequence[Any]) -> Callable[[], None]:
    """What runs bound calls in order, with their arrays as they are bound now.

    Where LLVM is in this process, as it is where kernels were linked here, and all calls are of
    compiled code of the host, this is one piece of compiled code; else a loop in Python.

    Args:
        calls: what `Module.bind` gives.

    Returns:
        A function without arguments; it raises RunError where a call fails, and those behind that
        did not run.
    """
    compiled = linker.is_loaded() and all(_is_compiled(call) for call in calls)
    held = tuple(calls)
    return _in_one(held) if compiled and held else _one_by_one(held)


def _is_compiled(call: object) -> bool:
    return isinstance(call, BoundCall) and call.function.timer is None


def _one_by_one(calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
    def run() -> None:
        for call in calls:
            call()

    return run


def _in_one(calls: Sequence[BoundCall]) -> Callable[[], None]:
    words = [w for c in calls for w in (c.entry, ctypes.addressof(c.pointers), c.workspace or 0)]
    steps = (ctypes.c_uint64 * len(words))(*words)
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
    linked = linker.link(linker.compile_text(text), [_SYMBOL]).keep_forever()
    signature = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64)
    return signature(linked.addresses[_SYMBOL])
