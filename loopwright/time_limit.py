"""Limits of time for code of users that runs in this process: templates, filters, and such.

Templates are not pickled, so no process can be killed in their place: an exception is raised inside
of them. On the main thread a timer of the system and SIGALRM do that, and also end a sleep; on
other threads `PyThreadState_SetAsyncExc`, which only Python code notices. Neither ends compiled
code that never returns.

CPU time of the thread counts, so that a busy machine ends nothing that is quick elsewhere; of the
time in which a function waits, several times as much. Either may be late, so neither is raised once
the function has returned. Nor is it raised in a destructor that ends, where Python prints an
exception and drops it.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import ClassVar, TypeVar

from loopwright.errors import TimeLimitError

#: Seconds that a template, or the filters of a space, may take for one configuration.
TEMPLATE_S = 10.0
#: Wall-clock time, in limits, after which a function is ended however little it computes: one that
#: sleeps, or a thread that others keep from running.
_PATIENCE = 6.0
#: A function that catches everything gets the exception again after so many seconds.
_AGAIN_S = 0.2
#: Seconds between two looks of the thread that watches the others, at most; below what limits are.
_LOOK_S = 5.0
#: Seconds beyond the limit that a destructor in progress may take.
_DESTRUCTOR_S = 1.0

_T = TypeVar("_T")


class _Expired(BaseException):
    """Raised inside of a function whose time is up; ``except Exception`` does not catch it."""


def _call(function: Callable[..., _T], args: tuple[object, ...]) -> _T:
    """Call the function; while this frame stands, an exception is caught by `limited`."""
    return function(*args)


def _running(frame: FrameType | None) -> bool:
    """Whether a function with a limit is running, by the innermost frame of its thread."""
    while frame is not None and frame.f_code is not _call.__code__:
        frame = frame.f_back
    return frame is not None


def _in_destructor(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def _used_up(seconds: float, wall: float, cpu: float) -> bool:
    return cpu >= seconds or wall >= _PATIENCE * seconds


def _cpu_time(thread: int) -> float:
    """CPU time of a running thread in seconds; infinite where the system does not tell."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return math.inf
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


# A guard raises `_Expired` in a thread, between `start` and `stop`; ``fired`` says that it did.
# `stop` may be called again, where an exception cut it short.
class _Alarm:
    """The guard of the main thread, by SIGALRM; handler and timer of the user are restored in the
    end, and a timer that was due meanwhile goes off then."""

    def __init__(self) -> None:
        self.fired = False
        self._on = False
        self._seconds = self._due = math.inf
        self._begun, self._cpu = time.monotonic(), time.thread_time()
        self._handler = signal.getsignal(signal.SIGALRM)
        self._timer = signal.getitimer(signal.ITIMER_REAL)

    def start(self, seconds: float) -> None:
        self._on, self._seconds = True, seconds
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)

    def stop(self) -> None:
        self._on = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self._handler)
        left, interval = self._timer
        if left:
            left = max(left - (time.monotonic() - self._begun), 1e-6)
            signal.setitimer(signal.ITIMER_REAL, left, interval)

    def _ring(self, _: int, frame: FrameType | None) -> None:
        if not self._on or not _running(frame):
            return
        now = time.monotonic()
        if not self.fired:
            if not _used_up(self._seconds, now - self._begun, time.thread_time() - self._cpu):
                return
            self.fired, self._due = True, now
        if not _in_destructor(frame) or now >= self._due + _DESTRUCTOR_S:
            raise _Expired


