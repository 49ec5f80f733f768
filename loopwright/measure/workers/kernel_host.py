"""`KernelHost`: the processor that the kernels of a runner run on.

A runner makes data, races kernels and checks them in one way everywhere. The differences between
CPUs and devices are behind the classes here: the place and guards of arrays, the loading and timing
of kernels. ``cpu_host.py`` and ``device_kernels.py`` implement them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

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
from loopwright.runtime.guarded_memory import Side
from loopwright.runtime.kernels.kernel import KernelCall


def prepared(call: KernelCall) -> float:
    """Compute the part that constants determine, so that the call can be timed; returns the seconds
    of it, 0 where there is none.
    """
    return 0.0 if call.prepare is None else call.prepare.time(1)


class ArgumentMemory(ABC):
    """An array for each argument of a kernel, where the kernel runs."""

    def __init__(self, args: Sequence[Arg]) -> None:
        self.args = tuple(args)

    @abstractmethod
    def read(self, number: int) -> Array:
        """Contents of the array of an argument; read-only, and valid until the next change."""

    @abstractmethod
    def write(self, number: int, data: Array) -> None:
        """Copy these elements to the array of an argument."""

    @abstractmethod
    def poison(self, number: int, pattern: int) -> None:
        """Fill an output so that an element left unwritten cannot look right."""

    @abstractmethod
    def set_element(self, number: int, at: int, data: Array) -> None:
        """Copy the element at a row-major place from ``data``, which has the array's shape."""

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
        """Copies of the outputs."""
        return [self.read(n).copy() for n in self.outputs]

    def fill(self, inputs: Sequence[Array]) -> None:
        """Reset the inputs and poison the outputs."""
        self.fill_inputs(inputs)
        self.poison_outputs()

    def fill_inputs(self, inputs: Sequence[Array]) -> None:
        """Reset the inputs; the outputs stay."""
        for number, data in zip(self.inputs, inputs, strict=True):
            self.write(number, data)

    def poison_outputs(self, pattern: int = PATTERN) -> None:
        """Fill all outputs so that no unwritten element looks right."""
        for number in self.outputs:
            self.poison(number, pattern)

    def judge(
        self, inputs: Sequence[Array], expected: Sequence[Array], close: Closeness | int
    ) -> Comparison:
        """Compare the results of a kernel on these inputs with the reference."""
        pairs = enumerate(zip(self.outputs, expected, strict=True))
        results = [compare(self.args[n].name, self.read(n), e, close, i) for i, (n, e) in pairs]
        return self._judged(inputs, results)

    def judge_known(self, inputs: Sequence[Array], expected: Sequence[KnownElements]) -> Comparison:
        """Compare the known elements of the outputs; see `judge`."""
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
    """One linked candidate, bound to the arrays that it is timed on."""

    workspace_bytes: int  # that the caller lends for a call
    #: Seconds of the part that constants determine, which is in no time; 0 without one.
    prepare_seconds: float

    @abstractmethod
    def pinned(self) -> AbstractContextManager[None]:
        """Keep its threads on their CPUs inside the block."""

    def take_turns(self, nbytes: int) -> None:  # noqa: B027 - devices time on one copy
        """Let the calls of `run` read constants from copies in turns, so many bytes together."""

    @abstractmethod
    def run(self, number: int = 1, *, flush: bool = False) -> float:
        """Seconds of ``number`` calls together; with ``flush`` of one call with cold caches."""

    @abstractmethod
    def bound(self, memory: ArgumentMemory) -> KernelCall:
        """A call on other arrays, for `loopwright.runtime.time_call`."""

    @abstractmethod
    def flush(self, memory: ArgumentMemory) -> None:
        """Empty the caches for a call on these arrays."""


class CheckMemory(ABC):
    """Memory in which kernels are checked, used for many checks."""

    memory: ArgumentMemory  # the arrays, once they are placed

    @abstractmethod
    def fits(self, args: Sequence[Arg], workspace_bytes: int) -> bool:
        """Whether it was made for these arguments."""

    @abstractmethod
    def place(self, side: Side) -> None:
        """Move all arrays to one edge of their memory; their contents are lost."""

    @abstractmethod
    def bound(self, kernel: LoadedKernel) -> KernelCall:
        """A call of a kernel on these arrays."""


class SampledLimit(Protocol):
    """A limit of a processor; see `loopwright.measure.yardsticks.sampling.Yardstick`."""

    def rate(self) -> float:
        """Units of work per second, measured now."""


class KernelHost(ABC):
    """The processor that a runner's kernels run on."""

    device_type: str  # such as ``"cpu"``, as in kinds of artifacts

    @abstractmethod
    def memory(self, args: Sequence[Arg]) -> ArgumentMemory:
        """Guarded arrays for timing; raises MemoryError or OutOfMemoryError."""

    @abstractmethod
    def check_memory(self, args: Sequence[Arg], workspace_bytes: int) -> CheckMemory:
        """Arrays for checks; raises as `memory`."""

    @abstractmethod
    def load(self, artifact: Artifact, memory: ArgumentMemory) -> LoadedKernel:
        """Link a program and bind it to arrays, so that its next call takes its usual time."""

    def limit(self, artifact: Artifact, through_memory: bool) -> SampledLimit:
        """A limit of this processor, measured by a kernel; CPUs need no runner for it.

        ``through_memory``: its arrays must not fit into a cache.
        """
        raise InternalError(f"a runner of {self.device_type} was asked for a limit of a device")

    @abstractmethod
    def probe(self) -> None:
        """Test whether the processor still works; raises a RunError where it does not."""
