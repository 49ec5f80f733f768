"""Places where values of a program lie, the host and devices, and programs that are prepared there.

A place gives memory, takes arrays of a caller's, prepares kernels, and binds their calls; executors
are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from loopwright.errors import ArgumentError, OutOfMemoryError, did_you_mean
from loopwright.executors.callees import Callee, HostStep, SharedArrays, callees
from loopwright.executors.program import Array, Program, Step, Value
from loopwright.runtime import (
    Device,
    DeviceArray,
    DeviceFunction,
    Kernel,
    Module,
    Taken,
    aligned_bytes,
    array,
    cpu,
    device_of,
    empty,
    from_dlpack,
    host_array,
    is_on_host,
)


@dataclass(frozen=True)
class HostPlace:
    device: Device = field(default_factory=cpu)

    def memory(self, program: Program, what: str, nbytes: int) -> Any:
        """Uninitialised bytes, one at least, for ``what`` of a program; `cut` gives values of it.
        OutOfMemoryError where a device has none left.
        """
        return aligned_bytes(max(nbytes, 1))

    def cut(self, memory: Any, v: Value, offset: int) -> Any:
        return memory[offset : offset + v.nbytes].view(v.dtype).reshape(v.shape)

    def zeros(self, program: Program, v: Value) -> Any:
        """Memory for an input."""
        return np.zeros(v.shape, v.dtype)

    def fitted(self, v: Value, value: object) -> Any:
        """An array of the shape and dtype of ``v`` that shares memory with ``value`` and can be
        copied here; else ArgumentError.
        """
        return _checked(v, _as_host_array(v, value))

    def lent(self, v: Value, value: object) -> Any:
        """The same of an array that lies here."""
        return self.fitted(v, value)

    def workspace(self, program: Program, called: Sequence[Callee], before: Any) -> Any:
        """Memory for the temporary buffers of calls that run one by one, which `bind` cuts;
        ``before`` where it is large enough.
        """
        return None

    def bind(self, callee: Callee, arrays: Sequence[Any], workspace: Any) -> Any:
        """A call whose temporary buffers are in ``workspace``; None: each call takes its own."""
        return callee.function.bind(*arrays)

    def sync(self) -> None:
        """Wait for all work in the current stream; RunError where something failed."""


@dataclass(frozen=True)
class DevicePlace(HostPlace):
    def memory(self, program: Program, what: str, nbytes: int) -> Any:
        nbytes = max(nbytes, 1)
        with self.room(program, what, nbytes):
            return empty((nbytes,), "uint8", self.device)

    def cut(self, memory: Any, v: Value, offset: int) -> Any:
        part = memory.memory.part(offset, v.nbytes)
        return DeviceArray(part, v.shape, v.dtype, self.device, memory)

    def zeros(self, program: Program, v: Value) -> Any:
        with self.room(program, f"its input {v.name!r}", v.nbytes):
            elements: Any = empty(v.shape, v.dtype, self.device)
        if v.nbytes:
            self.device.api.fill(elements.memory, 0)
        return elements

    def fitted(self, v: Value, value: object) -> Any:
        if is_on_host(value):
            return super().fitted(v, value)
        where = device_of(value)
        if where != self.device:
            raise ArgumentError(
                f"{v.name!r}: the array lies on {where}, and the model runs on {self.device}; copy "
                "it there, or to the host"
            )
        try:
            elements = value if isinstance(value, DeviceArray) else from_dlpack(value)
        except ArgumentError as error:
            raise ArgumentError(f"{v.name!r}: {error}") from None
        return _checked(v, elements)

    def lent(self, v: Value, value: object) -> Any:
        elements = self.fitted(v, value)
        if not isinstance(elements, DeviceArray):
            raise ArgumentError(
                f"{v.name!r}: the array lies on the host, and the model runs on {self.device}; "
                "without a copy it takes arrays of that alone, such as lw.nd.empty(shape, dtype, "
                "device)"
            )
        return elements

    def workspace(self, program: Program, called: Sequence[Callee], before: Any) -> Any:
        most = max((sum(map(self._aligned, _buffer_bytes(c))) for c in called), default=0)
        if before is not None and most <= before.nbytes:
            return before
        return self.memory(program, "temporary buffers of its kernels", most)

    def bind(self, callee: Callee, arrays: Sequence[Any], workspace: Any) -> Any:
        if workspace is None or isinstance(callee.function, HostStep):
            return callee.function.bind(*arrays)
        sizes = _buffer_bytes(callee)
        offsets = accumulate(map(self._aligned, sizes), initial=0)
        buffers = [workspace.memory.part(*part) for part in zip(offsets, sizes, strict=False)]
        return callee.function.bind(*arrays, buffers=buffers)

    @contextmanager
    def room(self, program: Program, what: str, nbytes: int) -> Iterator[None]:
        """Name ``what`` of a program, of so many bytes, in an OutOfMemoryError of the block."""
        try:
            yield
        except OutOfMemoryError as error:
            constants = sum(v.nbytes for v in program.values if v.kind == "constant")
            free = self.device.available_global_memory
            free_text = "" if free is None else f", {free} are free"
            raise OutOfMemoryError(
                f"{self.device} has no room for {what} ({nbytes} bytes{free_text}): the model "
                f"takes {constants} bytes of weights and {program.pool_bytes} of values between "
                f"its kernels; take a smaller batch or another device ({error})"
            ) from error

    def _aligned(self, nbytes: int) -> int:
        unit = self.device.api.alignment(self.device.device_id)
        return -(-max(nbytes, 1) // unit) * unit

    def sync(self) -> None:
        api, device_id = self.device.api, self.device.device_id
        api.synchronize(device_id, api.current_stream(device_id))


def _buffer_bytes(callee: Callee) -> Sequence[int]:
    """Bytes of each temporary buffer of a kernel on a device; a Python function has none."""
    if isinstance(callee.function, HostStep):
        return ()
    function = callee.function.function
    assert isinstance(function, DeviceFunction)
    return function.buffer_bytes


def _checked(v: Value, elements: Any) -> Any:
    if elements.shape != v.shape or elements.dtype != np.dtype(v.dtype):
        raise ArgumentError(
            f"{v.name!r} is {v.dtype}{list(v.shape)}, got {elements.dtype}{list(elements.shape)}"
        )
    return elements


def _as_host_array(v: Value, value: object) -> Array:
    if isinstance(value, np.ndarray) or is_on_host(value):
        try:
            return np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            if not hasattr(value, "__dlpack__"):
                raise ArgumentError(f"{v.name!r}: no array can be made of it: {error}") from None
    try:
        return host_array(value)  # says where it lies
    except ArgumentError as error:
        raise ArgumentError(f"{v.name!r}: {error}") from None


def constants_of(program: Program, constants: Mapping[str, Array]) -> dict[int, Array]:
    """The constants of a program by number; ArgumentError where one is missing or does not fit."""
    weights = {}
    for n, v in enumerate(program.values):
        if v.kind != "constant":
            continue
        if v.name not in constants:
            raise ArgumentError(f"constant {v.name!r} is missing{did_you_mean(v.name, constants)}")
        weights[n] = HostPlace().fitted(v, constants[v.name])
    return weights


@dataclass(eq=False, repr=False)
class PlacedProgram:
    """A program whose kernels are prepared, with its weights; executors share it.

    Attributes:
        place: of inputs, outputs and all values that are not in ``homes``, by number.
        constants: arrays of the host, by number of the value.
        weights: those of them that lie where they are read.
        callees: of each step.
    """

    program: Program
    kernels: Mapping[str, Module | HostStep]
    place: HostPlace
    constants: Mapping[int, Array]
    callees: Sequence[Callee]
    weights: Mapping[int, Any]
    homes: Mapping[int, HostPlace] = field(default_factory=dict)

    @cached_property
    def taken(self) -> Taken:
        """Memory of its weights, which no output may overlap."""
        return Taken((self.program.values[n].name, a) for n, a in self.weights.items())

    def with_constants(self, fresh: Mapping[int, Array]) -> PlacedProgram:
        """The program with other arrays for some constants; steps that read one of them are
        prepared again.
        """
        program, constants = self.program, {**self.constants, **fresh}
        steps, outputs = program.steps, program.outputs
        parts = prepared(self.place, steps, self.kernels, constants, outputs, self, fresh)
        return PlacedProgram(program, self.kernels, self.place, constants, *parts)


def host_program(
    program: Program,
    kernels: Mapping[str, Module | HostStep],
    constants: Mapping[str, Array],
    shared: SharedArrays | None = None,
    in_place: Collection[str] = (),
) -> PlacedProgram:
    """A program on the host; arguments and errors as of `GraphExecutor`."""
    weights = constants_of(program, constants)
    live = {n for n in weights if program.values[n].name in in_place}
    called = callees(program.steps, kernels, weights, shared=shared, in_place=live)
    return PlacedProgram(program, kernels, HostPlace(), weights, called, weights)


def prepared(
    place: HostPlace,
    steps: Sequence[Step],
    kernels: Mapping[str, Module | HostStep],
    constants: Mapping[int, Array],
    outputs: Collection[int] = (),
    before: PlacedProgram | None = None,
    changed: Collection[int] = (),
) -> tuple[list[Callee], Mapping[int, Any]]:
    """The callees of steps, and the constants that they, or a reader of ``outputs``, read at the
    place; those in ``changed`` differ from the ones of ``before``.
    """
    called: Sequence[Callee] = () if before is None else before.callees
    if not isinstance(place, DevicePlace):
        return callees(steps, kernels, constants, called, changed), constants
    kept = {} if before is None else before.weights
    here = {n: a for n, a in kept.items() if n not in changed}
    # Functions in Python read constants of the host.
    computed = [s for s in steps if not isinstance(kernels.get(s.kernel), HostStep)]
    fresh = [s for s in computed if not called or not set(changed).isdisjoint(s.args)]
    needed = constants.keys() & {*outputs, *(n for s in fresh for n in s.args)}
    here |= {n: array(constants[n], device=place.device) for n in needed - here.keys()}
    called = callees(steps, kernels, {**constants, **here}, called, changed, in_place=here)
    # Those that kernels have packed are dropped.
    read = {*outputs, *(n for c in called if not isinstance(c.function, HostStep) for n in c.rest)}
    functions = [c.function for c in called if isinstance(c.function, Kernel)]
    held = {id(a) for function in functions for a in function.given}
    return called, {n: a for n, a in here.items() if n in read or id(a) in held}
