"""Callees of a program's steps, kernels whose constants are given or functions in Python, and runs
of their bound calls: in order as one piece of compiled code, or in parallel on worker threads.

Python takes about half a microsecond for a call of a kernel that is bound; the code of sequence.ll
some nanoseconds. It releases the interpreter's lock once, for all kernels together.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from loopwright.errors import ArgumentError, RunError
from loopwright.executors.program import Array, Step, Value, overlap
from loopwright.runtime import (
    Arena,
    BoundCall,
    Device,
    InPlace,
    Kernel,
    Module,
    NDArray,
    ThreadPool,
    device,
    failure,
    linker,
    pool,
)


class SharedArrays:
    """Arrays by their content. Nobody writes into shared ones."""

    def __init__(self) -> None:
        # Arrays that no model uses any more are not held.
        self._arrays = weakref.WeakValueDictionary[tuple[object, ...], Array]()

    def one_of(self, array: Array, copy: Callable[[Array], Array] | None = None) -> Array:
        """The first array that is equal to this one, bit by bit; else this one, or its `copy`."""
        if not array.flags.c_contiguous:
            return array
        digest = hashlib.blake2b(array.reshape(-1).view(np.uint8).data, digest_size=16).digest()
        key = array.dtype.name, array.shape, digest
        first = self._arrays.get(key)
        if first is None:
            first = self._arrays.setdefault(key, array if copy is None else copy(array))
        return first


@dataclass(frozen=True, eq=False)
class HostStep:
    """A step that runs in Python, on arrays of the host.

    Attributes:
        function: from the arrays that it reads, which it does not change, to its results, in order.
        by: library of the implementation, such as ``"PyTorch"``.

    Example:
        >>> step = lw.executors.HostStep("sorted", lambda x: [np.sort(x)], 1, "NumPy")
        >>> x, y = np.array([3, 1, 2]), np.empty(3, "int64")
        >>> step.bind(x, y)()
        >>> print(y)
        [1 2 3]
    """

    name: str
    function: Callable[..., Sequence[Array]]
    outputs: int
    by: str

    def bind(self, *arrays: Array | NDArray) -> HostCall:
        """A call on some arrays: its inputs, then its outputs."""
        first = len(arrays) - self.outputs
        return HostCall(self, arrays[:first], arrays[first:])


@dataclass(frozen=True, eq=False)
class HostCall:
    """A step with its arrays; those of a device are copied to the host and back."""

    step: HostStep
    inputs: tuple[Array | NDArray, ...]
    outputs: tuple[Array | NDArray, ...]

    def __call__(self) -> None:
        """Run it once; RunError where the function failed, or its results do not fit."""
        read = [a.numpy() if isinstance(a, NDArray) else a for a in self.inputs]
        try:
            results = self.step.function(*read)
        except Exception as exc:  # whatever the other library raises
            text = " ".join(str(exc).split())
            raise RunError(
                f"step {self.step.name!r}, which {self.step.by} computes, failed: "
                f"{type(exc).__name__}: {text:.300}"
            ) from exc
        wanted = [f"{a.dtype}{list(a.shape)}" for a in self.outputs]
        got = [f"{a.dtype}{list(a.shape)}" for a in results]
        if got != wanted:
            raise RunError(
                f"step {self.step.name!r}, which {self.step.by} computes, gave "
                f"{', '.join(got) or 'nothing'} where the program has {', '.join(wanted)}"
            )
        for out, array in zip(self.outputs, results, strict=True):
            copied(array, out)

    @property
    def device(self) -> Device:
        return device("cpu", 0)

    def time(self, number: int) -> float:
        return seconds_of(self, number)


def seconds_of(
    run: Callable[[], object], number: int, until: Callable[[], object] | None = None
) -> float:
    """Seconds of `number` calls of ``run``, and of one call of ``until`` behind them."""
    begin = time.perf_counter()
    for _ in range(number):
        run()
    if until is not None:
        until()
    return time.perf_counter() - begin


def copied(source: Array | NDArray, target: Array | NDArray) -> None:
    if isinstance(target, np.ndarray):
        target[...] = source.numpy() if isinstance(source, NDArray) else source
    elif isinstance(source, NDArray):
        source.copyto(target)
    else:
        target.copyfrom(source)


class Callee(NamedTuple):
    function: Kernel | HostStep  # a kernel has its constants
    given: tuple[int, ...]  # numbers of the values that are its constants
    rest: tuple[int, ...]  # numbers of the values that it is called with

    @property
    def slots(self) -> Sequence[int]:
        """Places of ``rest`` among the arguments of a bound call."""
        if isinstance(self.function, HostStep):
            return range(len(self.rest))
        return [k for k, x in enumerate(self.function.given) if x is None]


def callees(
    steps: Sequence[Step],
    kernels: Mapping[str, Module | HostStep],
    weights: Mapping[int, Any],
    before: Sequence[Callee] = (),
    changed: Collection[int] = (),
    shared: SharedArrays | None = None,
    in_place: Collection[int] = (),
) -> list[Callee]:
    """The callee of each step; steps with one kernel and the same constants share its results.

    Constants that kernels read lie side by side in huge pages. ``weights`` are the constants by
    number of the value. ``before`` are the callees for other weights (empty: prepare all), of which
    those in ``changed`` differ. Prepared arrays that equal one of ``shared`` are that array.
    Weights in ``in_place`` are not copied.
    """
    arena = Arena()
    kept = arena.kept if shared is None else partial(shared.one_of, copy=arena.kept)
    prepared: dict[tuple[object, ...], Any] = {}
    called = []
    for at, step in enumerate(steps):
        module, given, rest = split(step, kernels, weights)
        if before and not set(given) & set(changed):
            called.append(before[at])
            continue
        key = (step.kernel, *given)
        if key not in prepared:
            values = [InPlace(weights[n]) if n in in_place else weights[n] for n in given]
            prepared[key] = _with_constants(module, values, kept)
        called.append(Callee(prepared[key], given, rest))
    return called


def _with_constants(
    module: Module | HostStep, constants: Sequence[Any], kept: Callable[[Any], Any]
) -> Kernel | HostStep:
    """A kernel with its constants; a Python function reads all its arguments in every call."""
    if isinstance(module, HostStep):
        return module
    if not constants:
        return module[module.entry_name]
    kernel = module.with_constants(*constants)
    kernel.exchange(kept)
    return kernel


def split(
    step: Step, kernels: Mapping[str, Module | HostStep], weights: Collection[int]
) -> tuple[Module | HostStep, tuple[int, ...], tuple[int, ...]]:
    """The kernel of a step, the values that are its constants, and the others; ArgumentError where
    the kernel is missing, or takes other values than the program gives.
    """
    if step.kernel not in kernels:
        raise ArgumentError(f"kernel {step.kernel!r} is missing")
    module = kernels[step.kernel]
    if isinstance(module, HostStep):
        return module, (), step.args
    args = module.artifact.contents.function(module.entry_name).args
    if len(args) != len(step.args):
        raise ArgumentError(
            f"kernel {step.kernel!r} has {len(args)} arguments, the program gives {len(step.args)}"
        )
    pairs = list(zip(args, step.args, strict=True))
    for arg, n in pairs:
        if arg.constant and n not in weights:
            raise ArgumentError(
                f"kernel {step.kernel!r} takes {arg.name!r} as a constant, the program gives value "
                f"{n}, which is none; build the kernel without it"
            )
    given = tuple(n for arg, n in pairs if arg.constant)
    return module, given, tuple(n for arg, n in pairs if not arg.constant)


_SYMBOL = "lw_run_steps"


def sequence(calls: Sequence[Any], groups: Collection[range] = ()) -> Callable[[], None]:
    """A function that runs bound calls in order, with their arrays as they are bound now.

    Where `in_one_piece` is true of them, it is one piece of compiled code; else a loop in Python,
    or the one call by itself.
    Calls of a group, whose places are adjacent, do not depend on each other and run in parallel on
    the threads of parallel loops; the loop in Python ignores groups. After a RunError the calls
    behind it did not run.
    """
    held = tuple(calls)
    if in_one_piece(held) and len(held) > 1:
        return _in_one(held, groups)

    def run() -> None:
        for call in held:
            call()

    return held[0] if len(held) == 1 else run


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
    waits: tuple[int, ...]  # number of predecessors of each step
    after: tuple[tuple[int, ...], ...]  # successors of each step, in order


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
    args, writes = steps[later].args, steps[later].writes
    for n, earlier in enumerate(steps[:later]):
        if _meet(earlier.writes, args, values) or _meet(earlier.reads, writes, values):
            yield n


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
        """Note the end of a step and begin its ready successors; returns the one to run here. After
        a failure nothing begins; the run ends when all that has begun has ended.
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
