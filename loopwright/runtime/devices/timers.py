"""Timers: the host's clock for work of the host, events for work of a device."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import HOST, DeviceAPI, Stream
from loopwright.runtime.devices.registry import device_api


class Timer(ABC):
    """A span of time on a device, from its creation until `stop`."""

    @abstractmethod
    def stop(self) -> None:
        """End the span; does not wait for a device."""

    @abstractmethod
    def seconds(self) -> float:
        """Length of the span, at least 0; waits until the device has come to its end."""


class HostTimer(Timer):
    """A timer by ``time.perf_counter_ns``."""

    def __init__(self) -> None:
        self.begin = self.end = time.perf_counter_ns()

    def stop(self) -> None:
        self.end = time.perf_counter_ns()

    def seconds(self) -> float:
        return (self.end - self.begin) * 1e-9


class EventTimer(Timer):
    """A timer by two events in a stream of a device."""

    def __init__(self, api: DeviceAPI, device_id: int, stream: Stream | None = None) -> None:
        self._api, self._device_id, self._stream = api, device_id, stream
        self._first = self._then = api.record_event(device_id, stream)

    def stop(self) -> None:
        """Put the second event behind the present work of the stream."""
        self._then = self._api.record_event(self._device_id, self._stream)

    def seconds(self) -> float:
        """Time between the events; a clock that runs backwards by its grain counts as 0."""
        return max(0.0, self._api.elapsed(self._first, self._then))


def start_timer(device: Device) -> Timer:
    """A timer that begins now, or behind the present work of the device's current stream."""
    if device.device_type == HOST:
        return HostTimer()
    return EventTimer(device_api(device.device_type), device.device_id)
