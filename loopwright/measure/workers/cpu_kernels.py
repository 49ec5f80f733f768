"""Kernels on the CPU: arrays between guard zones, and for checks next to inaccessible memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import runtime
from loopwright.errors import InternalError
from loopwright.measure.comparison import Array, poison
from loopwright.measure.workers.kernel_host import (
    ArgumentMemory,
    KernelHost,
    LoadedKernel,
    guard_pattern,
    outside_text,
    prepared,
)
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


class GuardedArray:
    def __init__(self, arg: Arg, number: int) -> None:
        self.name = arg.name
        self._pattern = guard_pattern(number)
        nbytes = arg.nbytes
        block = np.empty(nbytes + 2 * _GUARD + ALIGNMENT, dtype=np.uint8)
        start = -(block.ctypes.data + _GUARD) % ALIGNMENT
        self._before = block[start : start + _GUARD]
        self._after = block[start + _GUARD + nbytes : start + 2 * _GUARD + nbytes]
        self._before.fill(self._pattern)
        self._after.fill(self._pattern)
        body = block[start + _GUARD : start + _GUARD + nbytes]
        self.array: Array = body.view(arg.dtype).reshape(arg.shape)

    def intact(self) -> bool:
        return bool((self._before == self._pattern).all() and (self._after == self._pattern).all())


class GuardedHostMemory(HostMemory):
    """NumPy arrays with guard zones on both sides of each."""

    def __init__(self, args: Sequence[Arg]) -> None:
        self._guarded = [GuardedArray(arg, n) for n, arg in enumerate(args)]
        super().__init__(args, [g.array for g in self._guarded])

    def written_outside(self) -> str | None:
        return outside_text([g.name for g in self._guarded if not g.intact()])


class CpuKernel(LoadedKernel):
    """A function of machine code, or one of another executor on the CPU."""

    def __init__(self, artifact: runtime.Artifact, memory: HostMemory) -> None:
        needs = artifact_kind(artifact.kind).needs
        if needs:
            import_module(needs)  # it registers how such a program is linked

        module = runtime.Module(artifact)
        function = module.get_function(artifact.entry)
        assert isinstance(function, Function)  # tuning needs sizes that are known
        self._function, self._parts = function, module.parts()
        self.workspace_bytes = function.workspace_bytes
        contents = artifact.contents
        uses_pool = contents.function(artifact.entry).uses_pool
        self._threads = contents.num_threads or None if uses_pool else 1
        self._memory = memory
        self._constants = [a.constant for a in contents.function(artifact.entry).args]
        self._call = self.bound(memory)
        self._turns: Turns | None = None
        self.prepare_seconds = prepared(self._call)

    def pinned(self) -> AbstractContextManager[None]:
        return runtime.pinned(self._threads)

    def run(self, number: int = 1, *, flush: bool = False) -> float:
        if flush:
            self.flush(self._memory)
        elif self._turns is not None:
            return self._turns.time(number)
        return runtime.time_call(self._call, 1 if flush else number)

    def take_turns(self, nbytes: int) -> None:
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
        if not isinstance(memory, PagedMemory):
            raise InternalError("a kernel of the CPU was to be checked in memory of a device")
        return self.bound(memory, memory.workspace)

    def flush(self, memory: ArgumentMemory) -> None:
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


class CpuHost(KernelHost):
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
        return CpuKernel(artifact, on_host(memory))

    def probe(self) -> None: ...
