"""A linked candidate in a runner process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module

from loopwright import runtime
from loopwright.measure.checking.check import Array
from loopwright.runtime import timing
from loopwright.runtime.artifacts.kinds import artifact_kind
from loopwright.runtime.function import BoundCall, Function


class LoadedKernel:
    """One linked candidate, bound to the arrays that it is timed on.

    Attributes:
        function: the compiled function.
    """

    function: Function

    def __init__(self, artifact: runtime.Artifact, arrays: Sequence[Array]) -> None:
        needs = artifact_kind(artifact.kind).needs
        if needs:
            import_module(needs)  # it registers how such a program is linked

        function = runtime.Module(artifact).get_function(artifact.entry)
        assert isinstance(function, Function)  # tuning needs sizes that are known
        self.function = function
        contents = artifact.contents
        uses_pool = contents.function(artifact.entry).uses_pool
        self._threads = contents.num_threads or None if uses_pool else 1
        self._call = self.function.bind(*arrays)
        self._arrays = arrays

    def pinned(self) -> AbstractContextManager[None]:
        """Its threads stay on their CPUs inside the block."""
        return runtime.pinned(self._threads)

    def run(self, number: int = 1, *, flush: bool = False) -> float:
        """Seconds of ``number`` calls together; with ``flush`` of one call with cold caches."""
        if flush:
            timing.flush(*self._arrays)
        return runtime.time_call(self._call, 1 if flush else number)

    def bound(self, arrays: Sequence[Array], workspace: Array | None = None) -> BoundCall:
        """A call on other arrays, with a workspace of their own where it is given.

        Args:
            arrays: one for each argument.
            workspace: at least as many bytes as the function needs; None: one is allocated.
        """
        call = self.function.bind(*arrays)
        if workspace is None:
            return call
        addresses = [a.ctypes.data for a in arrays]
        return BoundCall(self.function, arrays, addresses, workspace)
