"""Arrays of a runner's kernels, and the CPU as the processor that they run on.

A runner makes data, races kernels and checks them in one way everywhere. Where arrays lie and how
they are guarded, how kernels are loaded and timed, is here for CPUs and in ``device_kernels.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import runtime
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
    DeviceFunction,
    Function,
    GuardedMemory,
    Kernel,
    KernelCall,
    Parts,
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
    def bind(self, function: Kernel, parts: Parts | None) -> KernelCall:
        """A call of a function on these arrays, part by part where it has parts."""

    @abstractmethod
    def flush(self) -> None:
        """Empty the caches for a call on these arrays."""

    def guards(self) -> Iterator[tuple[str, Array, int]]:
        """Names of arrays with the bytes of a guard zone beside them, and its pattern."""
        return iter(())

    def written_outside(self) -> str | None:
        """One line about a write beside an array, or None."""
        names = [name for name, zone, pattern in self.guards() if (zone != pattern).any()]
        return outside_text(list(dict.fromkeys(names)))

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
        self.workspace: npt.NDArray[Any] | None = None  # of a call; None: one of its own

    def bind(self, function: Kernel, parts: Parts | None) -> KernelCall:
        if parts is not None:
            return parts.bind(self.arrays, self.workspace)
        call = function.bind(*self.arrays)
        if self.workspace is None:
            return call
        assert isinstance(function, Function)
        return function.bound(self.arrays, self.workspace)

    def flush(self) -> None:
        flush(*self.arrays)

    def read(self, number: int) -> Array:
        return self.arrays[number]

    def write(self, number: int, data: Array) -> None:
        np.copyto(self.arrays[number], data)

    def poison(self, number: int, pattern: int) -> None:
        poison(self.arrays[number], pattern)

    def set_element(self, number: int, at: int, data: Array) -> None:
        self.arrays[number].reshape(-1)[at] = data.reshape(-1)[at]

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

    def guards(self) -> Iterator[tuple[str, Array, int]]:
        for n, (arg, zones) in enumerate(zip(self.args, self._zones, strict=True)):
            yield from ((arg.name, zone, guard_pattern(n)) for zone in zones)


class LoadedKernel:
    """A program that is linked and bound to arrays, so that its next call takes its usual time."""

    workspace_bytes = 0  # that the caller lends for a call

    def __init__(self, artifact: runtime.Artifact, memory: ArgumentMemory) -> None:
        module = runtime.Module(artifact)
        function = module.get_function(artifact.entry)
        assert isinstance(function, Function | DeviceFunction)  # tuning needs sizes that are known
        self.function, self.parts = function, module.parts()
        self.memory, self.call = memory, self.bound(memory)
        #: Seconds of the part that constants determine, which is in no time; 0 without one.
        self.prepare_seconds = 0.0

    def bound(self, memory: ArgumentMemory) -> KernelCall:
        """A call on other arrays."""
        return memory.bind(self.function, self.parts)

    def pinned(self) -> AbstractContextManager[None]:
        """Keep its threads on their CPUs inside the block."""
        return nullcontext()

    def take_turns(self, nbytes: int) -> None:
        """Let calls of `run` read copies of constants in turns, so many bytes; on CPUs alone."""

    def run(self, number: int = 1, *, flush: bool = False) -> float:
        """Seconds of ``number`` calls together; with ``flush`` of one call with cold caches."""
        if flush:
            self.memory.flush()
        return runtime.time_call(self.call, 1 if flush else number)


class CpuKernel(LoadedKernel):
    def __init__(self, artifact: runtime.Artifact, memory: ArgumentMemory) -> None:
        needs = artifact_kind(artifact.kind).needs
        if needs:
            import_module(needs)  # it registers how such a program is linked
        super().__init__(artifact, memory)
        assert isinstance(self.function, Function)
        self.workspace_bytes = self.function.workspace_bytes
        entry = artifact.contents.function(artifact.entry)
        self._threads = artifact.contents.num_threads or None if entry.uses_pool else 1
        self._constants = [a.constant for a in entry.args]
        self._turns: Turns | None = None
        self.prepare_seconds = prepared(self.call)

    def pinned(self) -> AbstractContextManager[None]:
        return runtime.pinned(self._threads)

    def run(self, number: int = 1, *, flush: bool = False) -> float:
        if self._turns is not None and not flush:
            return self._turns.time(number)
        return super().run(number, flush=flush)

    def take_turns(self, nbytes: int) -> None:
        main = self.call.main
        assert isinstance(self.function, Function)
        if self.function.timer is not None or not isinstance(main, BoundCall):
            return
        # Positions, in the timed call, of constants and of arrays determined by them.
        places = {n for n, constant in enumerate(self._constants) if constant}
        if self.parts is not None:
            read, kept = self.parts.read_later, len(self.parts.kept)
            places = {n for n, number in enumerate(read) if self._constants[number]}
            places |= set(range(len(read), len(read) + kept))
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
        return CpuKernel(artifact, memory)

    def probe(self) -> None: ...
