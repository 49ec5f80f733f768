"""Allocations a second of the pooled allocator, beside plain allocation on the same device.

``python -m benchmarks.allocators`` replays one random sequence of requests and frees, whose sizes
are spread evenly over powers of two, on each device that is here. Plain allocation is
``numpy.empty`` on the CPU, ``pyopencl.Buffer`` for OpenCL, and the driver's for CUDA. Systems give
pages to memory when it is first written, so a second row writes each block. The ways take turns;
the median of some rounds counts.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from loopwright.runtime import Device
from loopwright.runtime.devices.interface import find_device_api
from loopwright.runtime.memory import MemoryPool, allocator

#: An operation: bytes to ask for, and which of the blocks that are held to free before (-1: none).
Operation = tuple[int, int]


class Way(NamedTuple):
    """How memory is taken, given back and filled with zeros, and how one waits for that."""

    take: Callable[[int], Any]
    give: Callable[[Any], None]
    write: Callable[[Any], object]
    finish: Callable[[], object]


def sequence(operations: int, live: int, largest: int, seed: int) -> list[Operation]:
    """Requests and frees of a program that holds so many blocks.

    Args:
        operations: how many requests.
        live: blocks that are held at once.
        largest: bytes of the largest request.
        seed: of the random numbers.
    """
    rng = np.random.default_rng(seed)
    sizes = (2 ** rng.uniform(8, np.log2(largest), operations)).astype(int)
    victims = rng.integers(0, live, operations)
    return [
        (int(size), int(victim) if held >= live else -1)
        for held, (size, victim) in enumerate(zip(sizes, victims, strict=True))
    ]


def replay(way: Way, operations: Sequence[Operation], written: bool) -> float:
    """Seconds that a sequence takes; everything is given back."""
    held: list[Any] = []
    start = time.perf_counter()
    for nbytes, victim in operations:
        if victim >= 0:
            way.give(held[victim])
            held[victim] = way.take(nbytes)
        else:
            held.append(way.take(nbytes))
        if written:
            way.write(held[victim])
    way.finish()
    while held:
        way.give(held.pop())
    return time.perf_counter() - start


def plain(device: Device) -> Way:
    """How one allocates on a device without this project."""
    if device.name == "cpu":
        take = lambda nbytes: np.empty(nbytes, np.uint8)  # noqa: E731
        return Way(take, lambda _: None, lambda a: a.fill(0), lambda: None)
    if device.name == "opencl":
        return _pyopencl()
    api, device_id = device.api, device.device_id
    return Way(lambda n: api.allocate(device_id, n), api.free, _filling(device), device.sync)


def pooled(pool: MemoryPool, device: Device) -> Way:
    """How an allocator of this project does it."""
    return Way(pool.alloc, pool.free, _filling(device), device.sync)


def _filling(device: Device) -> Callable[[Any], object]:
    if device.name == "cpu":
        return lambda memory: ctypes.memset(memory.address, 0, memory.nbytes)
    return lambda memory: device.api.fill(memory, 0)


def _pyopencl() -> Way:
    import pyopencl as cl

    platforms = [p for p in cl.get_platforms() if p.get_devices()]
    context = cl.Context(platforms[0].get_devices()[:1])
    queue = cl.CommandQueue(context)
    return Way(
        lambda nbytes: cl.Buffer(context, cl.mem_flags.READ_WRITE, nbytes),
        lambda buffer: buffer.release(),
        lambda buffer: cl.enqueue_fill_buffer(queue, buffer, np.uint8(0), 0, buffer.size),
        queue.finish,
    )


def rows(
    devices: Sequence[Device], operations: int, live: int, largest: int, rounds: int, seed: int
) -> list[dict[str, Any]]:
    """Two rows a device: operations a second of each way, and their ratio to plain allocation."""
    found = []
    for device in devices:
        ways = {"plain": plain(device)}
        ways |= {kind: pooled(allocator(kind, device), device) for kind in ("naive", "pooled")}
        for written in (False, True):
            # A tenth of the requests is enough where each of them takes longer.
            work = sequence(operations // 10 if written else operations, live, largest, seed)
            found.append(
                {"device": str(device), "written": written, **_row(ways, work, written, rounds)}
            )
    return found


def _row(
    ways: dict[str, Way], work: Sequence[Operation], written: bool, rounds: int
) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            seconds = replay(way, work, written)
            if turn:  # the first round takes chunks from the device
                times[name].append(seconds)
    # Each request is given back: two operations.
    rates = {name: 2 * len(work) / float(np.median(t)) for name, t in times.items()}
    return {**rates, **{f"{name}_ratio": rate / rates["plain"] for name, rate in rates.items()}}


def here() -> list[Device]:
    """The first device of each kind that is here."""
    devices = [Device(name) for name in ("cpu", "opencl", "cuda")]
    return [d for d in devices if (api := find_device_api(d.device_type)) and api.count()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allocators", description=__doc__)
    parser.add_argument("--operations", type=int, default=20_000, help="requests a round [20000]")
    parser.add_argument("--live", type=int, default=64, help="blocks held at once [64]")
    parser.add_argument("--largest", type=int, default=1 << 20, help="bytes, from 256 on [1 MiB]")
    parser.add_argument("--rounds", type=int, default=7, help="of which the median counts [7]")
    parser.add_argument("--seed", type=int, default=0, help="of the sequence [0]")
    options = parser.parse_args()
    table = Table(
        "device", "", "plain", "naive", "of plain", "pooled", "of plain",
        title="requests and frees a second",
    )  # fmt: skip
    for r in rows(here(), **vars(options)):
        rates = [
            f"{r['plain']:,.0f}",
            *(f for n in ("naive", "pooled") for f in (f"{r[n]:,.0f}", f"{r[f'{n}_ratio']:.2f}")),
        ]
        table.add_row(r["device"], "written" if r["written"] else "untouched", *rates)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
