"""Arrays of a runner's kernels, and the CPU as the processor that they run on.

A runner makes data, races kernels and checks them in one way everywhere. Where arrays lie and how
they are guarded, how kernels are loaded and timed, is here for CPUs and in ``device_kernels.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import runtime
from loopwright.errors import InternalError
from loopwright.measure.comparison import (
    PATTERN,
    Array,
    Closeness,
    Comparison,
    KnownElements,
    compare,
    compare_known,
    poison,
    split,
)
from loopwright.measure.inputs import DataPlan, input_set
from loopwright.runtime import (
    ALIGNMENT,
    Arena,
    Arg,
    BoundCall,
    Function,
    GuardedMemory,
    KernelCall,
    Side,
    Turns,
    aligned_bytes,
    artifact_kind,
    flush,
)


def prepared(call: KernelCall) -> float:
    """Compute the part that constants determine; returns its seconds, 0 where there is none."""
    return 0.0 if call.prepare is None else call.prepare.time(1)


def guard_pattern(number: int) -> int:
    """The guard of an argument's array, which another array's guard cannot overwrite unseen."""
    return (0x5A + 29 * number) % 256


def outside_text(names: Sequence[str]) -> str | None:
    return f"it wrote outside the memory of {', '.join(names)}" if names else None


def same_bytes(a: Array, b: Array) -> bool:
    """Whether two arrays of one type hold the same bits; a NaN equals itself."""
    x, y = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (a, b))
    return bool(np.array_equal(x, y))


class ArgumentMemory(ABC):
    """An array for each argument of a kernel, where the kernel runs."""

    def __init__(self, args: Sequence[Arg]) -> None:
        self.args = tuple(args)
        self.inputs = [n for n, arg in enumerate(self.args) if not arg.output]
        self.outputs = [n for n, arg in enumerate(self.args) if arg.output]

    @abstractmethod
    def read(self, number: int) -> Array:
        """Contents of the array of an argument; read-only, and valid until the next change."""

    @abstractmethod
    def write(self, number: int, data: Array) -> None: ...

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

    def results(self) -> list[Array]:
        return [self.read(n).copy() for n in self.outputs]

    def fill(self, inputs: Sequence[Array]) -> None:
        self.fill_inputs(inputs)
        self.poison_outputs()

    def fill_inputs(self, inputs: Sequence[Array]) -> None:
        for number, data in zip(self.inputs, inputs, strict=True):
            self.write(number, data)

    def poison_outputs(self, pattern: int = PATTERN) -> None:
        for number in self.outputs:
            self.poison(number, pattern)

    def judge(
        self,
        inputs: Sequence[Array],
        expected: Sequence[Array | KnownElements],
        close: Closeness | int = 1,
    ) -> Comparison:
        """Compare the results; ``close`` is for whole answers, not for known elements."""
        problems, worst = [], 0.0
        for output, (n, right) in enumerate(zip(self.outputs, expected, strict=True)):
            name, got = self.args[n].name, self.read(n)
            if isinstance(right, KnownElements):
                result = compare_known(name, got, right)
            else:
                result = compare(name, got, right, close, output)
            problems += [result.problem] if result.problem is not None else []
            worst = max(worst, result.max_error)
        for n, data in zip(self.inputs, inputs, strict=True):
            if not same_bytes(self.read(n), data):
                problems.append(f"it changed its input {self.args[n].name}")
        return Comparison(worst, "; ".join(problems) or None)


#: Inputs of a set beside the first that are larger than this together are made for each check.
_KEPT_BYTES = 1 << 28


class KernelArrays:
    """The arrays of all arguments of one kind of kernel, and their data.

    Inputs keep a pristine copy on the host, so that a kernel that writes an input is detected and
    cannot spoil the data of the next one. Empty ``data`` stands for random inputs from the seed.
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
        if number == 0:
            return self._pristine
        if number in self._others:
            return self._others[number]
        arrays = input_set(self._plan, self.args, self._seed, self._given, number)
        if sum(a.nbytes for a in arrays) <= _KEPT_BYTES:
            self._others[number] = arrays
        return arrays

    def restore(self, number: int = 0) -> None:
        self.memory.fill(self.inputs(number))


