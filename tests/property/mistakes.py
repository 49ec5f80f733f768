"""Mistakes that tests plant in the compiler, to see that the random checks notice them.

Such a mistake is by nature a change of something inside the compiler, so these tests replace
private functions. Each is named here once, by the module (or class) and the name in it; a name
that is gone is an error when the mistake is planted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loopwright.codegen.llvm.emitter import Operations
from loopwright.codegen.llvm.memory import FunctionMemory
from loopwright.lowering.nest import buffers as element_order
from loopwright.lowering.nest import reductions as cross_thread
from loopwright.lowering.nest import tiles, values
from loopwright.lowering.passes.thread_sync import _Sync
from loopwright.schedule.bounds import infer as bounds

Mistake = tuple[object, str, Callable[..., Any]]


def _unmasked(self: FunctionMemory, *args: Any, _plain: Any = FunctionMemory.load) -> Any:
    mask, self.w.mask = self.w.mask, None
    value = _plain(self, *args)
    self.w.mask = mask
    return value


def _careless_max(self: Operations, op: str, a: Any, b: Any) -> Any:
    return self.select(self.compare(">" if op == "max" else "<", a, b), a, b)


def _no_digit(i: Any, div: int, mod: Any, _: Any, _plain: Any = element_order._digit) -> Any:
    return _plain(i, div, None, _)


def _all_threads_store(self: Any, *args: Any, _plain: Any = cross_thread.CrossThread.store) -> Any:
    self.writer = []
    return _plain(self, *args)


NO_GUARD = "a split that over-runs is not guarded"
NO_MASK = "a masked load reads all lanes"
#: Mistakes that schedules for CPUs show.
CPU: dict[str, Mistake] = {
    NO_GUARD: (bounds, "_guard_split", lambda *_: []),
    "an over-running lane reads what it likes": (values.StageValues, "_load_guard", lambda *_: []),
    NO_MASK: (FunctionMemory, "load", _unmasked),
    "max and min forget NaN": (Operations, "_min_max", _careless_max),
    "a layout forgets a modulus": (element_order, "_digit", _no_digit),
    "an over-running tile counts as whole": (tiles.NestPartition, "_holds_inside", lambda *_: []),
}
#: Mistakes that kernels show.
THREADS: dict[str, Mistake] = {
    "no barriers": (_Sync, "_conflict", lambda *_: False),
    "no threads left out": (bounds, "thread_limits", lambda *_: []),
    "all threads store a reduction": (cross_thread.CrossThread, "store", _all_threads_store),
    "shared memory of one thread": (bounds, "fixed_variables", lambda sb: (sb.visible(-1), {})),
}


def plant(name: str, patch: pytest.MonkeyPatch) -> None:
    """Make a mistake, until the patch is undone."""
    owner, attribute, broken = (CPU | THREADS)[name]
    patch.setattr(owner, attribute, broken)
