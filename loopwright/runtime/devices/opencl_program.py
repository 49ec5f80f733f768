"""One OpenCL device with its queues, and the programs that are compiled for it."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.errors import ArgumentError, RunError
from loopwright.runtime.caches.programs import content_key, program_cache
from loopwright.runtime.devices.checks import (
    Block,
    check_launch,
    check_stream,
    owner_of,
)
from loopwright.runtime.devices.interface import (
    DeviceAPI,
    Extents,
    KernelArgument,
    Memory,
    Program,
    Stream,
)
from loopwright.runtime.devices.opencl_driver import Cl, named, package

OPENCL = 4


class OpenCLContext:
    """One device with its context and queues.

    ``default`` is its default stream, ``queues`` those of all its streams.
    """

    def __init__(self, device: Cl, device_id: int) -> None:
        self.cl = package()
        self.device = device
        self.where = f"opencl({device_id})"
        with named(self.where, "opening the device"):
            self.context = self.cl.Context([device])
            queue = self.new_queue()
        self.default = Stream(OPENCL, device_id, 0, queue)
        self.queues: list[Cl] = [queue]
        # Nobody reads warnings about code that was generated.
        self.options = ["-w"]
        # Correctly rounded quotients and roots, as of all other targets, where the device has them.
        if device.single_fp_config & self.cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            self.options.append("-cl-fp32-correctly-rounded-divide-sqrt")

    def new_queue(self) -> Cl:
        """An in-order queue with profiling."""
        profiling = self.cl.command_queue_properties.PROFILING_ENABLE
        return self.cl.CommandQueue(self.context, self.device, profiling)

    def build(self, source: str) -> Cl:
        """A program, from its cached binary, or compiled now.

        RunError has the first line of the compiler's output that gives a reason.
        """
        device, cache = self.device, program_cache()
        facts = (device.name, device.version, device.driver_version, " ".join(self.options))
        key = content_key("opencl", source, *facts)
        binary = cache.get(key)
        if binary is not None:
            try:
                return self.cl.Program(self.context, [device], [binary]).build(self.options)
            except self.cl.Error:  # the driver has changed and does not say so
                cache.remove(key)
        program = self._compile(source)
        cache.put(key, bytes(program.binaries[0]))
        return program

    def _compile(self, source: str) -> Cl:
        try:
            with warnings.catch_warnings():  # that there is a log, even of no more than a count
                warnings.simplefilter("ignore", self.cl.CompilerWarning)
                # pyopencl keeps binaries as well, in a folder that is never trimmed.
                return self.cl.Program(self.context, source).build(self.options, cache_dir=False)
        except self.cl.Error as error:
            lines = [x.strip() for x in str(error).splitlines() if "error" in x.lower()]
            text = lines[0] if lines else str(error).strip().partition("\n")[0]
            raise RunError(f"{self.where}: its compiler refused the code: {text}") from error


class OpenCLProgram(Program):
    """A compiled program; its kernels keep their arguments, so one thread launches at a time."""

    def __init__(
        self, api: DeviceAPI, context: OpenCLContext, program: Cl, kernels: Sequence[str]
    ) -> None:
        self._api, self._context = api, context
        self._lock = threading.Lock()
        self._device_id = context.default.device_id
        with named(context.where, "finding the kernels"):
            self._kernels = {name: context.cl.Kernel(program, name) for name in kernels}

    def launch(
        self,
        kernel: str,
        grid: Extents,
        block: Extents,
        arguments: Sequence[KernelArgument],
        shared_bytes: int = 0,
        stream: Stream | None = None,
    ) -> None:
        """See `Program.launch`; blocks that are too large are refused with both numbers."""
        check_launch(self._api, self._kernels, kernel, grid, block, arguments)
        most, threads = int(self._context.device.max_work_group_size), math.prod(block)
        if threads > most:
            raise RunError(
                f"{self._context.where}: {kernel} has blocks of {threads} threads, and the device "
                f"takes {most}; build it with -max-threads-per-block={most}"
            )
        used = stream or self._api.current_stream(self._device_id)
        check_stream(kernel, used, self._api, self._device_id)
        queue: Any = used.owner
        values = [np.int64(a) if isinstance(a, int) else _argument(a) for a in arguments]
        work = tuple(g * b for g, b in zip(grid, block, strict=True))
        with self._lock, named(self._context.where, f"launching {kernel}"):
            found = self._kernels[kernel]
            if found.num_args != len(values):
                raise ArgumentError(f"{kernel} takes {found.num_args} arguments, got {len(values)}")
            found.set_args(*values)
            self._context.cl.enqueue_nd_range_kernel(queue, found, work, block)


def buffer_of(memory: Memory) -> Cl:
    owner = owner_of(memory)
    assert isinstance(owner, Block), "memory of OpenCL belongs to a block"
    return owner.raw


def _argument(memory: Memory) -> Cl:
    """Memory as a kernel takes it; ArgumentError where no buffer of this device can begin there."""
    buffer = buffer_of(memory)
    if not memory.offset:
        return buffer
    try:
        return buffer.get_sub_region(memory.offset, max(memory.nbytes, 1))
    except package().Error as error:
        raise ArgumentError(
            f"opencl({memory.device_id}): a kernel cannot take memory at offset {memory.offset} of "
            f"a buffer ({error}); copy it to an array of its own"
        ) from error
