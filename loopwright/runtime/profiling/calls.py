"""Observation of calls of compiled functions.

While somebody observes, ``__call__`` of the classes of functions is replaced by one that tells the
observers; otherwise the classes are as they were written, and a call costs what it always does.
Bound calls are seen as well; those that a loop in compiled code makes are not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.function import DeviceCall, DeviceFunction
from loopwright.runtime.function import BoundCall, Function

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

    Args:
        cls: a class that defines ``__call__``; its objects have ``name``, ``device`` and ``args``.
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