#: Copies of constants at most. Those of which more would fit are small, and are read in no time.
_MOST_COPIES = 64
_GUARD = 4096  # bytes before and after every array that no kernel may write


class HostMemory(ArgumentMemory):
    def __init__(self, args: Sequence[Arg], arrays: Sequence[Array]) -> None:
        super().__init__(args)
        self.arrays = list(arrays)

    def read(self, number: int) -> Array:
        return self.arrays[number]

    def write(self, number: int, data: Array) -> None:
        np.copyto(self.arrays[number], data)

    def poison(self, number: int, pattern: int) -> None:
        poison(self.arrays[number], pattern)

    def set_element(self, number: int, at: int, data: Array) -> None:
        self.arrays[number].reshape(-1)[at] = data.reshape(-1)[at]

    def written_outside(self) -> str | None:
        return None

    def beside(self) -> HostMemory:
        arrays = [
            array if arg.output else aligned_bytes(arg.nbytes).view(arg.dtype).reshape(arg.shape)
            for arg, array in zip(self.args, self.arrays, strict=True)
        ]
        return HostMemory(self.args, arrays)


class GuardedHostMemory(HostMemory):
    """NumPy arrays with guard zones on both sides of each."""

    def __init__(self, args: Sequence[Arg]) -> None:
        self._zones: list[tuple[Array, Array]] = []
        super().__init__(args, [self._guarded(arg, n) for n, arg in enumerate(args)])

    def _guarded(self, arg: Arg, number: int) -> Array:
        block = np.empty(arg.nbytes + 2 * _GUARD + ALIGNMENT, dtype=np.uint8)
        start = -(block.ctypes.data + _GUARD) % ALIGNMENT
        begin, end = start + _GUARD, start + _GUARD + arg.nbytes
        self._zones.append((block[start:begin], block[end : end + _GUARD]))
        for zone in self._zones[-1]:
            zone.fill(guard_pattern(number))
        return block[begin:end].view(arg.dtype).reshape(arg.shape)

    def written_outside(self) -> str | None:
        guarded = enumerate(zip(self.args, self._zones, strict=True))
        return outside_text(
            [
                arg.name
                for n, (arg, zones) in guarded
                if any((zone != guard_pattern(n)).any() for zone in zones)
            ]
        )


