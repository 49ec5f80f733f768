"""The arrays that a runner times kernels on: seeded inputs, poisoned outputs, guarded edges."""

from __future__ import annotations

from loopwright.measure.checking.check import Array
from loopwright.measure.data.plan import DataPlan, input_set
from loopwright.measure.workers.array_bytes import split
from loopwright.measure.workers.kernel_host import ArgumentMemory

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
        made = input_set(self._plan, self.args, self._seed, self._given, number)
        if sum(a.nbytes for a in made) <= _KEPT_BYTES:
            self._others[number] = made
        return made

    def restore(self, number: int = 0) -> None:
        """Reset the inputs and poison the outputs."""
        self.memory.fill(self.inputs(number))

    def split(self, data: bytes) -> list[Array]:
        """The outputs, which lie in ``data`` one after the other, as read-only arrays."""
        return split(data, [arg for arg in self.args if arg.output])
