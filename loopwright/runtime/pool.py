"""The thread pool of parallel loops: settings, pinning, and its address for kernels.

The pool itself is LLVM IR (pool.ll), linked into the process when the first kernel with a parallel
loop is. Its threads are detached and sleep when idle; nothing has to be stopped at exit, and a
forked child starts its own.

`config_threadpool` places the threads on CPUs; its modes are `MODES`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from loopwright import env
from loopwright.errors import RunError, UsageError, did_you_mean, shown
from loopwright.runtime import linker

LAUNCH = "lw_parallel_launch"
WATCH = "lw_pool_watch"
_PAUSES = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.isb(i32 15)",
}
_PAUSE_DECLARED = {
    "x86_64": "declare void @llvm.x86.sse2.pause()",
    "aarch64": "declare void @llvm.aarch64.isb(i32)",
}
# CLOCK_MONOTONIC_COARSE of Linux, CLOCK_MONOTONIC_RAW_APPROX of macOS, CLOCK_REALTIME elsewhere.
_CLOCKS = {"linux": 6, "darwin": 5}
# Linux system call numbers: futex, gettid.
_CALLS = {"x86_64": (202, 186), "aarch64": (98, 178)}
_THUNK = """
declare i32 @lw_parallel_launch_n(ptr, ptr, i64, i64, ptr, i32)
define i32 @lw_launch(ptr %body, ptr %closure, i64 %n, i64 %bytes, ptr %workspace) {
  %rc = tail call i32 @lw_parallel_launch_n(ptr %body, ptr %closure, i64 %n, i64 %bytes, ptr %workspace, i32 $THREADS)
  ret i32 %rc
}
"""  # noqa: E501

_lock = threading.RLock()
_chosen: int | None = None
_followers: list[Callable[[int, int], None]] = []
# While a `pinned` block runs: where its threads may run afterwards.
_home: tuple[int, ...] | None = None
_pinned_depth = 0
# The CPUs of each thread, the caller's first, as `config_threadpool` chose; empty: any.
_places: tuple[frozenset[int], ...] = ()

SYSTEM = Path("/sys/devices/system/cpu")
#: Meaning of each mode.
MODES = {
    "none": "the system chooses",
    "compact": "neighbours share cores and packages",
    "spread": "a core of its own for each thread, in other packages by turns, while there are some",
    "big": "the CPUs of the highest clock, one for each thread",
    "little": "those of the lowest",
    "one_per_thread": "the listed CPUs in their order, one for each thread",
    "shared": "each thread on any of the listed CPUs",
}
#: TVM's ``AffinityMode`` in C++: kBig, kLittle, kSpecifyOneCorePerThread and
#: kSpecifyThreadShareAllCore.
TVM_CODES = {1: "big", -1: "little", -2: "one_per_thread", -3: "shared"}
_LISTED = ("one_per_thread", "shared")


def default_num_threads() -> int:
    """Default number of threads: ``LOOPWRIGHT_NUM_THREADS``, or all usable cores."""
    cores = _home or env.usable_cpus()
    return env.settings().num_threads or min(len(cores), env.MAX_THREADS)


def get_num_threads() -> int:
    """Threads that a parallel loop uses, the caller included, where its target names no number."""
    return _chosen or default_num_threads()


def set_num_threads(n: int | None) -> None:
    """Choose the number of threads of parallel loops from the next call on, in the whole process.

    A kernel whose target names ``num_threads`` keeps that number. `n` is 1 to 1023, the caller
    included; None goes back to the default. UsageError where it is out of range.
    """
    if n is not None:
        check_num_threads(n)
    global _chosen
    with _lock:
        _chosen = n
        for configure in _followers:
            configure(get_num_threads(), env.settings().spin)
        if _native.cache_info().currsize:
            _configure(_native())


def config_threadpool(
    affinity_mode: str | int = "none", nthreads: int = 0, cpus: Sequence[int] | None = None
) -> None:
    """Choose the threads of parallel loops and the CPUs that they run on, in the whole process.

    As TVM's ``runtime.config_threadpool``. The workers are started and placed now. The calling
    thread, which takes part in each loop, stays where it is: the first place of the mode is left to
    it. Workers started later, for a target that names more threads or by `set_num_threads`, inherit
    the CPUs of the thread that starts them; so do those of a forked child, until this is called
    again. `pinned`, which is used to time kernels, places the threads in its own way inside its
    block. UsageError where the mode is unknown, a number is out of range, a CPU may not be used, or
    the call is made inside such a block; RunError elsewhere than on Linux, where nothing places
    threads.

    Args:
        affinity_mode: ``none`` (the system chooses), ``compact`` (neighbours share cores and
            packages), ``spread`` (a core of its own for each thread, in other packages by turns),
            ``big`` and ``little`` (the CPUs of the highest and of the lowest clock),
            ``one_per_thread`` (the listed CPUs in their order), ``shared`` (each thread on any of
            the listed CPUs); or TVM's codes 1, -1, -2 and -3 for the last four.
        nthreads: threads, the caller included; 0: one for each CPU of the mode, or the default
            where that is not restricted.
        cpus: numbers of the CPUs to use; default all that the calling thread may run on.
    """
    global _places
    mode = mode_named(affinity_mode)
    if nthreads != 0:
        check_num_threads(nthreads)
    if mode == "none" and cpus is not None:
        raise UsageError("the affinity mode 'none' takes no list of CPUs; 'shared' does")
    if mode != "none" and not linker.on_linux():
        raise RunError("only Linux places threads on CPUs; use the affinity mode 'none'")
    with _lock:
        if _pinned_depth:
            raise UsageError("inside a pinned block the threads have their places already")
        home = env.usable_cpus()
        order: list[int] = []
        if mode != "none":
            order = cpu_order(mode, topology(home), cpus)
        restricted = 0 < len(order) < len(home)
        set_num_threads(nthreads or (min(len(order), env.MAX_THREADS) if restricted else None))
        before, _places = len(_places), ()
        if order:
            _places = places(mode, order, get_num_threads())
        if before or order:
            for place, thread in enumerate(start_workers(max(before, len(_places))), 1):
                os.sched_setaffinity(thread, _rest(place, home))


def _rest(place: int, home: Sequence[int]) -> Sequence[int] | frozenset[int]:
    """CPUs of a thread outside `pinned` blocks; the caller is number 0."""
    return _places[place] if 0 < place < len(_places) else home


def follow(configure: Callable[[int, int], None], num_threads: int = 0) -> None:
    """Configure the pool that a library brought by its ``lw_pool_configure``, now and later.

    ``configure`` takes threads and spin time; ``num_threads`` is the target's, 0 follows
    `set_num_threads`.
    """
    with _lock:
        configure(num_threads or get_num_threads(), env.settings().spin)
        if not num_threads:
            _followers.append(configure)


def check_num_threads(n: int) -> int:
    """Return `n`; UsageError where it is not an integer from 1 to 1023."""
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= env.MAX_THREADS:
        raise UsageError(f"num_threads {n!r} is not a whole number from 1 to {env.MAX_THREADS}")
    return n


@dataclass(frozen=True, slots=True)
class _NativePool:
    """Entry points of pool.ll in this process."""

    code: linker.Linked
    configure: ctypes._CFunctionType
    start: ctypes._CFunctionType
    thread: ctypes._CFunctionType


def pool_text(kind: str = "auto") -> str:
    """The pool as LLVM IR text for this machine; threads sleep by ``futex`` or ``pthread``.

    UsageError where futex is requested but missing, RunError where there are no POSIX threads.
    """
    if os.name != "posix":
        raise RunError("the thread pool needs POSIX threads; use a target with num_threads=1")
    arch = linker.architecture()
    possible = linker.on_linux() and arch in _CALLS
    if kind == "futex" and not possible:
        raise UsageError(f"LOOPWRIGHT_POOL=futex needs Linux on {' or '.join(_CALLS)}; use pthread")
    sleep = "futex" if kind == "futex" or (kind == "auto" and possible) else "pthread"
    folder = Path(__file__).parent
    text = (folder / "pool.ll").read_text() + (folder / f"sleep_{sleep}.ll").read_text()
    if possible:
        futex, gettid = _CALLS[arch]
        identify = f"%id64 = call i64 (i64, ...) @syscall(i64 {gettid})\n"
        identify += "  %id = trunc i64 %id64 to i32"
        text = text.replace("$FUTEX", str(futex)).replace("$THREAD_ID", identify)
        if "declare i64 @syscall" not in text:
            text += "\ndeclare i64 @syscall(i64, ...)\n"
    else:
        text = text.replace("$THREAD_ID", "%id = add i32 %index, 1")
    text = text.replace("$PAUSE", _PAUSES.get(arch, ""))
    text = text.replace("$CLOCK", str(_CLOCKS.get(sys.platform, 0)))
    return f"{text}\n{_PAUSE_DECLARED.get(arch, '')}\n"


def _configure(native: _NativePool) -> None:
    native.configure(get_num_threads(), env.settings().spin)


@lru_cache(maxsize=1)
def _native() -> _NativePool:
    names = ("lw_pool_configure", "lw_pool_start", "lw_pool_thread", WATCH)
    text = pool_text(env.settings().pool)
    # Detached threads sleep in this code until the process is gone.
    code = linker.link(linker.compile_text(text), [*names, LAUNCH, f"{LAUNCH}_n"]).keep_forever()
    at = code.addresses
    number = ctypes.c_int32
    native = _NativePool(
        code,
        ctypes.CFUNCTYPE(None, number, number)(at[names[0]]),
        ctypes.CFUNCTYPE(number, number)(at[names[1]]),
        ctypes.CFUNCTYPE(number, number)(at[names[2]]),
    )
    watch(at[WATCH])
    _configure(native)
    return native


class _Watch(ctypes.Structure):
    """Functions of CPython by which a loop learns of signals, and the exception of a handler."""

    _fields_ = (
        ("main", ctypes.c_uint64),
        ("ensure", ctypes.c_void_p),
        ("check", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("fetch", ctypes.c_void_p),
        ("normalize", ctypes.c_void_p),
        ("raised", ctypes.c_void_p * 3),  # type, value, traceback: references that it owns
    )


@lru_cache(maxsize=1)
def _watch() -> _Watch:
    python = ctypes.pythonapi
    functions = (
        python.PyGILState_Ensure,
        python.PyErr_CheckSignals,
        python.PyGILState_Release,
        python.PyErr_Fetch,
        python.PyErr_NormalizeException,
    )
    addresses = (ctypes.cast(f, ctypes.c_void_p) for f in functions)
    return _Watch(threading.main_thread().ident or 0, *addresses)


def watch(address: int) -> None:
    """Let signals such as Ctrl-C end loops of the pool whose ``lw_pool_watch`` this is.

    The main thread asks for them in loops that it began, between pieces of some hundredths of a
    second, and as often before loops that follow each other closely. All threads finish their
    pieces before the kernel fails, and outputs hold what was computed by then. One iteration, and a
    loop on one thread, is one piece.
    """
    if sys.implementation.name == "cpython":
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.addressof(_watch()))


def _forked() -> None:
    """The thread that forked is the main thread of the child."""
    if _watch.cache_info().currsize:
        _watch().main = threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def interruption() -> BaseException | None:
    """The exception of a handler that ended the kernel that this thread called, if one did.

    Any code may come with it: that of another thread's body, if it failed before.
    """
    if not _watch.cache_info().currsize or threading.get_ident() != _watch().main:
        return None
    raised = _watch().raised
    owned, raised[:] = list(raised), [None] * 3
    _, value, traceback = (p and ctypes.cast(p, ctypes.py_object).value for p in owned)
    for p in filter(None, owned):
        ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(p))
    return value.with_traceback(traceback) if isinstance(value, BaseException) else None


def launch_address(num_threads: int = 0) -> int:
    """Address of ``lw_parallel_launch`` for kernels; the first call builds the pool.

    ``num_threads`` holds for all launches through this address; 0 follows `set_num_threads`.
    """
    with _lock:
        native = _native()
        if num_threads == 0:
            return native.code.addresses[LAUNCH]
        return _fixed(check_num_threads(num_threads)).addresses["lw_launch"]


@cache
def _fixed(num_threads: int) -> linker.Linked:
    text = _THUNK.replace("$THREADS", str(num_threads))
    target = {f"{LAUNCH}_n": _native().code.addresses[f"{LAUNCH}_n"]}
    return linker.link(linker.compile_text(text), ["lw_launch"], target).keep_forever()


def start_workers(num_threads: int | None = None) -> tuple[int, ...]:
    """Start the workers of `num_threads` threads (the caller included) ahead of the first launch.

    Returns their thread ids in the system; fewer where it gives no more threads.
    """
    want = check_num_threads(num_threads or get_num_threads()) - 1
    with _lock:
        native = _native()
    while (have := native.start(want)) < 0:
        time.sleep(0.0005)  # another thread is in a parallel loop; hiring needs the pool
    ids = []
    for index in range(min(want, have)):
        while (thread := native.thread(index)) == 0:
            time.sleep(0)
        ids.append(thread)
    return tuple(ids)


@contextmanager
def pinned(num_threads: int | None = None) -> Iterator[None]:
    """Keep the calling thread and the pool's workers each on a CPU of its own inside the block.

    The caller gets the first usable CPU, worker i the i-th after it (round again where there are
    fewer CPUs than threads). Afterwards all may run where the caller could before, or where
    `config_threadpool` put them. For timing.
    Only Linux can do this; elsewhere the block runs unpinned. A block inside another does nothing.
    Workers for ``num_threads``, default `get_num_threads`, are started now, so that none is born on
    the caller's CPU.
    """
    if not linker.on_linux():
        yield
        return
    undo = ExitStack()
    try:
        with _lock:
            _pin(num_threads, undo)
        yield
    finally:
        with _lock:
            undo.close()


def _pin(num_threads: int | None, undo: ExitStack) -> None:
    """Enter a `pinned` block; `undo` gets the reverse of each step."""
    global _home, _pinned_depth
    _pinned_depth += 1
    undo.callback(_unpin, outermost=_pinned_depth == 1)
    if _pinned_depth > 1:
        return
    cpus = env.usable_cpus()
    threads = (0, *start_workers(num_threads))
    _home = cpus
    for place, thread in enumerate(threads):
        os.sched_setaffinity(thread, {cpus[place % len(cpus)]})
        undo.callback(os.sched_setaffinity, thread, _rest(place, cpus))


def _unpin(outermost: bool) -> None:
    global _home, _pinned_depth
    _pinned_depth -= 1
    if outermost:
        _home = None


@dataclass(frozen=True, slots=True)
class Cpu:
    """One CPU as the system describes it."""

    #: As affinities name it.
    number: int
    #: CPUs of one core in one package share its units.
    package: int
    core: int
    #: Highest clock; 0 where the system does not tell.
    max_khz: int


def topology(numbers: Sequence[int], system: Path = SYSTEM) -> list[Cpu]:
    """The CPUs of these numbers; each a core of its own where the system does not tell."""
    cpus = []
    for number in numbers:
        folder = system / f"cpu{number}"
        package = _number(folder / "topology" / "physical_package_id", 0)
        core = _number(folder / "topology" / "core_id", number)
        cpus.append(Cpu(number, package, core, _number(folder / "cpufreq" / "cpuinfo_max_freq", 0)))
    return cpus


def _number(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return otherwise


def mode_named(mode: str | int) -> str:
    """The name of a mode, which may be given by TVM's code; UsageError where there is none."""
    if isinstance(mode, int) and not isinstance(mode, bool) and mode in TVM_CODES:
        return TVM_CODES[mode]
    if not isinstance(mode, str) or mode not in MODES:
        hint = did_you_mean(mode, MODES) if isinstance(mode, str) else ""
        raise UsageError(f"no affinity mode {shown(mode)}{hint}; it is one of {', '.join(MODES)}")
    return mode


