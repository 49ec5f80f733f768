"""``loopwright devices``: the devices of this machine, and their measured limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from loopwright.errors import BuildError, CodegenError, LowerError, RunError, UsageError
from loopwright.runtime import Device, cuda, opencl


@click.command("devices", short_help="List devices with their measured limits.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option(
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    help="Threads that measure [default: all cores].",
)
def command(as_json: bool, threads: int | None) -> None:
    """List the devices of this machine with their limits, measured now: the most arithmetic (FMA
    peak, in GFLOP/s) and the most memory traffic (in GB/s; of a CPU two reads and a write, of
    others a copy). Of the CPU also its caches; of GPUs and OpenCL what a kernel may take of them,
    or what is missing.
    """
    from loopwright import env, runtime
    from loopwright.cli import schedules
    from loopwright.cli.workload import counted

    threads = threads or runtime.get_num_threads()
    machine = env.machine()
    device = runtime.cpu(0)
    with schedules.alone(), runtime.pinned(threads):
        peak, bandwidth = runtime.fma_peak(threads), runtime.bandwidth(threads)
    facts = {
        "device": str(device),
        "cpu": machine["cpu"],
        "isa": machine["isa"],
        "cores": machine["cores"],
        "caches": dict(device.cache_sizes),
        "threads": threads,
        "fma_peak_gflops": peak / 1e9,
        "bandwidth_gbytes": bandwidth / 1e9,
        "others": _accelerators(),
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(f"{facts['device']}: {facts['cpu']}, {facts['cores']} usable cores")
    click.echo(f"  instruction sets: {' '.join(machine['isa'])}")
    caches = ", ".join(f"{name} {size >> 10} KiB" for name, size in device.cache_sizes.items())
    click.echo(f"  caches: {caches or 'not known'}")
    click.echo(f"  float32 peak, {counted(threads)}: {facts['fma_peak_gflops']:.1f} GFLOP/s")
    click.echo(f"  memory bandwidth, {counted(threads)}: {facts['bandwidth_gbytes']:.1f} GB/s")
    for line in _accelerator_lines(facts["others"]):
        click.echo(line)


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
    from loopwright.cli import schedules
    from loopwright.measure.playoff.device_limit import in_this_process
    from loopwright.measure.yardsticks import programs
    from loopwright.target import Target

    rate = in_this_process(device)
    peak = bandwidth = None
    try:
        target = Target(device.name)
        with schedules.alone(device):
            arithmetic, memory = programs.arithmetic(target), programs.memory(target)
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


def _accelerators() -> list[dict[str, Any]]:
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


def _accelerator_lines(told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
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
