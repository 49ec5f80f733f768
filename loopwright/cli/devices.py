"""``loopwright devices``: the devices of this machine, and their measured limits."""

from __future__ import annotations

import json

import click


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
    from loopwright.cli import accelerators
    from loopwright.cli.kernels import workload_kernels
    from loopwright.cli.workload import counted

    threads = threads or runtime.get_num_threads()
    machine = env.machine()
    device = runtime.cpu(0)
    with workload_kernels.alone(), runtime.pinned(threads):
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
        "others": accelerators.facts(),
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
    for line in accelerators.lines(facts["others"]):
        click.echo(line)
