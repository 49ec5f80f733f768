"""The registry of device kinds: backends of ``cpu``, ``opencl``, ``cuda`` and others.

A backend is made at its first use, so that nothing is imported or probed before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from loopwright.errors import UsageError
from loopwright.runtime.devices.interface import DeviceAPI

_lock = threading.RLock()
_makers: dict[int, Callable[[], DeviceAPI]] = {}
_made: dict[int, DeviceAPI] = {}


def register_device_api(device_type: int, make: Callable[[], DeviceAPI]) -> None:
    """Enter a kind of devices.

    Args:
        device_type: its DLPack code (`loopwright.runtime.DEVICE_TYPES` has the names), or a code of
            its own from 1, under which the backend's ``name`` names its devices.
        make: returns the backend; called once, at the first use of such a device.

    Raises:
        UsageError: the code has a backend already, or is not an integer from 1.
    """
    if isinstance(device_type, bool) or not isinstance(device_type, int) or device_type < 1:
        raise UsageError(f"the device type {device_type!r} is no whole number from 1")
    with _lock:
        if device_type in _makers:
            raise UsageError(f"the device type {device_type} has a backend already")
        _makers[device_type] = make


def unregister_device_api(device_type: int) -> None:
    """Remove a kind of devices; nothing happens where there is none."""
    with _lock:
        _makers.pop(device_type, None)
        _made.pop(device_type, None)


def find_device_api(device_type: int) -> DeviceAPI | None:
    """The backend of a kind of devices; None where there is none."""
    with _lock:
        if device_type not in _made and device_type in _makers:
            _made[device_type] = _makers[device_type]()
        return _made.get(device_type)


def device_api_types() -> list[int]:
    """DLPack codes of all kinds of devices that have a backend, in order."""
    with _lock:
        return sorted(_makers)


def device_api(device_type: int) -> DeviceAPI:
    api = find_device_api(device_type)
    if api is None:
        raise UsageError(f"no backend drives devices of type {device_type} in this version")
    return api
