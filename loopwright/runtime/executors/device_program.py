"""A program on a device: its places in memory, its weights, and their packed forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import OutOfMemoryError, TargetError
from loopwright.runtime.devices.device import Device
from loopwright.runtime.executors.device_callees import DeviceWeights, device_callees
from loopwright.runtime.executors.graph_executor import weight_of
from loopwright.runtime.executors.host_step import HostStep
from loopwright.runtime.executors.memory_plan import placed
from loopwright.runtime.executors.program import Program
from loopwright.runtime.module import Module

Array = npt.NDArray[Any]


class DeviceProgram:
    """A program on a device, from which executors are made.

    Weights are copied to the device, and packed where kernels pack constants, at creation.

    Args:
        program: its kernels and values.
        kernels: by name, built for such devices; Python functions among them, around which values
            are copied to the host and back.
        constants: by the names of the program's values.
        device: the device.

    Attributes:
        program: as given, with places in memory as the device aligns them.
        kernels, device: as given.
        constants: the weights on the host, by numbers of values.
        weights: those on the device.
        callees: the callee of each step.

    Raises:
        UsageError: the device is not here, or kernels are not for it.
        TargetError: kernels are for another architecture, or the device has no float64.
        ArgumentError: a kernel or a constant is missing, or has another shape or dtype.
        OutOfMemoryError: the device has no room for the weights.

    Example:
        >>> from loopwright.runtime.executors import DeviceGraphExecutor, DeviceProgram
        >>> x = lw.graph.var("x", (4,))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(x))
        >>> if lw.opencl().exist:
        ...     model = lw.graph.compile(module, "opencl")
        ...     there = DeviceProgram(model.program, model.kernels, model.constants, lw.opencl())
        ...     executor = DeviceGraphExecutor(there)
        ...     executor.run(x=np.array([1, -2, 3, -4], "float32"))
        ...     assert executor.get_output(0).numpy().tolist() == [1.0, 0.0, 3.0, 0.0]
        ...
    """

    def __init__(
        self,
        program: Program,
        kernels: Mapping[str, Module | HostStep],
        constants: Mapping[str, Array],
        device: Device,
    ) -> None:
        device.require()
        _check_doubles(program, device)
        self.kernels, self.device = kernels, device
        self.program = placed(
            program.values,
            program.steps,
            program.inputs,
            program.outputs,
            program.output_names,
            device.api.alignment(device.device_id),
        )
        numbers = [n for n, v in enumerate(program.values) if v.kind == "constant"]
        self.constants = {n: weight_of(program.values[n], constants) for n in numbers}
        self.weights = DeviceWeights(self.constants, device)
        nbytes = sum(a.nbytes for a in self.constants.values())
        with room(device, self.program, "its weights", nbytes):
            self.callees = device_callees(program.steps, kernels, self.weights)


@contextmanager
def room(device: Device, program: Program, what: str, nbytes: int) -> Iterator[None]:
    """Name the model and ``what`` of it in an OutOfMemoryError of the block.

    ``nbytes`` is the size that is requested.
    """
    try:
        yield
    except OutOfMemoryError as error:
        constants = sum(v.nbytes for v in program.values if v.kind == "constant")
        free = device.available_global_memory
        told = "" if free is None else f", {free} are free"
        raise OutOfMemoryError(
            f"{device} has no room for {what} ({nbytes} bytes{told}): the model takes {constants} "
            f"bytes of weights and {program.pool_bytes} of values between its kernels; take a "
            f"smaller batch or another device ({error})"
        ) from error


def _check_doubles(program: Program, device: Device) -> None:
    """Refuse float64 where a device says that it has none."""
    if device.attribute("has_float64") is not False:
        return
    found = next((v.name for v in program.values if np.dtype(v.dtype) == np.float64), None)
    if found is not None:
        raise TargetError(
            f"value {found!r} of the model is float64, which {device} ({device.device_name}) does "
            "not compute; convert the model to float32"
        )
