"""Steps of a program that are Python functions: what no kernel computes, another library does."""

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
        function: from the arrays that it reads, into which it does not write, to those that it
            makes, in order.
        outputs: how many it makes.
        by: whose implementation it is, such as ``"PyTorch"``.

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
        """A call on some arrays: those that it reads, then those that it writes."""
        first = len(arrays) - self.outputs
        return HostCall(self, arrays[:first], arrays[first:])


@dataclass(frozen=True, eq=False)
class HostCall:
    """A step with its arrays.

    Attributes:
        step: the step.
        inputs: arrays that it reads.
        outputs: arrays that it writes.
    """

    step: HostStep
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]

    def __call__(self) -> None:
        """Run it once.

        Raises:
            RunError: the function failed, or gave something else than it was to.
        """
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
        """Where it runs: on the host."""
        return device("cpu", 0)

    def time(self, number: int) -> float:
        """Seconds of some calls, one after the other."""
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
