"""Runs of bound calls: in order as one piece of compiled code, or in parallel on worker threads.

Python takes about half a microsecond for a call of a kernel that is bound; the code of sequence.ll
some nanoseconds. It releases the interpreter's lock once, for all kernels together.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from loopwright.executors.program import Step, Value, overlap
from loopwright.runtime import BoundCall, ThreadPool, failure, linker, pool

_SYMBOL = "lw_run_steps"


def sequence(calls: Sequence[Any], groups: Collection[range] = ()) -> Callable[[], None]:
    """A function that runs bound calls in order, with their arrays as they are bound now.

    Where `in_one_piece` is true of them, it is one piece of compiled code; else a loop in Python.
    Calls of a group, whose places are adjacent, do not depend on each other and run in parallel on
    the threads of parallel loops; the loop in Python ignores groups. After a RunError the calls
    behind it did not run.
    """
    held = tuple(calls)
    if in_one_piece(held):
        return _in_one(held, groups)

    def run() -> None:
        for call in held:
            call()

    return run


def in_one_piece(calls: Sequence[object]) -> bool:
    """Whether LLVM is in this process, as it is where kernels were linked here, and all calls are
    of compiled code of the host.
    """
    compiled = (isinstance(c, BoundCall) and c.function.timer is None for c in calls)
    return bool(calls) and linker.is_loaded() and all(compiled)


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


@dataclass(frozen=True)
class Dependencies:
    #: Number of predecessors of each step.
    waits: tuple[int, ...]
    #: Successors of each step, in order.
    after: tuple[tuple[int, ...], ...]


def dependencies(steps: Sequence[Step], values: Sequence[Value] | None = None) -> Dependencies:
    """The dependencies of steps that are given in a valid order.

    A step waits for the writers of the values that it reads. Where `values` give places in shared
    memory, it also waits for readers and writers of the bytes that it overwrites; None: each value
    has memory of its own.
    """
    count = len(steps)
    after: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for later in range(count):
        for earlier in _before(steps, later, values):
            after[earlier].append(later)
            waits[later] += 1
    return Dependencies(tuple(waits), tuple(map(tuple, after)))


def independent_runs(steps: Sequence[Step], values: Sequence[Value]) -> list[range]:
    """Longest groups of adjacent steps (at least two) that could run in parallel, in order."""
    earlier = [set(_before(steps, n, values)) for n in range(len(steps))]
    groups, start = [], 0
    for n in range(1, len(steps) + 1):
        if n == len(steps) or earlier[n] & set(range(start, n)):
            groups.append(range(start, n))
            start = n
    return [group for group in groups if len(group) > 1]


def _before(steps: Sequence[Step], later: int, values: Sequence[Value] | None) -> Iterator[int]:
    reads, writes = _ends(steps[later])
    for earlier in range(later):
        its_reads, its_writes = _ends(steps[earlier])
        if _meet(its_writes, (*reads, *writes), values) or _meet(its_reads, writes, values):
            yield earlier


def _ends(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Values that a step reads, and those that it writes."""
    first = len(step.args) - step.outputs
    return step.args[:first], step.args[first:]


def _meet(a: Collection[int], b: Collection[int], values: Sequence[Value] | None) -> bool:
    """Whether two sets of values share memory."""
    if values is None:
        return not set(a).isdisjoint(b)
    these, those = ([values[n] for n in ns if values[n].kind == "stored"] for ns in (a, b))
    return any(overlap(v, w) for v, w in product(these, those))


class ParallelRun:
    """One run: a step begins when all its predecessors have ended, by a count for each step."""

    def __init__(
        self, calls: Sequence[Callable[[], object]], order: Dependencies, workers: ThreadPool
    ) -> None:
        self._calls, self._order, self._workers = list(calls), order, workers
        self._lock = threading.Lock()
        self._waits = list(order.waits)
        self._under_way = 0
        self._failure: BaseException | None = None
        self._future: Future[None] = Future()

    def begin(self) -> Future[None]:
        ready = [n for n, count in enumerate(self._waits) if count == 0]
        if not ready:
            self._future.set_result(None)
        self._under_way = len(ready)
        for n in ready:
            self._workers.submit(self._work, n)
        return self._future

    def _work(self, step: int) -> None:
        """Run a step, then one of those that waited for it alone; the others go to the workers."""
        following: int | None = step
        while following is not None:
            failure: BaseException | None = None
            try:
                self._calls[following]()
            except BaseException as error:  # it is raised again by the future
                failure = error
            following = self._after(following, failure)

    def _after(self, step: int, failure: BaseException | None) -> int | None:
        """Note the end of a step and begin its ready successors; returns the one to run here.

        After a failure nothing begins; the run ends when all that has begun has ended.
        """
        with self._lock:
            self._failure = self._failure or failure
            following = () if self._failure else self._order.after[step]
            for n in following:
                self._waits[n] -= 1
            ready = [n for n in following if not self._waits[n]]
            self._under_way += len(ready) - 1
            ended = not self._under_way
        for n in ready[1:]:
            self._workers.submit(self._work, n)
        if ended and self._failure is not None:
            self._future.set_exception(self._failure)
        elif ended:
            self._future.set_result(None)
        return ready[0] if ready else None
