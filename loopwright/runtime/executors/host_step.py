"""Steps of a program that are Python functions, for operators without a kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import RunError
from loopwright.runtime.devices.device import Device, device

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class HostStep:
    """A step that runs in Python, on arrays of the host.

    Attributes:
        name: of the step, for messages.
        function: from the arrays that it reads, which it does not change, to its results, in order.
            outputs: number of results.
            by: library of the implementation, such as ``"PyTorch"``.

    Example:
        >>> from loopwright.runtime.executors import HostStep
        >>> step = HostStep("sorted", lambda x: [np.sort(x)], 1, "NumPy")
        >>> x, y = np.array([3, 1, 2]), np.empty(3, "int64")
        >>> step.bind(x, y)()
        >>> print(y)
        [1 2 3]
    """

    name: str
    function: Callable[..., Sequence[Array]]
    outputs: int
    by: str

    def bind(self, *arrays: Array) -> HostCall:
        """A call on some arrays: its inputs, then its outputs."""
        first = len(arrays) - self.outputs
        return HostCall(self, arrays[:first], arrays[first:])


@dataclass(frozen=True, eq=False)
class HostCall:
    """A step with its arrays."""

    step: HostStep
    #: Arrays that it reads.
    inputs: tuple[Array, ...]
    #: Arrays that it writes.
    outputs: tuple[Array, ...]

    def __call__(self) -> None:
        """Run it once; RunError where the function failed, or its results do not fit."""
        try:
            made = self.step.function(*self.inputs)
        except Exception as exc:  # whatever the other library raises
            text = " ".join(str(exc).split())
            raise RunError(
                f"step {self.step.name!r}, which {self.step.by} computes, failed: "
                f"{type(exc).__name__}: {text:.300}"
            ) from exc
        self._check(made)
        for out, array in zip(self.outputs, made, strict=True):
            np.copyto(out, array)

    @property
    def device(self) -> Device:
        return device("cpu", 0)

    def time(self, number: int) -> float:
        """Seconds of `number` calls, one after the other."""
        begin = time.perf_counter()
        for _ in range(number):
            self()
        return time.perf_counter() - begin

    def _check(self, made: Sequence[Array]) -> None:
        wanted = [f"{a.dtype}{list(a.shape)}" for a in self.outputs]
        got = [f"{a.dtype}{list(a.shape)}" for a in made]
        if got != wanted:
            raise RunError(
                f"step {self.step.name!r}, which {self.step.by} computes, gave "
                f"{', '.join(got) or 'nothing'} where the program has {', '.join(wanted)}"
            )
