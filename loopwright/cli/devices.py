"""``loopwright devices``: the devices of this machine, and their measured limits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from loopwright.cli.console import announce
from loopwright.cli.options import json_option, option, verb
from loopwright.presenting import counted

if TYPE_CHECKING:
    from loopwright.runtime import Device

_ATTRIBUTES = (
    "device_name", "compute_version", "driver_version", "multi_processor_count",
    "total_global_memory", "max_threads_per_block", "max_shared_memory_per_block", "warp_size",
)  # fmt: skip


@verb("devices")
def devices_command(
    *,
    as_json: bool = json_option(),
    threads: int | None = option(
        "--threads N", "Threads that measure [default: all cores].", type=click.IntRange(1)
    ),
) -> None:
    """List the devices of this machine with their limits, measured now: peak arithmetic (fused
    multiply-adds, in GFLOP/s) and memory bandwidth (in GB/s: two reads and a write on a CPU, a copy
    elsewhere). For the CPU also its caches; for GPUs and OpenCL devices what a kernel may use of
    them, or what is missing.
    """
    from loopwright import env, runtime
    from loopwright.inspection import RunPlace

    threads = threads or runtime.get_num_threads()
    machine = env.machine()
    device = runtime.cpu(0)
    with RunPlace(device, threads).held(announce):
        peak, bandwidth = runtime.fma_peak(threads), runtime.bandwidth(threads)
    makers = (runtime.cuda, runtime.opencl)
    numbered = (map(make, itertools.count()) for make in makers)
    devices = (one for all_of in numbered for one in itertools.takewhile(lambda d: d.exist, all_of))
    others = [(one, _facts(one)) for one in devices]
    facts = {
        "device": str(device),
        "cpu": machine["cpu"],
        "isa": machine["isa"],
        "cores": machine["cores"],
        "caches": dict(device.cache_sizes),
        "threads": threads,
        "fma_peak_gflops": peak / 1e9,
        "bandwidth_gbytes": bandwidth / 1e9,
        "others": [limits for _, limits in others],
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(f"{facts['device']}: {facts['cpu']}, {facts['cores']} usable cores")
    click.echo(f"  instruction sets: {' '.join(machine['isa'])}")
    caches = ", ".join(f"{name} {size >> 10} KiB" for name, size in device.cache_sizes.items())
    click.echo(f"  caches: {caches or 'not known'}")
    used = counted(threads, "thread")
    click.echo(f"  float32 peak, {used}: {facts['fma_peak_gflops']:.1f} GFLOP/s")
    click.echo(f"  memory bandwidth, {used}: {facts['bandwidth_gbytes']:.1f} GB/s")
    for one, limits in others:
        for line in _lines(one, limits):
            click.echo(line)
    for make in makers:
        if not make().exist:
            click.echo(f"{make().name}: none ({make().why_absent()})")


def _facts(device: Device) -> dict[str, Any]:
    """A device for scripts, with null for unknown values; limits are measured now."""
    from loopwright.inspection import device_rates

    peak, bandwidth, why_not = device_rates(device, announce)
    return {
        "device": str(device),
        **{name: device.attribute(name) for name in _ATTRIBUTES},
        "fma_peak_gflops": None if peak is None else peak / 1e9,
        "bandwidth_gbytes": None if bandwidth is None else bandwidth / 1e9,
        "limits_unknown": why_not,
    }


def _lines(device: Device, facts: Mapping[str, Any]) -> Iterator[str]:
    shared = (device.max_shared_memory_per_block or 0) >> 10
    yield f"{device}: {device.device_name}, {device.multi_processor_count} processors"
    yield f"  memory: {device.total_memory / 2**30:.1f} GiB"
    yield f"  a block: {device.max_threads_per_block} threads, {shared} KiB of shared memory"
    yield f"  {device.name} {device.compute_version}, driver {device.driver_version}"
    if facts["fma_peak_gflops"] is not None:
        yield f"  float32 peak: {facts['fma_peak_gflops']:.1f} GFLOP/s"
    if facts["bandwidth_gbytes"] is not None:
        yield f"  memory bandwidth: {facts['bandwidth_gbytes']:.1f} GB/s"
    if facts["limits_unknown"]:
        yield f"  its limits are not known: {facts['limits_unknown']}"
