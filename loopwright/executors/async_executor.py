"""The asynchronous executor: steps that do not depend on each other run in parallel."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import product
from typing import Any, NamedTuple

from loopwright.errors import RunError
from loopwright.executors.call_sequence import ParallelRun, dependencies
from loopwright.executors.graph_executor import GraphExecutor
from loopwright.executors.program import Array, Program, Value
from loopwright.runtime import Extent, Module, ThreadPool, aligned_bytes


class _Borrowed(NamedTuple):
    """Arrays of the caller's that a run reads and writes until it has ended, by name."""

    run: Future[None]
    reads: Mapping[str, Extent]
    writes: Mapping[str, Extent]


_lock = threading.Lock()
#: Runs of all executors that had not ended when the last one began.
_borrowed: list[_Borrowed] = []


class AsyncGraphExecutor(GraphExecutor):
    """A graph executor whose steps run on worker threads, each as soon as it can.

    The caller is free meanwhile (`run_async`). A run as a whole takes longer than that of a
    `GraphExecutor`, since threads of Python cost microseconds for each step, and kernels with
    parallel loops get all threads one after the other; `GraphExecutor.run_side_by_side` makes
    branches faster.

    Args:
        program, kernels, constants: as of `GraphExecutor`.
        num_workers: worker threads; None: as many as parallel loops have.
        share_memory: values lie where the program puts them, and a step also waits for readers of
            the values that it overwrites. Without it each value has memory of its own: more memory,
            and no such waits.

    UsageError where the number of workers is out of range.

    Example:
        >>> x = lw.graph.var("x", (2, 4))
        >>> branches = [lw.graph.op.nn.softmax(x, axis=n) for n in (0, 1)]
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.add(*branches))
        >>> executor = lw.graph.compile(module, "llvm").async_executor(num_workers=2)
        >>> executor.run_async(x=np.zeros((2, 4), "float32")).result()
        >>> print(executor.get_output(0).numpy()[0])
        [0.75 0.75 0.75 0.75]
    """

    def __init__(
        self,
        program: Program,
        kernels: Mapping[str, Module],
        constants: Mapping[str, Array],
        num_workers: int | None = None,
        share_memory: bool = False,
    ) -> None:
        self._configure(program, num_workers, share_memory)
        super().__init__(program, kernels, constants)

    @classmethod
    def of(
        cls, other: GraphExecutor, num_workers: int | None = None, share_memory: bool = False
    ) -> AsyncGraphExecutor:
        """An executor of the program of another one, with its weights."""
        executor = cls.__new__(cls)
        executor._configure(other.program, num_workers, share_memory)
        executor._begin(other.program, other._kernels, other._weights, other._callees)
        return executor

    def _configure(self, program: Program, num_workers: int | None, share_memory: bool) -> None:
        self._workers = ThreadPool(num_workers, "loopwright-step")
        self._share_memory = share_memory
        self._order = dependencies(program.steps, program.values if share_memory else None)
        self._running: Future[None] | None = None

    def another(self) -> AsyncGraphExecutor:
        """The same model with workers and memory of its own; weights are shared."""
        return self.of(self, self._workers.num_threads, self._share_memory)

    def _memory(self) -> Any:
        return super()._memory() if self._share_memory else aligned_bytes(1)

    def _share_workspace(self, others: Sequence[Any] = ()) -> None:
        """Calls may run at the same time: each keeps its own."""

    def _array(self, number: int, v: Value) -> Any:
        if v.kind != "stored" or self._share_memory:
            return super()._array(number, v)
        return aligned_bytes(max(v.nbytes, 1))[: v.nbytes].view(v.dtype).reshape(v.shape)

    def run_async(self, **inputs: object) -> Future[None]:
        """Set inputs by name, and begin a run; inputs and outputs are left alone until its end.

        Returns:
            A future that is done when the run is; its ``result`` raises the error of a kernel.

        Raises:
            ArgumentError: as of `set_input`; nothing ran.
            RunError: the last run has not ended; or that of another executor, which writes an array
                of the caller's that this one has, or reads one that this one writes.
        """
        self._check_idle()
        if inputs:
            self.set_input(None, None, **inputs)
        if not (self._lent_inputs or self._lent_outputs):
            return self._begin_run()
        reads = {f"input {self.inputs[n].name!r}": a.extent for n, a in self._lent_inputs.items()}
        writes = {
            f"output {self.outputs[n].name!r}": a.extent for n, a in self._lent_outputs.items()
        }
        with _lock:
            _borrowed[:] = [other for other in _borrowed if not other.run.done()]
            for other in _borrowed:
                _check_apart(writes, {**other.reads, **other.writes})
                _check_apart(reads, other.writes)
            _borrowed.append(_Borrowed(self._begin_run(), reads, writes))
            return _borrowed[-1].run

    def _begin_run(self) -> Future[None]:
        self._running = ParallelRun(self._calls, self._order, self._workers).begin()
        return self._running

    def _check_idle(self) -> None:
        if self._running is not None and not self._running.done():
            raise RunError(
                "the last run has not ended; wait for its future before inputs and outputs are "
                "touched, or another run begins"
            )

    def _run(self) -> None:
        self.run_async().result()


def _check_apart(these: Mapping[str, Extent], those: Mapping[str, Extent]) -> None:
    for (one, a), (other, b) in product(these.items(), those.items()):
        if a.meets(b):
            raise RunError(
                f"run_async: {one} overlaps {other} of another executor, whose run has not ended; "
                "wait for its future, or pass another array"
            )