class _AsyncException:
    """The guard of any thread, by a thread that watches the others. It is used again and again, and
    the watcher sleeps meanwhile: a limit costs a few microseconds."""

    _lock = threading.Lock()
    _guards: ClassVar[weakref.WeakSet[_AsyncException]] = weakref.WeakSet()
    _watcher: threading.Thread | None = None
    _changed = threading.Event()
    #: Time of the watcher's next look; later limits do not wake it.
    _wakes = 0.0

    def __init__(self) -> None:
        self.fired = False
        self._seconds = self._begun = self._cpu = 0.0
        #: End of the limit, and time at which the watcher looks (again and again).
        self._limit = self._due = math.inf
        self._thread = threading.get_ident()
        with self._lock:
            self._guards.add(self)

    def start(self, seconds: float) -> None:
        kind = _AsyncException
        self.fired = False
        self._seconds, self._begun, self._cpu = seconds, time.monotonic(), time.thread_time()
        self._limit = self._due = self._begun + seconds
        if self._due < kind._wakes:
            kind._changed.set()
        elif kind._wakes == 0.0:
            kind._start_watcher()

    def stop(self) -> None:
        with self._lock:
            self._due = math.inf
            if self.fired:
                self._take_back()

    def _take_back(self) -> None:
        """See to it that what was not raised yet is not raised later.

        It is raised here. NULL in its place would leave the interpreter's flag of an exception that
        waits: CPython 3.11 then enters no function any more in threads with a trace function.
        """
        with suppress(_Expired):
            self._raise()
            while True:
                pass

    def _raise_unless_over(self, now: float) -> None:
        """Raise in the thread, unless the function has returned, or a destructor is running.

        The function may return between the look at the thread and the exception: that happens at
        most once, since the function is not found running again.
        """
        frame = sys._current_frames().get(self._thread)
        if not _running(frame):
            return
        if not self.fired:
            cpu = _cpu_time(self._thread) - self._cpu
            if not _used_up(self._seconds, now - self._begun, cpu):
                return
            self.fired, self._limit = True, now
        if not _in_destructor(frame) or now >= self._limit + _DESTRUCTOR_S:
            self._raise()

    def _raise(self) -> None:
        number, exception = ctypes.c_ulong(self._thread), ctypes.py_object(_Expired)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, exception)

    @classmethod
    def _start_watcher(cls) -> None:
        with cls._lock:
            if cls._watcher is None or not cls._watcher.is_alive():
                cls._watcher = threading.Thread(target=cls._watch, name="time-limit", daemon=True)
                cls._watcher.start()

    @classmethod
    def _watch(cls) -> None:
        while True:
            cls._changed.clear()
            cls._raise_due()
            cls._changed.wait(max(0.0, cls._wakes - time.monotonic()))

    @classmethod
    def _raise_due(cls) -> None:
        with cls._lock:
            now = time.monotonic()
            for guard in cls._guards:
                if guard._due <= now:
                    guard._due = now + _AGAIN_S
                    guard._raise_unless_over(now)
            cls._wakes = min([now + _LOOK_S, *(guard._due for guard in cls._guards)])

    @classmethod
    def _forget(cls) -> None:
        """Reset a forked process, which has no watcher, and perhaps a lock that stays locked."""
        cls._lock, cls._changed = threading.Lock(), threading.Event()
        cls._watcher, cls._wakes = None, 0.0
        cls._guards = weakref.WeakSet()
        _inside.__dict__.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_AsyncException._forget)


_inside = threading.local()


def limited(
    seconds: float, what: str, function: Callable[..., _T], *args: object, often: bool = False
) -> _T:
    """Call a function of a user, and end it with a `TimeLimitError` when it takes too long,
    whatever it returned or raised in the end: more than ``seconds`` of CPU time, or six times as
    much by the clock.

    ``what`` is the subject of the message. Inside another call on the same thread there is no
    further limit. Ctrl-C passes. A function that catches every exception gets this one again and
    again. ``often`` is for functions too quick for a timer; one that sleeps is then not ended.
    """
    if getattr(_inside, "limit", False):
        return function(*args)
    by_alarm = (
        not often
        and threading.current_thread() is threading.main_thread()
        and hasattr(signal, "setitimer")
        # None: the handler was not set by Python, and could not be put back.
        and signal.getsignal(signal.SIGALRM) is not None
    )
    guard = _Alarm() if by_alarm else _watched()
    try:
        _inside.limit = True
        try:
            guard.start(seconds)
            value = _call(function, args)
        finally:
            guard.stop()
    except BaseException as exc:
        guard.stop()
        if not guard.fired or isinstance(exc, KeyboardInterrupt):
            raise
    else:
        if not guard.fired:
            return value
    finally:
        _inside.limit = False
    raise TimeLimitError(f"{what} took longer than {seconds:g} s")


def _watched() -> _AsyncException:
    guard: _AsyncException | None = getattr(_inside, "guard", None)
    if guard is None:
        guard = _inside.guard = _AsyncException()
    return guard
