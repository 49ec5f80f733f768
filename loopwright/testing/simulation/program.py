"""Kernels of simulated devices: functions of Python that run when their stream does."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

from loopwright.errors import RunError
from loopwright.runtime.devices.interface import Extents, KernelArgument, Program, Stream
from loopwright.testing.simulation.memory import Bytes

#: Arguments of a kernel: memory as its bytes, integers as they are.
Values = Sequence[Bytes | int]
#: A kernel of a simulated device, which is called with the grid, the block and its arguments.
Kernel = Callable[[Extents, Extents, Values], None]
#: Queues the call of a kernel: its name, the call, its arguments and the stream.
Enqueue = Callable[
    [str, Callable[[Values], None], Sequence[KernelArgument], Stream | None],
    None,
]


class SimulatedProgram(Program):
    """Kernels by name that were loaded onto a simulated device, whose calls ``enqueue`` queues."""

    def __init__(
        self, kernels: Mapping[str, Kernel], threads_per_block: int, enqueue: Enqueue
    ) -> None:
        self._kernels = kernels
        self._threads_per_block = threads_per_block
        self._enqueue = enqueue

    def launch(
        self,
        kernel: str,
        grid: Extents,
        block: Extents,
        arguments: Sequence[KernelArgument],
        shared_bytes: int = 0,
        stream: Stream | None = None,
    ) -> None:
        threads = math.prod(block)
        if threads > self._threads_per_block:
            raise RunError(
                f"{kernel} asks {threads} threads a block, the device has "
                f"{self._threads_per_block}; choose smaller extents"
            )
        call = functools.partial(self._kernels[kernel], grid, block)
        self._enqueue(kernel, call, arguments, stream)