class CpuKernel:
    def __init__(self, artifact: runtime.Artifact, memory: HostMemory) -> None:
        needs = artifact_kind(artifact.kind).needs
        if needs:
            import_module(needs)  # it registers how such a program is linked

        module = runtime.Module(artifact)
        function = module.get_function(artifact.entry)
        assert isinstance(function, Function)  # tuning needs sizes that are known
        self._function, self._parts = function, module.parts()
        # The caller lends so much for a call.
        self.workspace_bytes = function.workspace_bytes
        contents = artifact.contents
        uses_pool = contents.function(artifact.entry).uses_pool
        self._threads = contents.num_threads or None if uses_pool else 1
        self._memory = memory
        self._constants = [a.constant for a in contents.function(artifact.entry).args]
        self._call = self.bound(memory)
        self._turns: Turns | None = None
        # Of the part that constants determine, which is in no time; 0 without one.
        self.prepare_seconds = prepared(self._call)

    def pinned(self) -> AbstractContextManager[None]:
        """Keep its threads on their CPUs inside the block."""
        return runtime.pinned(self._threads)

    def run(self, number: int = 1, *, flush: bool = False) -> float:
        """Seconds of ``number`` calls together; with ``flush`` of one call with cold caches."""
        if flush:
            self.flush(self._memory)
        elif self._turns is not None:
            return self._turns.time(number)
        return runtime.time_call(self._call, 1 if flush else number)

    def take_turns(self, nbytes: int) -> None:
        """Let the calls of `run` read constants from copies in turns, so many bytes together."""
        main = self._call.main
        if self._function.timer is not None or not isinstance(main, BoundCall):
            return
        places = self._constant_places()
        each = sum(main.arrays[n].nbytes for n in places)
        count = min(_MOST_COPIES, nbytes // each) if each else 0
        if count < 2:
            return
        arena, calls = Arena(), [main]
        for _ in range(count - 1):
            arrays = [arena.copy_of(x) if n in places else x for n, x in enumerate(main.arrays)]
            addresses = [x.ctypes.data for x in arrays]
            calls.append(BoundCall(main.function, arrays, addresses, None))
        self._turns = Turns(calls)

    def _constant_places(self) -> set[int]:
        """Positions, in the timed call, of constants and of arrays determined by them."""
        if self._parts is None:
            return {n for n, constant in enumerate(self._constants) if constant}
        read = self._parts.read_later
        places = {n for n, number in enumerate(read) if self._constants[number]}
        return places | set(range(len(read), len(read) + len(self._parts.kept)))

    def bound(self, memory: ArgumentMemory, workspace: Array | None = None) -> KernelCall:
        """A call on other arrays, with its own workspace of enough bytes, or an allocated one."""
        arrays = on_host(memory).arrays
        if self._parts is not None:
            return self._parts.bind(arrays, workspace)
        call = self._function.bind(*arrays)
        if workspace is None:
            return call
        return self._function.bound(arrays, workspace)

    def checked(self, memory: ArgumentMemory) -> KernelCall:
        """A call on arrays of `CpuHost.check_memory`, with its temporary memory there too."""
        if not isinstance(memory, PagedMemory):
            raise InternalError("a kernel of the CPU was to be checked in memory of a device")
        return self.bound(memory, memory.workspace)

    def flush(self, memory: ArgumentMemory) -> None:
        """Empty the caches for a call on these arrays."""
        flush(*on_host(memory).arrays)


def on_host(memory: ArgumentMemory) -> HostMemory:
    if not isinstance(memory, HostMemory):
        raise InternalError("a kernel of the CPU was to run on arrays of a device")
    return memory


#: Bytes of a workspace before a kernel runs: NaN as a float, -1 as an integer.
_FRESH = 0xFF


class PagedMemory(HostMemory):
    """Arrays in pages of their own, next to inaccessible memory, used for many checks.

    A kernel may assume that the elements of an array are aligned, and that its workspace lies at a
    multiple of 64 bytes; nothing more is granted, so that no error goes unnoticed.
    """

    def __init__(self, args: Sequence[Arg], workspace_bytes: int) -> None:
        super().__init__(args, [])
        self._memory = [GuardedMemory(arg.nbytes) for arg in args]
        self._space = GuardedMemory(workspace_bytes) if workspace_bytes else None
        self.workspace_bytes = workspace_bytes
        self.workspace: npt.NDArray[Any] | None = None

    def fits(self, args: Sequence[Arg], workspace_bytes: int) -> bool:
        return super().fits(args, workspace_bytes) and self.workspace_bytes == workspace_bytes

    def place(self, side: Side) -> None:
        self.arrays = [
            memory.place(arg.nbytes, side, arg.dtype.itemsize).view(arg.dtype).reshape(arg.shape)
            for memory, arg in zip(self._memory, self.args, strict=True)
        ]
        if self._space is not None:
            self.workspace = self._space.place(self.workspace_bytes, side, ALIGNMENT)
            self.workspace.fill(_FRESH)

    def written_outside(self) -> str | None:
        names = [arg.name for m, arg in zip(self._memory, self.args, strict=True) if not m.intact()]
        if self._space is not None and not self._space.intact():
            names.append("its workspace")
        return outside_text(names)


class CpuHost:
    """The CPU; pool and timing loop are compiled on creation, which no candidate pays for."""

    device_type = "cpu"

    def __init__(self) -> None:
        with runtime.pinned():
            flush(np.zeros(1))

    def memory(self, args: Sequence[Arg]) -> HostMemory:
        return GuardedHostMemory(args)

    def check_memory(self, args: Sequence[Arg], workspace_bytes: int) -> PagedMemory:
        return PagedMemory(args, workspace_bytes)

    def load(self, artifact: runtime.Artifact, memory: ArgumentMemory) -> CpuKernel:
        """Link a program and bind it to arrays, so that its next call takes its usual time."""
        return CpuKernel(artifact, on_host(memory))

    def probe(self) -> None: ...
