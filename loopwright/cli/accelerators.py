"""GPUs and OpenCL in the output of ``loopwright devices``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.errors import BuildError, CodegenError, LowerError, RunError, UsageError
from loopwright.runtime import Device, cuda, opencl

_ATTRIBUTES = (
    "device_name", "compute_version", "driver_version", "multi_processor_count",
    "total_global_memory", "max_threads_per_block", "max_shared_memory_per_block", "warp_size",
)  # fmt: skip


@dataclass(frozen=True)
class MeasuredLimits:
    """The limits of a device, measured now."""

    #: Float32 multiply-adds in registers, in operations a second; None: unknown.
    peak: float | None
    #: Memory traffic, in bytes a second; None: unknown.
    bandwidth: float | None
    #: The reason why a limit is unknown; empty where both are known.
    why_not: str


def measured_limits(device: Device) -> MeasuredLimits:
    """The limits of a device, which is held for this process while they are measured."""
    from loopwright.cli.kernels import workload_kernels
    from loopwright.measure import device_limit
    from loopwright.target import Target

    rate = device_limit.in_this_process(device)
    peak = bandwidth = None
    try:
        target = Target(device.name)
        with workload_kernels.alone(device):
            arithmetic = device_limit.arithmetic(target)
            memory = device_limit.memory(target)
            peak = rate(arithmetic) * arithmetic.work
            bandwidth = rate(memory) * memory.work
    except (BuildError, CodegenError, LowerError, RunError, UsageError) as error:
        return MeasuredLimits(peak, bandwidth, str(error))
    return MeasuredLimits(peak, bandwidth, "")


def _devices() -> Iterator[Device]:
    """All devices of kinds that are driven here, except the CPU."""
    for make in (cuda, opencl):
        number = 0
        while make(number).exist:
            yield make(number)
            number += 1


def facts() -> list[dict[str, Any]]:
    """One object a device for scripts, with null for unknown values; limits are measured now."""
    return [_facts(d) for d in _devices()]


def _facts(d: Device) -> dict[str, Any]:
    limits = measured_limits(d)
    return {
        "device": str(d),
        **{name: d.attribute(name) for name in _ATTRIBUTES},
        "fma_peak_gflops": None if limits.peak is None else limits.peak / 1e9,
        "bandwidth_gbytes": None if limits.bandwidth is None else limits.bandwidth / 1e9,
        "limits_unknown": limits.why_not,
    }


def lines(told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The devices that `facts` gave, for people, and the reason why there is none of a kind."""
    for d, facts_of_it in zip(_devices(), told, strict=True):
        yield f"{d}: {d.device_name}, {d.multi_processor_count} processors"
        yield f"  memory: {d.total_memory / 2**30:.1f} GiB"
        yield (
            f"  a block: {d.max_threads_per_block} threads, "
            f"{(d.max_shared_memory_per_block or 0) >> 10} KiB of shared memory"
        )
        yield f"  {d.name} {d.compute_version}, driver {d.driver_version}"
        yield from _limit_lines(facts_of_it)
    for make in (cuda, opencl):
        if not make().exist:
            yield f"{make().name}: none ({make().why_absent()})"


def _limit_lines(told: Mapping[str, Any]) -> Iterator[str]:
    if told["fma_peak_gflops"] is not None:
        yield f"  float32 peak: {told['fma_peak_gflops']:.1f} GFLOP/s"
    if told["bandwidth_gbytes"] is not None:
        yield f"  memory bandwidth: {told['bandwidth_gbytes']:.1f} GB/s"
    if told["limits_unknown"]:
        yield f"  its limits are not known: {told['limits_unknown']}"