def cpu_order(mode: str, usable: Sequence[Cpu], listed: Sequence[int] | None) -> list[int]:
    """The CPUs that a mode other than ``none`` uses, in the order in which threads take them.

    UsageError where a CPU may not be used or is listed twice, or a mode that needs a list has none.
    """
    if listed is None and mode in _LISTED:
        raise UsageError(f"the affinity mode {mode!r} needs a list of CPUs; pass cpus=[...]")
    if listed is not None:
        _check_listed(listed, [cpu.number for cpu in usable])
    if mode in _LISTED:
        return list(listed or ())
    chosen = [cpu for cpu in usable if listed is None or cpu.number in listed]
    clocks = [cpu.max_khz for cpu in chosen]
    if mode in ("big", "little"):
        wanted = max(clocks) if mode == "big" else min(clocks)
        return [cpu.number for cpu in chosen if cpu.max_khz == wanted]
    if mode == "compact":
        return [c.number for c in sorted(chosen, key=lambda c: (c.package, c.core, c.number))]
    return _spread(chosen)


def _spread(cpus: Sequence[Cpu]) -> list[int]:
    """One CPU of each core first, packages in turns; then the second of each core, and so on."""
    cores: Counter[tuple[int, int]] = Counter()
    places: Counter[tuple[int, int]] = Counter()
    keys = []
    for cpu in sorted(cpus, key=lambda c: (c.package, c.core, c.number)):
        turn = cores[cpu.package, cpu.core]
        cores[cpu.package, cpu.core] += 1
        rank = places[cpu.package, turn]
        places[cpu.package, turn] += 1
        keys.append((turn, rank, cpu.package, cpu.number))
    return [number for *_, number in sorted(keys)]


def _check_listed(listed: Sequence[int], usable: Sequence[int]) -> None:
    if not listed:
        raise UsageError("the list of CPUs is empty; name at least one")
    for number in listed:
        if isinstance(number, bool) or number not in usable:
            may = ", ".join(map(str, usable))
            raise UsageError(f"CPU {shown(number)} may not be used here; those that may: {may}")
    if len(set(listed)) < len(listed):
        raise UsageError(f"the list of CPUs names one twice: {shown(list(listed))}")


def places(mode: str, order: Sequence[int], threads: int) -> tuple[frozenset[int], ...]:
    """The CPUs of each thread, the caller's first; more threads than CPUs begin again."""
    if mode == "shared":
        return (frozenset(order),) * threads
    return tuple(frozenset({order[i % len(order)]}) for i in range(threads))
