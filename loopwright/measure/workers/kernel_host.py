"""`KernelHost`: the processor that a runner's kernels run on, and the arrays of their arguments.

A runner makes data, races kernels and checks them in one way everywhere. The differences between
CPUs and devices are behind the classes here: the place and guards of arrays, the loading and timing
of kernels. ``cpu_kernels.py`` and ``device_kernels.py`` implement them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np

from loopwright.errors import InternalError
from loopwright.measure.comparison import (
    PATTERN,
    Array,
    Closeness,
    Comparison,
    KnownElements,
    compare,
    compare_known,
    split,
)
from loopwright.measure.inputs import DataPlan, input_set
from loopwright.runtime import Arg, Artifact, KernelCall, Side

if TYPE_CHECKING:
    from loopwright.measure.workers.yardstick import Yardstick


def prepared(call: KernelCall) -> float:
    """Compute the part that constants determine, so that the call can be timed; returns the seconds
    of it, 0 where there is none.
    """
    return 0.0 if call.prepare is None else call.prepare.time(1)


def guard_pattern(number: int) -> int:
    """The byte that guards the array of an argument.

    It differs from array to array: a kernel that runs past the end of all of them copies the guards
    of one into those of another.
    """
    return (0x5A + 29 * number) % 256


def outside_text(names: Sequence[str]) -> str | None:
    """One line about writes outside of the arrays of these arguments; None where there are none."""
    return f"it wrote outside the memory of {', '.join(names)}" if names else None


def same_bytes(a: Array, b: Array) -> bool:
    """Whether two arrays of one type hold the same bits; a NaN equals itself."""
    x, y = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (a, b))
    return bool(np.array_equal(x, y))


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

    def fits(self, args: Sequence[Arg], workspace_bytes: int) -> bool:
        """Whether memory of checks was made for such a kernel."""
        return self.args == tuple(args)

    def place(self, side: Side) -> None:  # noqa: B027 - on devices both edges are guarded
        """Move all arrays to one edge of their memory; their contents are lost."""

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

    @abstractmethod
    def take_turns(self, nbytes: int) -> None:
        """Let the calls of `run` read constants from copies in turns, so many bytes together."""

    @abstractmethod
    def run(self, number: int = 1, *, flush: bool = False) -> float:
        """Seconds of ``number`` calls together; with ``flush`` of one call with cold caches."""

    @abstractmethod
    def bound(self, memory: ArgumentMemory) -> KernelCall:
        """A call on other arrays, for `loopwright.runtime.time_call`."""

    @abstractmethod
    def checked(self, memory: ArgumentMemory) -> KernelCall:
        """A call on arrays of `KernelHost.check_memory`, with its temporary memory there too."""

    @abstractmethod
    def flush(self, memory: ArgumentMemory) -> None:
        """Empty the caches for a call on these arrays."""


class KernelHost(ABC):
    """The processor that a runner's kernels run on."""

    device_type: str  # such as ``"cpu"``, as in kinds of artifacts

    @abstractmethod
    def memory(self, args: Sequence[Arg]) -> ArgumentMemory:
        """Guarded arrays for timing; raises MemoryError or OutOfMemoryError."""

    @abstractmethod
    def check_memory(self, args: Sequence[Arg], workspace_bytes: int) -> ArgumentMemory:
        """Arrays for many checks; raises as `memory`."""

    @abstractmethod
    def load(self, artifact: Artifact, memory: ArgumentMemory) -> LoadedKernel:
        """Link a program and bind it to arrays, so that its next call takes its usual time."""

    def limit(self, artifact: Artifact, through_memory: bool) -> Yardstick:
        """A limit of this processor, measured by a kernel; CPUs need no runner for it.

        ``through_memory``: its arrays must not fit into a cache.
        """
        raise InternalError(f"a runner of {self.device_type} was asked for a limit of a device")

    @abstractmethod
    def probe(self) -> None:
        """Test whether the processor still works; raises a RunError where it does not."""


#: Inputs of a set beside the first that are larger than this together are made for each check.
_KEPT_BYTES = 1 << 28


class KernelArrays:
    """The arrays of all arguments of one kind of kernel, and their data.

    Inputs keep a pristine copy on the host, so that a kernel that writes an input is detected and
    cannot spoil the data of the next one. ``data`` is set 0 of the inputs one after the other,
    row-major; empty: random ones from the seed.
    """

    def __init__(
        self, memory: ArgumentMemory, seed: int, data: bytes = b"", plan: DataPlan | None = None
    ) -> None:
        self.memory, self.args = memory, memory.args
        self._seed, self._plan = seed, plan or DataPlan()
        self._given = split(data, [a for a in self.args if not a.output]) if data else None
        self._pristine = input_set(self._plan, self.args, seed, self._given, 0)
        self._others: dict[int, list[Array]] = {}
        self.restore()

    def inputs(self, number: int) -> list[Array]:
        """The inputs of a set, read-only."""
        if number == 0:
            return self._pristine
        if number in self._others:
            return self._others[number]
        arrays = input_set(self._plan, self.args, self._seed, self._given, number)
        if sum(a.nbytes for a in arrays) <= _KEPT_BYTES:
            self._others[number] = arrays
        return arrays

    def restore(self, number: int = 0) -> None:
        """Reset the inputs and poison the outputs."""
        self.memory.fill(self.inputs(number))

    def split(self, data: bytes) -> list[Array]:
        """The outputs, which lie in ``data`` one after the other, as read-only arrays."""
        return split(data, [arg for arg in self.args if arg.output])
