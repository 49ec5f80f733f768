"""Collectors: further measurements around a profiled call, as TVM's ``MetricCollector``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from loopwright.runtime.devices.device import Device


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
    took the core.

    Example:
        >>> from loopwright.runtime.profiling import ResourceCollector
        >>> collector = ResourceCollector()
        >>> print(sorted(collector.stop(collector.start(lw.cpu(0)))))
        ['Involuntary switches', 'Major faults', 'Minor faults']
    """

    def start(self, device: Device) -> object:
        """The present counts."""
        return self._counts()

    def stop(self, started: object) -> Mapping[str, int | float]:
        """Increase of each count."""
        assert isinstance(started, dict)
        return {name: count - started[name] for name, count in self._counts().items()}

    def _counts(self) -> dict[str, int]:
        import resource  # Windows has none

        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "Minor faults": usage.ru_minflt,
            "Major faults": usage.ru_majflt,
            "Involuntary switches": usage.ru_nivcsw,
        }
