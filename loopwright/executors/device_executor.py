"""A program on a device, and its graph executor: all kernels in one stream, over memory there.

Nothing waits between two kernels: a run puts all of them into the device's current stream and
returns. Copies to the host wait for them, as for all queued work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from loopwright.errors import TargetError, UsageError
from loopwright.executors.callees import HostStep
from loopwright.executors.graph_executor import GraphExecutor
from loopwright.executors.places import DevicePlace, PlacedProgram, constants_of, prepared
from loopwright.executors.program import Array, Program, placed
from loopwright.runtime import (
    Device,
    DeviceArray,
    DeviceCall,
    DeviceFunction,
    Kernel,
    Module,
    Stream,
    note_use,
)


class DeviceProgram(PlacedProgram):
    """A program on a device, from which executors are made.

    Weights are copied to the device, and packed where kernels pack constants, at creation.

    Args:
        kernels: by name, built for such devices; Python functions among them, around which values
            are copied to the host and back.
        constants: by the names of the program's values; as an attribute by their numbers.

    Attributes:
        program: as given, with places in memory as the device aligns them.
        weights, callees: the weights on the device, and the callee of each step.

    Raises:
        UsageError: the device is not here, or kernels are not for it.
        TargetError: kernels are for another architecture, or the device has no float64.
        ArgumentError: a kernel or a constant is missing, or has another shape or dtype.
        OutOfMemoryError: the device has no room for the weights.

    Example:
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(lw.graph.var("x", (4,))))
        >>> if lw.opencl().exist:
        ...     model = lw.graph.compile(module, "opencl")
        ...     parts = model.program, model.kernels, model.constants
        ...     there = lw.executors.DeviceProgram(*parts, lw.opencl())
        ...     executor = lw.executors.DeviceGraphExecutor(there)
        ...     executor.run(x=np.array([1, -2, 3, -4], "float32"))
        ...     assert executor.get_output(0).numpy().tolist() == [1.0, 0.0, 3.0, 0.0]
    """

    def __init__(
        self,
        program: Program,
        kernels: Mapping[str, Module | HostStep],
        constants: Mapping[str, Array],
        device: Device,
    ) -> None:
        device.require()
        doubles = (v.name for v in program.values if np.dtype(v.dtype) == np.float64)
        double = next(doubles, None)
        if double is not None and device.attribute("has_float64") is False:
            raise TargetError(
                f"value {double!r} of the model is float64, which {device} "
                f"({device.device_name}) does not compute; convert the model to float32"
            )
        for step in program.steps:
            module = kernels.get(step.kernel)
            if isinstance(module, Module) and not isinstance(
                module[module.entry_name], DeviceFunction
            ):
                raise UsageError(
                    f"kernel {step.kernel!r} is built for {module.type_key}, and is no kernel of a "
                    "device with sizes that are known"
                )
        parts = program.values, program.steps, program.inputs, program.outputs, program.output_names
        program = placed(*parts, device.api.alignment(device.device_id))
        self.device, place = device, DevicePlace(device)
        weights = constants_of(program, constants)
        with place.room(program, "its weights", sum(a.nbytes for a in weights.values())):
            called = prepared(place, program.steps, kernels, weights, program.outputs)
        super().__init__(program, kernels, place, weights, *called)


class DeviceGraphExecutor(GraphExecutor):
    """A model on a device, ready to run; `Model.executor` makes it.

    Weights were copied there, and packed where kernels pack constants, when ``program`` was made;
    executors from `another` share them. Intermediate values share one piece of memory by their
    lifetimes, and temporary buffers of kernels another one. A run is queued in the device's
    current stream, and waits for nothing.

    Inputs may be arrays of the host, which are copied to the device, or arrays of this device with
    ``__dlpack__``: those of PyTorch, CuPy, or `loopwright.runtime.DeviceArray`, which are copied on
    it. `set_input_zero_copy` and `set_output_zero_copy` take arrays of this device alone, without a
    copy. The result of `get_output` lies on the device; ``numpy()`` of it copies it to the host,
    and ``torch.from_dlpack`` takes it over. UsageError where a graph is asked for and the device
    records none, or a step runs in Python; OutOfMemoryError where the device has no room; the
    message names the purpose.

    Args:
        program: the program on its device.
        graph: record the launches of a run as a graph of the driver, and launch this from then on.
            Profiles then see no kernels.

    Example:
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(lw.graph.var("x", (4,))))
        >>> if lw.opencl().exist:
        ...     executor = lw.graph.compile(module, "opencl").executor()
        ...     executor.run(x=np.array([1, -2, 3, -4], "float32"))
        ...     assert executor.get_output(0).numpy().tolist() == [1.0, 0.0, 3.0, 0.0]
    """

    def __init__(self, program: DeviceProgram, *, graph: bool = False) -> None:
        self._begin(program, graph)

    def _begin(self, placed: PlacedProgram, graph: bool = False) -> None:
        self.device, self.graph = placed.place.device, graph
        super()._begin(placed)
        if not graph:
            return
        hosts = [c.function.name for c in placed.callees if isinstance(c.function, HostStep)]
        if hosts:
            raise UsageError(
                f"graph=True: step {hosts[0]!r} runs in Python and cannot be recorded; leave it out"
            )
        if not self.device.api.has_graphs:
            raise UsageError(f"graph=True: {self.device} records no graphs; leave it out")

    def another(self) -> DeviceGraphExecutor:
        """The same model on the same device with memory of its own; weights are shared.
        OutOfMemoryError where the device has no room for a second one.
        """
        executor = DeviceGraphExecutor.__new__(DeviceGraphExecutor)
        executor._begin(self._placed, self.graph)
        return executor

    def of_size(self, program: Program) -> GraphExecutor:
        """Refused by a UsageError: kernels of a device are built for fixed sizes."""
        raise UsageError(f"a model for {self.device} has sizes that are known; compile it for each")

    def _bind_again(self, steps: Sequence[int]) -> None:
        super()._bind_again(steps)
        self._noted: Stream | None = None
        self._recorded: Callable[[Stream | None], None] | None = None

    def _run(self) -> None:
        stream = self.device.api.current_stream(self.device.device_id)
        if stream is not self._noted:
            # All memory is in use there: it must not be given to others too early.
            functions = (c.function for c in self._placed.callees if isinstance(c.function, Kernel))
            packed = (a for f in functions for a in f.given)
            weights = self._placed.weights.values()
            for a in (self._pool, self._buffers, *weights, *self._arrays, *packed):
                if isinstance(a, DeviceArray):
                    note_use(a.memory, stream)
            self._noted = stream
        if not self.graph:
            self._launch(stream)
            return
        if self._recorded is None:  # drivers set kernels up at their first launch
            self._launch(stream)
            self._recorded = self.device.api.record_graph(self.device.device_id, self._launch)
            return
        self._recorded(stream)

    def _launch(self, stream: Stream) -> None:
        for call in self._calls:
            if isinstance(call, DeviceCall):
                call.launch(stream)
            else:
                call()
