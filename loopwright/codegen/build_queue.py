"""`BuildQueue`: builds of several kernels; a thread generates their code beside the caller."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from types import TracebackType

from loopwright.codegen.build import begin_build
from loopwright.ir.sizes import SizeVar
from loopwright.runtime import Module
from loopwright.schedule import Schedule
from loopwright.target import Target
from loopwright.te import Tensor

#: Kernels that wait for their machine code at most, since their texts take memory.
_WAITING = 16
#: Seconds after which Python passes its lock on while a queue is open. The thread gives the lock
#: back and takes it again two dozen times a kernel, and waits as long while the caller computes.
_SWITCH_S = 1e-4


class BuildQueue:
    """Builds kernels of models: the caller ranks, schedules and lowers the next ones meanwhile.

    The thread, one since llvmlite has one lock, runs LLVM alone, so that code and texts are those
    of `loopwright.build`. Kernels are kept on disk. The end of a ``with`` waits for all of them,
    and raises the error of the first that failed, also where a later one failed before; on Ctrl-C
    those that have not begun are dropped.
    """

    def __enter__(self) -> BuildQueue:
        self._pool = ThreadPoolExecutor(1, "loopwright-build")
        self._waiting: deque[Future[Module]] = deque()
        _switching.shorten()
        return self

    def build(
        self, s: Schedule, args: Sequence[Tensor | SizeVar], target: Target, name: str
    ) -> Future[Module]:
        """The module to be, as `loopwright.build` makes it; errors of lowering are raised here."""
        future = self._pool.submit(begin_build(s, args, target, name, cache=True))
        self._waiting.append(future)
        if len(self._waiting) > _WAITING:
            self._waiting[0].result()
            self._waiting.popleft()
        return future

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None or isinstance(error, Exception):
                for future in self._waiting:
                    future.result()
        finally:
            self._pool.shutdown(cancel_futures=True)
            _switching.restore()


class _Switching:
    """The interval after which threads take turns, which is the process's: short for all queues."""

    def __init__(self) -> None:
        self._lock, self._users, self._usual = Lock(), 0, 0.0

    def shorten(self) -> None:
        with self._lock:
            if not self._users:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(_SWITCH_S, self._usual))
            self._users += 1

    def restore(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.setswitchinterval(self._usual)


_switching = _Switching()
