"""`KernelHost`: what a runner needs of the processor that its kernels run on.

A runner makes data, races kernels and checks them in one way everywhere. What differs between CPUs
and devices is behind the classes here: where arrays lie and how they are guarded, how a kernel is
loaded and timed. ``cpu_host.py`` and ``device_kernels.py`` implement them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from loopwright import runtime
from loopwright.errors import InternalError
from loopwright.measure.checking.check import (
    PATTERN,
    Array,
    Closeness,
    Comparison,
    KnownElements,
    compare,
    compare_known,
)
from loopwright.measure.workers.array_bytes import same_bytes
from loopwright.runtime import Arg, Artifact
from loopwright.runtime.devices.function import DeviceCall
from loopwright.runtime.function import BoundCall
from loopwright.runtime.guarded_memory import Side
from loopwright.runtime.parts import PreparedCall

#: A bound call of a kernel.
AnyCall = BoundCall | DeviceCall | PreparedCall


def prepared(call: AnyCall) -> float:
    """Compute what constants determine, so that the call can be timed; returns the seconds of it,
    0 where there is nothing of the kind."""
    return runtime.time_call(call.prepare, 1) if isinstance(call, PreparedCall) else 0.0


class ArgumentMemory(ABC):
    """An array for each argument of a kernel, where the kernel runs.

    Args:
        args: the arguments.

    Attributes:
        args: the arguments.
    """

    def __init__(self, args: Sequence[Arg]) -> None:
        self.args = tuple(args)

    @abstractmethod
    def read(self, number: int) -> Array:
        """What the array of an argument holds now; not to be written, nor kept beyond the next
        change."""

    @abstractmethod
    def write(self, number: int, data: Array) -> None:
        """Give the array of an argument these elements."""

    @abstractmethod
    def poison(self, number: int, pattern: int) -> None:
        """Fill an output so that an element left unwritten cannot look right."""

    @abstractmethod
    def set_element(self, number: int, at: int, data: Array) -> None:
        """Take over the element at a row-major place from ``data``, which has the array's shape."""

    @abstractmethod
    def written_outside(self) -> str | None:
        """One line about a write beside an array, or None."""

    @abstractmethod
    def beside(self) -> ArgumentMemory:
        """Other arrays for the inputs, with the outputs of this one; unguarded."""

    @property
    def inputs(self) -> list[int]:
        """Numbers of the arguments that kernels read."""
        return [n for n, arg in enumerate(self.args) if not arg.output]

    @property
    def outputs(self) -> list[int]:
        """Numbers of the arguments that kernels write."""
        return [n for n, arg in enumerate(self.args) if arg.output]

    def results(self) -> list[Array]:
        """What the outputs hold now, in copies."""
        return [self.read(n).copy() for n in self.outputs]

    def fill(self, inputs: Sequence[Array]) -> None:
        """Fresh inputs, poisoned outputs."""
        self.fill_inputs(inputs)
        self.poison_outputs()

    def fill_inputs(self, inputs: Sequence[Array]) -> None:
        """Fresh inputs; the outputs stay."""
        for number, data in zip(self.inputs, inputs, strict=True):
            self.write(number, data)

    def poison_outputs(self, pattern: int = PATTERN) -> None:
        """Fill all outputs so that nothing left unwritten looks right."""
        for number in self.outputs:
            self.poison(number, pattern)

    def judge(
        self, inputs: Sequence[Array], expected: Sequence[Array], close: Closeness | int
    ) -> Comparison:
        """Compare what a kernel left behind with the reference.

        Args:
            inputs: what it was given.
            expected: the outputs as they should be.
            close: how close they must be.
        """
        pairs = enumerate(zip(self.outputs, expected, strict=True))
        results = [compare(self.args[n].name, self.read(n), e, close, i) for i, (n, e) in pairs]
        return self._judged(inputs, results)

    def judge_known(self, inputs: Sequence[Array], expected: Sequence[KnownElements]) -> Comparison:
        """Compare what is known of the outputs; see `judge`."""
        pairs = zip(self.outputs, expected, strict=True)
        results = [compare_known(self.args[n].name, self.read(n), e) for n, e in pairs]
        return self._judged(inputs, results)

    def _judged(self, inputs: Sequence[Array], results: Sequence[Comparison]) -> Comparison:
        problems = [r.problem for r in results if r.problem is not None]
        for n, data in zip(self.inputs, inputs, strict=True):
            if not same_bytes(self.read(n), data):
                problems.append(f"it changed its input {self.args[n].name}")
        worst = max((r.max_error for r in results), default=0.0)
        return Comparison(worst, "; ".join(problems) or None)


