"""The executor of a partitioned program: each device runs its part, and passes on its values.

A value that another device reads is copied there once, by a step of its own. Steps and copies run
as soon as their predecessors have ended, so that devices work in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime.arrays.host import NDArray
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import HOST
from loopwright.runtime.executors.callees import Callee, callees
from loopwright.runtime.executors.dependencies import dependencies
from loopwright.runtime.executors.executor import Executor
from loopwright.runtime.executors.graph_executor import weight_of
from loopwright.runtime.executors.partition import Partition
from loopwright.runtime.executors.program import Step
from loopwright.runtime.executors.ready_counts import Run
from loopwright.runtime.module import Module
from loopwright.runtime.ndarray import array, empty
from loopwright.runtime.threads.thread_pool import ThreadPool

Array = npt.NDArray[Any]
#: A value on a device; its number, and that of the device.
_Place = tuple[int, int]
#: The number that stands for the caller's memory.
_CALLER = -1


class PartitionedExecutor(Executor):
    """A model over several devices.

    Each value has memory of its own on each device that writes or reads it, and each device one
    worker thread.

    Args:
        cut: assignment of steps to devices.
        kernels: for each device the kernels of its steps by name, built for its target.
        devices: the device of each part; two may be the same one.
        constants: by the names of the program's values.

    Attributes:
        cut, devices: as given.

    Raises:
        UsageError: the numbers of devices and of sets of kernels differ from the cut's.
        ArgumentError: a kernel or a constant is missing, or has another shape or dtype.

    Example:
        >>> from loopwright.runtime.executors import (
        ...     PartitionedExecutor, Program, Step, Value, partition
        ... )
        >>> A = te.placeholder((2,), name="A")
        >>> double = lw.build([A, te.compute((2,), lambda i: A[i] * 2, name="B")], "llvm")
        >>> values = [Value("x", (2,), "float32", "input")]
        >>> values += [Value(n, (2,), "float32", "stored", at) for n, at in (("y", 0), ("z", 64))]
        >>> steps = (Step("double", (0, 1)), Step("double", (1, 2)))
        >>> program = Program(tuple(values), steps, (0,), (2,), 128)
        >>> cut = partition(program, loads=[1, 1], capacities=[1, 1])
        >>> kernels = {"double": double}
        >>> executor = PartitionedExecutor(cut, [kernels] * 2, [lw.cpu(0)] * 2, {})
        >>> executor.run(x=np.ones(2, "float32"))
        >>> print(cut.devices, executor.get_output(0).numpy())
        (0, 1) [4. 4.]
    """

    def __init__(
        self,
        cut: Partition,
        kernels: Sequence[Mapping[str, Module]],
        devices: Sequence[Device],
        constants: Mapping[str, Array],
    ) -> None:
        program = cut.program
        if not len(devices) == len(kernels) == len(cut.loads):
            raise UsageError(
                f"the program is cut for {len(cut.loads)} devices; there are {len(devices)}, and "
                f"kernels for {len(kernels)}"
            )
        super().__init__(program.input_values, program.output_values)
        self.cut, self.devices = cut, tuple(devices)
        weights = {
            n: weight_of(v, constants) for n, v in enumerate(program.values) if v.kind == "constant"
        }
        self._callees = [self._callees_of(d, kernels[d], weights) for d in range(len(devices))]
        self._home = {
            n: device
            for step, device in zip(program.steps, cut.devices, strict=True)
            for n in step.args[-step.outputs :]
        }
        self._arrays: dict[_Place, Any] = {(n, _CALLER): w for n, w in weights.items()}
        self._workers = ThreadPool(len(devices), "loopwright-device")
        self._bind()

    def _callees_of(
        self, device: int, kernels: Mapping[str, Module], weights: Mapping[int, Array]
    ) -> list[Callee]:
        """The callees of a device's steps; constants are copied there."""
        steps = [
            step
            for step, home in zip(self.cut.program.steps, self.cut.devices, strict=True)
            if home == device
        ]
        if self._is_host(device):
            return callees(steps, kernels, weights)
        read = {n for step in steps for n in step.args if n in weights}
        there = {n: array(weights[n], device=self.devices[device]) for n in read}
        return callees(steps, kernels, there)

    # -- memory --------------------------------------------------------------------------------

    def _is_host(self, device: int) -> bool:
        return device == _CALLER or self.devices[device].device_type == HOST

    def _place(self, number: int, device: int) -> _Place:
        """Place of a value for a device; the host reads a caller's array without a copy."""
        given = self.cut.program.values[number].kind != "stored"
        return (number, _CALLER if given and self._is_host(device) else device)

    def _array(self, place: _Place) -> Any:
        """The array at a place, allocated at the first request."""
        if place not in self._arrays:
            v = self.cut.program.values[place[0]]
            if self._is_host(place[1]):
                self._arrays[place] = np.zeros(v.shape, v.dtype)
            else:
                self._arrays[place] = empty(v.shape, v.dtype, self.devices[place[1]])
        return self._arrays[place]

    def _output_at(self, place: int) -> _Place:
        number = self.cut.program.outputs[place]
        home = self._home.get(number, _CALLER)
        return (number, home if self._is_host(home) else _CALLER)

    def _input_array(self, place: int) -> Array:
        found: Array = self._array((self.cut.program.inputs[place], _CALLER))
        return found

    def _output_array(self, place: int) -> Array:
        found: Array = self._array(self._output_at(place))
        return found

    def _replace_input(self, place: int, elements: Array) -> None:
        self._replace((self.cut.program.inputs[place], _CALLER), elements)

    def _replace_output(self, place: int, elements: Array) -> None:
        number = self.cut.program.outputs[place]
        if number not in self._home or self.cut.program.outputs.count(number) > 1:
            raise ArgumentError(
                f"output {self.outputs[place].name!r} is an input, a constant, or another output, "
                "too; get a copy of it"
            )
        self._replace(self._output_at(place), elements)

    def _constants(self) -> Iterable[tuple[str, Any]]:
        values = self.cut.program.values
        return (
            (v.name, self._arrays[n, _CALLER]) for n, v in enumerate(values) if v.kind == "constant"
        )

    def _replace(self, at: _Place, elements: Array) -> None:
        """Bind all steps to another array at a place; where that is refused, nothing changes."""
        before, self._arrays[at] = self._array(at), elements
        try:
            self._bind()
        except ArgumentError:
            self._arrays[at] = before
            self._bind()
            raise

    # -- steps ---------------------------------------------------------------------------------

    def _bind(self) -> None:
        """The calls of a run, with a copy before the first step of a device that reads a value."""
        self._calls: list[Callable[[], object]] = []
        self._steps: list[Step] = []
        self._numbers: dict[_Place, int] = {}
        program, following = self.cut.program, [iter(c) for c in self._callees]
        for step, device in zip(program.steps, self.cut.devices, strict=True):
            callee = next(following[device])
            for n in callee.rest[: -step.outputs]:
                self._bring(n, device)
            places = [self._place(n, device) for n in callee.rest]
            bound = callee.function.bind(*map(self._array, places))
            self._add(self._waiting(bound, device), step.kernel, places, step.outputs)
        for place in range(len(program.outputs)):
            number, device = self._output_at(place)
            self._bring(number, device)
        self._order = dependencies(self._steps)

    def _waiting(self, bound: Callable[[], object], device: int) -> Callable[[], object]:
        """A call that waits for its device, whose own calls return earlier."""
        if self._is_host(device):
            return bound
        home = self.devices[device]

        def run() -> None:
            bound()
            home.sync()

        return run

    def _bring(self, number: int, device: int) -> None:
        """Copy a value to a device that reads it, if it is not there yet."""
        target = self._place(number, device)
        source = (number, self._home.get(number, _CALLER))
        if target == source or target in self._numbers:
            return
        if self.cut.program.values[number].kind == "constant":
            copied(self._array(source), self._array(target))  # once, for all runs
            return
        read, written = self._array(source), self._array(target)
        self._add(lambda: copied(read, written), "copy", [source, target], 1)

    def _add(
        self, call: Callable[[], object], name: str, places: Sequence[_Place], outputs: int
    ) -> None:
        numbers = [self._numbers.setdefault(p, len(self._numbers)) for p in places]
        self._steps.append(Step(name, tuple(numbers), outputs))
        self._calls.append(call)

    def _run(self) -> None:
        Run(self._calls, self._order, self._workers).begin().result()


def copied(source: Array | NDArray, target: Array | NDArray) -> None:
    """Copy elements between arrays of the host and of devices."""
    if isinstance(target, np.ndarray):
        target[...] = source.numpy() if isinstance(source, NDArray) else source
    elif isinstance(source, np.ndarray):
        target.copyfrom(source)
    else:
        source.copyto(target)
