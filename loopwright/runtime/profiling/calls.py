"""Observation of calls of compiled functions.

While somebody observes, ``__call__`` of the classes of functions is replaced by one that tells the
observers; otherwise the classes are as they were written, and a call costs what it always does.
Bound calls are seen as well; those that a loop in compiled code makes are not.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

from loopwright.runtime.devices.device import Device
from loopwright.runtime.kernels.device_function import DeviceCall, DeviceFunction
from loopwright.runtime.kernels.function import BoundCall, Function

#: Called with a function and its arguments when a call begins; its result is called at the end.
Observer = Callable[[Any, tuple[object, ...]], Callable[[], None]]

_CALL = "__call__"
_lock = threading.RLock()
_classes: list[type] = [Function, DeviceFunction, BoundCall, DeviceCall]
_originals: dict[type, Callable[..., object]] = {}
_observers: tuple[Observer, ...] = ()
_inside = threading.local()


def observe_calls_of(cls: type) -> None:
    """Let observers see the calls of another class of functions.

    It defines ``__call__``; its objects have ``name``, ``device`` and ``args``.
    """
    with _lock:
        if cls in _classes:
            return
        _classes.append(cls)
        if _observers:
            _replace(cls)


def home_of(function: Any, args: tuple[object, ...]) -> Device:
    """The device that a call runs on: that of its arrays, else the first one of its kind."""
    first: Device = function.device
    homes = (getattr(arg, "device", None) for arg in args)
    ours = (d for d in homes if isinstance(d, Device) and d.device_type == first.device_type)
    return next(ours, first)


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Tell an observer of every call that begins inside the block, in any thread.

    Of calls inside a call, such as those of a callback, only the outermost one is told.
    """
    start(observer)
    try:
        yield
    finally:
        stop(observer)


def start(observer: Observer) -> None:
    """Tell an observer of every call from now on."""
    global _observers
    with _lock:
        if not _observers:
            for cls in _classes:
                _replace(cls)
        _observers = (*_observers, observer)


def stop(observer: Observer) -> None:
    """Tell an observer of no further calls; of those that run, it still sees the end."""
    global _observers
    with _lock:
        _observers = tuple(other for other in _observers if other is not observer)
        if _observers:
            return
        while _originals:
            cls, original = _originals.popitem()
            setattr(cls, _CALL, original)


def _replace(cls: type) -> None:
    _originals[cls] = vars(cls)[_CALL]
    setattr(cls, _CALL, _told(_originals[cls]))


def _told(original: Callable[..., object]) -> Callable[..., object]:
    """A ``__call__`` that tells the observers, and calls the original one."""

    @wraps(original)
    def call(self: object, *args: object) -> object:
        if getattr(_inside, "call", False):
            return original(self, *args)
        _inside.call = True
        ends = [observer(self, args) for observer in _observers]
        try:
            return original(self, *args)
        finally:
            _inside.call = False
            for end in ends:
                end()

    return call


class MetricCollector(ABC):
    """Counts something around each profiled call.

    Subclass it for counters of a device or of the system; `start` and `stop` come in pairs.
    """

    @abstractmethod
    def start(self, device: Device) -> object:
        """Begin to count on a device; the result is passed to `stop`."""

    @abstractmethod
    def stop(self, started: object) -> Mapping[str, int | float]:
        """Counts since the start, by name: at least 0, and such that several calls add up."""


class ResourceCollector(MetricCollector):
    """Page faults and context switches of this process, by ``getrusage``.

    A call that has them was disturbed: memory was touched for the first time, or another process
    took the core. Windows counts none of them.

    Example:
        >>> from loopwright.runtime.profiling import ResourceCollector
        >>> collector = ResourceCollector()
        >>> print(sorted(collector.stop(collector.start(lw.cpu(0)))))
        ['Involuntary switches', 'Major faults', 'Minor faults']
    """

    def start(self, device: Device) -> object:
        return self._counts()

    def stop(self, started: object) -> Mapping[str, int | float]:
        assert isinstance(started, dict)
        return {name: count - started[name] for name, count in self._counts().items()}

    def _counts(self) -> dict[str, int]:
        try:
            import resource
        except ImportError:  # Windows
            return {}
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "Minor faults": usage.ru_minflt,
            "Major faults": usage.ru_majflt,
            "Involuntary switches": usage.ru_nivcsw,
        }