class LoadedKernel(ABC):
    """One linked candidate, bound to the arrays that it is timed on.

    Attributes:
        workspace_bytes: that the caller of a call lends to it.
        prepare_seconds: what the part took that constants determine, and that no time holds; 0
            where there is none.
    """

    workspace_bytes: int
    prepare_seconds: float

    @abstractmethod
    def pinned(self) -> AbstractContextManager[None]:
        """Inside the block its threads stay where they are."""

    def take_turns(self, nbytes: int) -> None:  # noqa: B027 - devices time on one copy
        """Let the calls of `run` read constants from copies in turns, so many bytes together."""

    @abstractmethod
    def run(self, number: int = 1, *, flush: bool = False) -> float:
        """Seconds of ``number`` calls together; with ``flush`` of one call with cold caches."""

    @abstractmethod
    def bound(self, memory: ArgumentMemory) -> AnyCall:
        """A call on other arrays, for `loopwright.runtime.time_call`."""

    @abstractmethod
    def flush(self, memory: ArgumentMemory) -> None:
        """Make the caches cold for a call on these arrays."""


class CheckMemory(ABC):
    """Where kernels are checked, used for many checks.

    Attributes:
        memory: the arrays, once they are placed.
    """

    memory: ArgumentMemory

    @abstractmethod
    def fits(self, args: Sequence[Arg], workspace_bytes: int) -> bool:
        """Whether it was made for these arguments."""

    @abstractmethod
    def place(self, side: Side) -> None:
        """Let all arrays lie against one edge of their memory; what they held is lost."""

    @abstractmethod
    def bound(self, kernel: LoadedKernel) -> AnyCall:
        """A call of a kernel on these arrays."""


class SampledLimit(Protocol):
    """A limit of a processor; see `loopwright.measure.yardsticks.sampling.Yardstick`."""

    def rate(self) -> float:
        """Units of work a second, measured now."""


class KernelHost(ABC):
    """The processor that a runner's kernels run on.

    Attributes:
        device_type: name of its kind, such as ``"cpu"``, as kinds of artifacts say it.
    """

    device_type: str

    @abstractmethod
    def memory(self, args: Sequence[Arg]) -> ArgumentMemory:
        """Guarded arrays for timing.

        Raises:
            MemoryError, OutOfMemoryError: there is no room.
        """

    @abstractmethod
    def check_memory(self, args: Sequence[Arg], workspace_bytes: int) -> CheckMemory:
        """Arrays for checks; raises as `memory`."""

    @abstractmethod
    def load(self, artifact: Artifact, memory: ArgumentMemory) -> LoadedKernel:
        """Link a program and bind it to arrays, so that its next call takes what calls take.

        Raises:
            LoopwrightError: the processor refuses it.
        """

    def limit(self, artifact: Artifact, through_memory: bool) -> SampledLimit:
        """A limit of this processor, told by a kernel; that of CPUs is told without a runner.

        Args:
            artifact: the kernel.
            through_memory: its arrays must not fit into a cache.
        """
        raise InternalError(f"a runner of {self.device_type} was asked for a limit of a device")

    @abstractmethod
    def probe(self) -> None:
        """Try whether the processor still does what it should.

        Raises:
            RunError: it does not.
        """
