"""`Kernel` and `KernelCall`: a compiled function of any artifact, and a call of it.

`Function` (machine code of the host), `DeviceFunction` (launches on a device), `SymbolicFunction`
(either, of every size) and `FunctionWithConstants` (any of these, some arguments given) are
kernels; `BoundCall`, `DeviceCall` and `PreparedCall` are calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime.devices.device import Device


class KernelCall(ABC):
    """A kernel with checked arguments, ready to run any number of times."""

    __slots__ = ()
    #: The kernel that it runs.
    function: Kernel

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def args(self) -> tuple[Any, ...]:
        return self.function.args

    @property
    def device(self) -> Device:
        return self.function.device

    @abstractmethod
    def __call__(self) -> None:
        """Run it; a device may not have finished when this returns."""

    @abstractmethod
    def run(self) -> None:
        """Run it once, and wait for it."""

    @abstractmethod
    def time(self, number: int) -> float:
        """Seconds of `number` calls back to back, by the clock of whatever runs them."""

    @property
    def prepare(self) -> KernelCall | None:
        """The part that constants determine, which runs before `main`; None where there is none."""
        return None

    @property
    def main(self) -> KernelCall:
        """The part that is timed."""
        return self


class Kernel(ABC):
    """A compiled function: checks its arguments, then runs."""

    name: str
    #: Arguments with a shape and a dtype, in order.
    args: tuple[Any, ...]

    #: Its code: an `Image`, or a `DeviceImage`.
    _image: Any

    @property
    def device(self) -> Device:
        """The device that runs it; the first of its kind unless arrays say more."""
        return Device(self._image.kind.device)

    @abstractmethod
    def __call__(self, *args: object) -> None:
        """Check the arguments, then run."""

    @abstractmethod
    def bind(self, *args: Any, **memory: Any) -> KernelCall:
        """Check the arguments now and return a call that runs without checking again.

        `memory` is what only some kernels take, as ``buffers`` of those on a device.
        """

    @property
    def function(self) -> Kernel:
        """The kernel that calls run, which takes `given` beside a call's arguments."""
        return self

    @property
    def given(self) -> Sequence[Any]:
        """An array for each argument of `function` that is given; None where a call gives it."""
        return (None,) * len(self.order)

    @property
    def order(self) -> Sequence[int | str]:
        """Arguments of a call: arrays by number, and names of sizes that are passed."""
        return range(len(self.args))

    def at(self, **sizes: int) -> Kernel:
        """The kernel for given sizes; ArgumentError where one is missing, unknown or small."""
        if sizes and self.function is not self:
            raise UsageError(f"{self.name}: give the sizes first, then the constants")
        if sizes:
            raise ArgumentError(f"{self.name} takes no sizes, got {', '.join(sizes)}")
        return self

    def resolve(self, args: Sequence[Any]) -> tuple[Kernel, list[Any]]:
        """The kernel for the sizes of these arguments, and the arrays that it takes."""
        return self, list(args)
