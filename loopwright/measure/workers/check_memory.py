"""Memory for checks of CPU kernels: each array, and the workspace, adjoins inaccessible memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from loopwright.errors import InternalError
from loopwright.measure.workers.array_bytes import outside_text
from loopwright.measure.workers.cpu_kernels import CpuKernel, HostMemory
from loopwright.measure.workers.kernel_host import CheckMemory, LoadedKernel
from loopwright.runtime import Arg
from loopwright.runtime.arrays.host import ALIGNMENT
from loopwright.runtime.guarded_memory import GuardedMemory, Side
from loopwright.runtime.kernels.kernel import KernelCall

#: Bytes of a workspace before a kernel runs: NaN as a float, -1 as an integer.
_FRESH = 0xFF


class PagedMemory(HostMemory):
    """Arrays in pages of their own, next to inaccessible memory."""

    def __init__(self, args: Sequence[Arg], workspace_bytes: int) -> None:
        super().__init__(args, [])
        self._memory = [GuardedMemory(arg.nbytes) for arg in args]
        self._space = GuardedMemory(workspace_bytes) if workspace_bytes else None
        self.workspace_bytes = workspace_bytes
        self.workspace: npt.NDArray[Any] | None = None

    def place(self, side: Side) -> None:
        """Move all arrays to one of their edges; their contents are lost."""
        self.arrays = [
            memory.place(arg.nbytes, side, arg.dtype.itemsize).view(arg.dtype).reshape(arg.shape)
            for memory, arg in zip(self._memory, self.args, strict=True)
        ]
        if self._space is not None:
            self.workspace = self._space.place(self.workspace_bytes, side, ALIGNMENT)
            self.workspace.fill(_FRESH)

    def written_outside(self) -> str | None:
        """One line about a write between an array and the edge of a page, or None."""
        names = [arg.name for m, arg in zip(self._memory, self.args, strict=True) if not m.intact()]
        if self._space is not None and not self._space.intact():
            names.append("its workspace")
        return outside_text(names)


class PagedCheckMemory(CheckMemory):
    """Arrays for the arguments of a kernel in pages of their own, used for many checks.

    A kernel may assume that the elements of an array are aligned, and that its workspace lies at a
    multiple of 64 bytes; nothing more is granted, so that no error goes unnoticed.
    """

    def __init__(self, args: Sequence[Arg], workspace_bytes: int) -> None:
        self.memory: PagedMemory = PagedMemory(args, workspace_bytes)

    def fits(self, args: Sequence[Arg], workspace_bytes: int) -> bool:
        return self.memory.args == tuple(args) and self.memory.workspace_bytes == workspace_bytes

    def place(self, side: Side) -> None:
        self.memory.place(side)

    def bound(self, kernel: LoadedKernel) -> KernelCall:
        if not isinstance(kernel, CpuKernel):
            raise InternalError("a kernel of a device was to be checked in memory of the CPU")
        return kernel.bound(self.memory, self.memory.workspace)
