"""Where kernels are checked: each array, and the workspace, lies against memory without access."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from loopwright.measure.checking.check import Array
from loopwright.runtime import Arg
from loopwright.runtime.guarded_memory import GuardedMemory, Side
from loopwright.runtime.ndarray import ALIGNMENT

#: What a workspace holds before a kernel runs: NaN as a float, -1 as an integer.
_FRESH = 0xFF


class CheckMemory:
    """Arrays for the arguments of a kernel in pages of their own, used for many checks.

    A kernel may assume of an array that its elements are aligned, and of its workspace that it
    lies at a multiple of 64 bytes; nothing more is granted, so that no slip goes unnoticed.

    Args:
        args: the arguments.
        workspace_bytes: of a call; 0 for none.

    Attributes:
        args: the arguments.
        arrays: one for each argument, once they are placed.
        workspace: None where the kernel has none.

    Raises:
        MemoryError: there is no room.
    """

    def __init__(self, args: Sequence[Arg], workspace_bytes: int) -> None:
        self.args = tuple(args)
        self._memory = [GuardedMemory(arg.nbytes) for arg in args]
        self._space = GuardedMemory(workspace_bytes) if workspace_bytes else None
        self._workspace_bytes = workspace_bytes
        self.arrays: list[Array] = []
        self.workspace: npt.NDArray[Any] | None = None

    def fits(self, args: Sequence[Arg], workspace_bytes: int) -> bool:
        """Whether it was made for these arguments."""
        return self.args == tuple(args) and self._workspace_bytes == workspace_bytes

    def place(self, side: Side) -> None:
        """Let all arrays lie against one of their edges; what they held is lost."""
        self.arrays = [
            memory.place(arg.nbytes, side, arg.dtype.itemsize).view(arg.dtype).reshape(arg.shape)
            for memory, arg in zip(self._memory, self.args, strict=True)
        ]
        if self._space is not None:
            self.workspace = self._space.place(self._workspace_bytes, side, ALIGNMENT)
            self.workspace.fill(_FRESH)

    def written_outside(self) -> str | None:
        """One line about a write between an array and the edge of a page, or None."""
        names = [arg.name for m, arg in zip(self._memory, self.args, strict=True) if not m.intact()]
        if self._space is not None and not self._space.intact():
            names.append("its workspace")
        return f"it wrote outside the memory of {', '.join(names)}" if names else None
