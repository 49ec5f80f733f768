"""Ansor's ``HardwareParams``: facts of the hardware in place of those of the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopwright.errors import UsageError
from loopwright.target import Target
from loopwright.task.task import TargetLike, resolve_target

__all__ = ["HardwareParams"]

#: Options of GPU targets by Ansor's names.
_GPU = {
    "num_cores": "multi_processor_count",
    "max_shared_memory_per_block": "max_shared_memory_per_block",
    "max_local_memory_per_block": "max_local_memory_per_thread",
    "max_threads_per_block": "max_threads_per_block",
    "max_vthread_extent": "max_vthread",
    "warp_size": "thread_warp_size",
    "vector_unit_bytes": "max_vector_bytes",
}


@dataclass(frozen=True)
class HardwareParams:
    """Facts of the hardware for a `SearchTask`; None keeps the target's.

    They become options of its target, for which kernels are built and which records hold.

    Attributes:
        num_cores: threads of a CPU; multiprocessors of a device.
        vector_unit_bytes: width of vectors; for a CPU only a width below the target's has an
            effect.
        cache_line_bytes: bytes of a cache line of a CPU; accepted for devices.
        max_shared_memory_per_block: bytes; for devices alone, as are the following ones.
        max_local_memory_per_block: bytes; of one thread here.
        max_threads_per_block: threads.
        max_vthread_extent: virtual threads.
        warp_size: threads that run together.
        target: source of the values that are None.
        target_host: accepted: the host has no part in schedules.

    Raises:
        UsageError: a number is no positive integer.

    Example:
        >>> from loopwright import auto_scheduler
        >>> params = auto_scheduler.HardwareParams(num_cores=1, vector_unit_bytes=32)
        >>> print(params.applied_to(lw.Target("llvm -mcpu=x86-64-v4")))
        llvm -num-threads=1 -prefer-vector-width=256 -mcpu=x86-64-v4
    """

    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int | None = None
    max_shared_memory_per_block: int | None = None
    max_local_memory_per_block: int | None = None
    max_threads_per_block: int | None = None
    max_vthread_extent: int | None = None
    warp_size: int | None = None
    target: TargetLike = None
    target_host: TargetLike = None

    def __post_init__(self) -> None:
        for name in (*_GPU, "cache_line_bytes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise UsageError(f"HardwareParams: {name} is a positive integer, got {value!r}")
        if self.target is not None:
            self._fill(resolve_target(self.target))

    def _fill(self, target: Target) -> None:
        found: dict[str, Any] = {}
        if "gpu" in target.keys:
            found = {name: target.canonical.get(option) for name, option in _GPU.items()}
        else:
            hardware = target.hardware
            found = {
                "num_cores": hardware.num_cores or None,
                "vector_unit_bytes": hardware.vector_unit_bytes,
                "cache_line_bytes": target.options.get("cache_line_bytes") or None,
            }
        for name, value in found.items():
            if getattr(self, name) is None and value is not None:
                object.__setattr__(self, name, value)

    def applied_to(self, target: Target) -> Target:
        """A target with these facts.

        Raises:
            UsageError: a limit of devices is given for a CPU.
        """
        given = {name: getattr(self, name) for name in _GPU if getattr(self, name) is not None}
        if "gpu" in target.keys:
            options = {_GPU[name]: value for name, value in given.items()}
        else:
            options = _of_cpu(given, target)
            if self.cache_line_bytes is not None:
                options["cache_line_bytes"] = self.cache_line_bytes
        return Target({**target.canonical, **options}, target.host)


def _of_cpu(given: dict[str, int], target: Target) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if "num_cores" in given:
        options["num_threads"] = given.pop("num_cores")
    if "vector_unit_bytes" in given:
        width = given.pop("vector_unit_bytes")
        if width < target.vector_bytes and target.kind.name == "llvm":
            options["prefer_vector_width"] = 8 * width
    if given:
        raise UsageError(
            f"HardwareParams: {', '.join(given)} says something of devices, and the target is "
            f"{target.kind}; leave it out"
        )
    return options
