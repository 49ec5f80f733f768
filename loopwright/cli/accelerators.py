"""What ``loopwright devices`` tells of GPUs and OpenCL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loopwright.runtime import Device, cuda, opencl

_ATTRIBUTES = (
    "device_name", "compute_version", "driver_version", "multi_processor_count",
    "total_global_memory", "max_threads_per_block", "max_shared_memory_per_block", "warp_size",
)  # fmt: skip


def _devices() -> Iterator[Device]:
    """All devices of kinds that are driven here, the CPU aside."""
    for make in (cuda, opencl):
        number = 0
        while make(number).exist:
            yield make(number)
            number += 1


def facts() -> list[dict[str, Any]]:
    """The devices for scripts: an object each, with null for what it does not tell."""
    return [
        {"device": str(d), **{name: d.attribute(name) for name in _ATTRIBUTES}} for d in _devices()
    ]


def lines() -> Iterator[str]:
    """The devices for people, and why there is none of a kind."""
    for d in _devices():
        yield f"{d}: {d.device_name}, {d.multi_processor_count} processors"
        yield f"  memory: {d.total_memory / 2**30:.1f} GiB"
        yield (
            f"  a block: {d.max_threads_per_block} threads, "
            f"{(d.max_shared_memory_per_block or 0) >> 10} KiB of shared memory"
        )
        yield f"  {d.name} {d.compute_version}, driver {d.driver_version}"
    for make in (cuda, opencl):
        if not make().exist:
            yield f"{make().name}: none ({make().why_absent()})"
