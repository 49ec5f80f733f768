"""The timing loops of timing.ll: they call machine code from machine code, and read the clock."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from loopwright.runtime import linker

# One line of 64 bytes; smaller lines are evicted less thoroughly, larger ones twice.
_FLUSH = {
    "x86_64": ("call void @llvm.x86.sse2.clflush(ptr %place)", "llvm.x86.sse2.clflush(ptr)"),
    "aarch64": ('call void asm sideeffect "dc civac, $0", "r"(ptr %place)', ""),
}


@dataclass(frozen=True, slots=True)
class NativeTimer:
    """The loops in machine code."""

    time: ctypes._CFunctionType
    turns: ctypes._CFunctionType
    flush: ctypes._CFunctionType


@lru_cache(maxsize=1)
def native_timer() -> NativeTimer:
    flush, declared = _FLUSH.get(linker.architecture(), ("", ""))
    text = Path(__file__).with_name("timing.ll").read_text()
    text = text.replace("$CLOCK is", "It is").replace("$FLUSH evicts", "It evicts")
    text = text.replace("$CLOCK", "6" if sys.platform == "darwin" else "1").replace("$FLUSH", flush)
    if declared:
        text += f"\ndeclare void @{declared}\n"
    names = ["lw_time", "lw_time_turns", "lw_flush"]
    code = linker.link(linker.compile_text(text), names).keep_forever()
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return NativeTimer(
        ctypes.CFUNCTYPE(number, pointer, pointer, pointer, number)(code.addresses["lw_time"]),
        ctypes.CFUNCTYPE(number, pointer, pointer, number, number, pointer, number)(
            code.addresses["lw_time_turns"]
        ),
        ctypes.CFUNCTYPE(None, pointer, number)(code.addresses["lw_flush"]),
    )


def can_flush() -> bool:
    """Whether this architecture has an instruction that evicts a line."""
    return linker.architecture() in _FLUSH


def flush(*args: object) -> None:
    """Evict arrays (NumPy arrays or objects with ``__array__``) from the caches."""
    for arg in args:
        data = np.asarray(arg)
        native_timer().flush(int(data.ctypes.data), data.nbytes)
