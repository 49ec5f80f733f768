"""Callees of a program's steps on a device, whose weights are copied there once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import UsageError
from loopwright.runtime.arrays.device import DeviceArray
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.function import DeviceCall, DeviceFunction
from loopwright.runtime.devices.interface import Memory
from loopwright.runtime.executors.callees import Callee, split
from loopwright.runtime.executors.host_step import HostStep
from loopwright.runtime.executors.program import Step
from loopwright.runtime.module import Module
from loopwright.runtime.ndarray import array

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class DeviceKernel:
    """A kernel with its constants on a device."""

    #: The code that each run calls.
    function: DeviceFunction
    #: An array for each argument that is a constant, or packed of constants; None: a step gives it.
    given: tuple[DeviceArray | None, ...]

    def bind(self, *rest: DeviceArray, buffers: Sequence[Memory]) -> DeviceCall:
        """A call on the arrays of a step, with memory for the kernel's temporary buffers."""
        following = iter(rest)
        args = [next(following) if x is None else x for x in self.given]
        return self.function.bind(*args, buffers=buffers)


class DeviceWeights(Collection[int]):
    """The weights of a program on a device: each is copied when a kernel first reads it.

    ``weights`` are arrays of the host by number of the value, ``there`` those copied before.
    """

    def __init__(
        self,
        weights: Mapping[int, Array],
        device: Device,
        there: Mapping[int, DeviceArray] | None = None,
    ) -> None:
        self._weights, self.device = weights, device
        self._there = dict(there or {})

    def __getitem__(self, number: int) -> DeviceArray:
        if number not in self._there:
            self._there[number] = on_device(self._weights[number], self.device)
        return self._there[number]

    def __contains__(self, number: object) -> bool:
        return number in self._weights

    def __iter__(self) -> Iterator[int]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    @property
    def there(self) -> Mapping[int, DeviceArray]:
        """Weights that are on the device."""
        return self._there

    def bring(self, numbers: Iterable[int]) -> None:
        """Copy those that are weights, where they are not there yet."""
        for n in numbers:
            if n in self._weights:
                self[n]

    def keep(self, numbers: Collection[int]) -> None:
        """Drop all others; arrays that kernels have packed of them stay."""
        self._there = {n: a for n, a in self._there.items() if n in numbers}


def on_device(elements: Array, device: Device) -> DeviceArray:
    made = array(elements, device=device)
    assert isinstance(made, DeviceArray)
    return made


def device_callees(
    steps: Sequence[Step],
    kernels: Mapping[str, Module | HostStep],
    weights: DeviceWeights,
    before: Sequence[Callee] = (),
    changed: Collection[int] = (),
) -> list[Callee]:
    """The callee of each step; steps that give one kernel the same constants share its packed ones.

    ``before`` are the callees for other weights (empty: prepare all), of which those in ``changed``
    differ. ArgumentError where a kernel is missing or does not fit, UsageError where it is for the
    host.
    """
    made: dict[tuple[object, ...], DeviceKernel] = {}
    found = []
    for at, step in enumerate(steps):
        module, given, rest = split(step, kernels, weights)
        if before and not set(given) & set(changed):
            found.append(before[at])
            continue
        if isinstance(module, HostStep):
            found.append(Callee(module, given, rest))
            continue
        key = (step.kernel, *given)
        if key not in made:
            made[key] = _with_constants(module, step, given, weights)
        weights.bring(rest)  # weights that the kernel takes as ordinary arguments
        found.append(Callee(made[key], given, rest))
    _forget_what_is_packed(weights, found)
    return found


def _forget_what_is_packed(weights: DeviceWeights, called: Sequence[Callee]) -> None:
    """Drop weights that no run reads, since kernels have packed them."""
    kernels = [c for c in called if isinstance(c.function, DeviceKernel)]
    held = {id(a) for c in kernels for a in c.function.given}
    numbers = {n for c in kernels for n in c.rest if n in weights}
    weights.keep({n for n, a in weights.there.items() if id(a) in held} | numbers)


def _with_constants(
    module: Module, step: Step, given: Sequence[int], weights: DeviceWeights
) -> DeviceKernel:
    """A kernel with its constants; stages that depend on them alone are computed now."""
    function = module[module.entry_name]
    if not isinstance(function, DeviceFunction):
        raise UsageError(
            f"kernel {step.kernel!r} is built for {module.type_key}, and is no kernel of a device "
            "with sizes that are known"
        )
    numbers = {place: n for place, n in enumerate(step.args) if n in given}
    parts = module.parts()
    if parts is None:
        held = (weights[numbers[p]] if p in numbers else None for p in range(len(step.args)))
        return DeviceKernel(function, tuple(held))
    kept = parts.room(weights.device)
    parts.prepare({place: weights[n] for place, n in numbers.items()}, kept)
    assert isinstance(parts.second, DeviceFunction)
    read = (weights[numbers[p]] if p in numbers else None for p in parts.read_later)
    return DeviceKernel(parts.second, (*read, *kept))


@dataclass(frozen=True, eq=False)
class HostCallOnDevice:
    """A Python step between kernels of a device; its arrays are copied to the host and back."""

    step: HostStep
    #: On the device or on the host.
    reads: tuple[DeviceArray | Array, ...]
    #: On the device.
    writes: tuple[DeviceArray, ...]

    def __call__(self) -> None:
        """Run it once, after all work that was queued before."""
        given = [a if isinstance(a, np.ndarray) else a.numpy() for a in self.reads]
        made = [np.empty(a.shape, a.dtype) for a in self.writes]
        self.step.bind(*given, *made)()
        for there, here in zip(self.writes, made, strict=True):
            there.copyfrom(here)
