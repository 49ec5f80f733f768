"""A program on a device, and its graph executor: all kernels in one stream, over memory there.

Nothing waits between two kernels: a run puts all of them into the device's current stream and
returns. Copies to the host wait for them, as for all queued work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np

from loopwright.errors import ArgumentError, OutOfMemoryError, TargetError, UsageError
from loopwright.executors.callees import Callee, HostStep, callees
from loopwright.executors.executor import constants_of, fitted
from loopwright.executors.graph_executor import GraphExecutor
from loopwright.executors.program import Array, Program, Step, Value, placed
from loopwright.runtime import (
    Device,
    DeviceArray,
    DeviceCall,
    DeviceFunction,
    Kernel,
    Module,
    NDArray,
    Stream,
    array,
    device_of,
    empty,
    from_dlpack,
    is_on_host,
    note_use,
)


class DeviceWeights(Mapping[int, NDArray]):
    """The weights of a program on a device, each copied when a kernel first reads it: ``weights``
    are arrays of the host by number of the value, ``there`` those on the device.
    """

    def __init__(
        self, weights: Mapping[int, Array], device: Device, there: Mapping[int, NDArray]
    ) -> None:
        self._weights, self.device, self.there = weights, device, dict(there)

    def __getitem__(self, number: int) -> NDArray:
        if number not in self.there:
            self.there[number] = array(self._weights[number], device=self.device)
        return self.there[number]

    def __contains__(self, number: object) -> bool:
        return number in self._weights

    def __iter__(self) -> Iterator[int]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def device_callees(
    steps: Sequence[Step],
    kernels: Mapping[str, Module | HostStep],
    weights: DeviceWeights,
    before: Sequence[Callee] = (),
    changed: Collection[int] = (),
) -> list[Callee]:
    """`callees` on a device, where none is for the host; weights that no run reads are dropped."""
    for step in steps:
        module = kernels.get(step.kernel)
        if isinstance(module, Module) and not isinstance(module[module.entry_name], DeviceFunction):
            raise UsageError(
                f"kernel {step.kernel!r} is built for {module.type_key}, and is no kernel of a "
                "device with sizes that are known"
            )
    called = callees(steps, kernels, weights, before, changed, in_place=weights)
    functions = [(c.function, c.rest) for c in called if isinstance(c.function, Kernel)]
    read = {n for _, rest in functions for n in rest if n in weights}
    for n in read:
        weights[n]  # those that a kernel takes as ordinary arguments are copied now, too
    held = {id(a) for f, _ in functions for a in f.given}
    weights.there = {n: a for n, a in weights.there.items() if n in read or id(a) in held}
    return called


class DeviceProgram:
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
        self.kernels, self.device = kernels, device
        self.program = placed(
            program.values,
            program.steps,
            program.inputs,
            program.outputs,
            program.output_names,
            device.api.alignment(device.device_id),
        )
        self.constants = constants_of(program, constants)
        self.weights = DeviceWeights(self.constants, device, {})
        nbytes = sum(a.nbytes for a in self.constants.values())
        with room(device, self.program, "its weights", nbytes):
            self.callees = device_callees(program.steps, kernels, self.weights)


@contextmanager
def room(device: Device, program: Program, what: str, nbytes: int) -> Iterator[None]:
    """Name the model and ``what`` of it, of so many bytes, in an OutOfMemoryError of the block."""
    try:
        yield
    except OutOfMemoryError as error:
        constants = sum(v.nbytes for v in program.values if v.kind == "constant")
        free = device.available_global_memory
        free_text = "" if free is None else f", {free} are free"
        raise OutOfMemoryError(
            f"{device} has no room for {what} ({nbytes} bytes{free_text}): the model takes "
            f"{constants} bytes of weights and {program.pool_bytes} of values between its kernels; "
            f"take a smaller batch or another device ({error})"
        ) from error


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

    _there: DeviceWeights

    def __init__(self, program: DeviceProgram, *, graph: bool = False) -> None:
        self.device, self.graph, self._there = program.device, graph, program.weights
        self._begin(program.program, program.kernels, program.constants, program.callees)

    def _begin(
        self,
        program: Program,
        kernels: Mapping[str, Module | HostStep],
        weights: Mapping[int, Array],
        called: Sequence[Callee],
    ) -> None:
        self._noted: Stream | None = None
        self._recorded: Callable[[Stream | None], None] | None = None
        needs = (sum(map(self._aligned, buffer_bytes(c))) for c in called)
        # Kernels run one after the other, so their temporary buffers share memory.
        most = max(needs, default=0)
        self._workspace: DeviceArray = self._empty(
            program, "temporary buffers of its kernels", (most,), "uint8"
        )
        super()._begin(program, kernels, weights, called)
        if not self.graph:
            return
        hosts = [c.function.name for c in called if isinstance(c.function, HostStep)]
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
        executor.device, executor.graph, executor._there = self.device, self.graph, self._there
        executor._begin(self.program, self._kernels, self._weights, self._callees)
        return executor

    def of_size(self, program: Program) -> GraphExecutor:
        """Refused by a UsageError: kernels of a device are built for fixed sizes."""
        raise UsageError(f"a model for {self.device} has sizes that are known; compile it for each")

    def _empty(self, program: Program, what: str, shape: tuple[int, ...], dtype: str) -> Any:
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        with room(self.device, program, what, nbytes):
            return empty(shape, dtype, self.device)

    def _aligned(self, nbytes: int) -> int:
        unit = self.device.api.alignment(self.device.device_id)
        return -(-max(nbytes, 1) // unit) * unit

    def _memory(self) -> Any:
        size = max(self.program.pool_bytes, 1)
        return self._empty(self.program, "values between its kernels", (size,), "uint8")

    def _array(self, number: int, v: Value) -> Any:
        if v.kind == "constant":
            return self._there.there.get(number, self._weights[number])
        if v.kind == "stored":
            part = self._pool.memory.part(v.offset, v.nbytes)
            return DeviceArray(part, v.shape, v.dtype, self.device, self._pool)
        input_array = self._empty(self.program, f"its input {v.name!r}", v.shape, v.dtype)
        if v.nbytes:
            self.device.api.fill(input_array.memory, 0)
        return input_array

    def _bound(self, callee: Callee) -> Any:
        arrays = [self._arrays[n] for n in callee.rest]
        if isinstance(callee.function, HostStep):
            return callee.function.bind(*arrays)
        sizes = buffer_bytes(callee)
        places = accumulate(map(self._aligned, sizes), initial=0)
        memory = self._workspace.memory
        buffers = [memory.part(at, nbytes) for at, nbytes in zip(places, sizes, strict=False)]
        return callee.function.bind(*arrays, buffers=buffers)

    def _bind_again(self, steps: Sequence[int]) -> None:
        super()._bind_again(steps)
        self._noted = self._recorded = None

    def _fitted(self, v: Value, given: object) -> Any:
        if is_on_host(given):
            return fitted(v, given)
        where = device_of(given)
        if where != self.device:
            raise ArgumentError(
                f"{v.name!r}: the array lies on {where}, and the model runs on {self.device}; copy "
                "it there, or to the host"
            )
        try:
            elements = given if isinstance(given, DeviceArray) else from_dlpack(given)
        except ArgumentError as error:
            raise ArgumentError(f"{v.name!r}: {error}") from None
        if elements.shape != v.shape or elements.dtype != v.dtype:
            raise ArgumentError(
                f"{v.name!r} is {v.dtype}{list(v.shape)}, got {elements.dtype}"
                f"{list(elements.shape)}"
            )
        return elements

    def _own(self, v: Value) -> Any:
        return self._array(-1, v)

    def _constants(self) -> Iterable[tuple[str, Any]]:
        return ((self.program.values[n].name, a) for n, a in self._there.there.items())

    def _replace(self, slot: int, elements: Any) -> None:
        if not isinstance(elements, DeviceArray):
            name = self.program.values[slot].name
            raise ArgumentError(
                f"{name!r}: the array lies on the host, and the model runs on {self.device}; "
                "without a copy it takes arrays of that alone, such as lw.nd.empty(shape, dtype, "
                "device)"
            )
        super()._replace(slot, elements)

    def _output_array(self, place: int) -> Any:
        elements = super()._output_array(place)
        if isinstance(elements, np.ndarray):  # a weight that no kernel reads
            return self._there[self.program.outputs[place]]
        return elements

    def share_params(self, other: GraphExecutor) -> None:
        """As of `GraphExecutor`; ArgumentError, too, where the other runs on another device."""
        if not isinstance(other, DeviceGraphExecutor) or other.device != self.device:
            raise ArgumentError(f"share_params: the other executor does not run on {self.device}")
        super().share_params(other)

    def _set_weights(self, weights: Mapping[int, Array], changed: Mapping[int, Array]) -> None:
        same = {n: a for n, a in self._there.there.items() if n not in changed}
        there = DeviceWeights(weights, self.device, same)
        called = device_callees(
            self.program.steps, self._kernels, there, self._callees, list(changed)
        )
        self._there, self._taken = there, None
        self._take(weights, called, weights, range(len(self._calls)))

    def sync(self) -> None:
        """Wait for all work in the device's current stream; RunError where something failed."""
        api, device_id = self.device.api, self.device.device_id
        api.synchronize(device_id, api.current_stream(device_id))

    def _run(self) -> None:
        stream = self.device.api.current_stream(self.device.device_id)
        if stream is not self._noted:
            # All memory is in use there: it must not be given to others too early.
            held = [self._pool, self._workspace, *self._there.there.values()]
            for a in [*held, *(a for a in self._arrays if isinstance(a, DeviceArray))]:
                note_use(a.memory, stream)
            functions = (c.function for c in self._callees if isinstance(c.function, Kernel))
            for given in (a for f in functions for a in f.given if a is not None):
                note_use(given.memory, stream)
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


def buffer_bytes(callee: Callee) -> Sequence[int]:
    """Bytes of each temporary buffer of a kernel on a device; a Python function has none."""
    if isinstance(callee.function, HostStep):
        return ()
    function = callee.function.function
    assert isinstance(function, DeviceFunction)
    return function.buffer_bytes
