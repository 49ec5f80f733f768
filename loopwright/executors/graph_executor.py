"""The graph executor: runs kernels one after the other over statically planned memory, or, where
it is asynchronous, steps that do not depend on each other in parallel.

Each kernel is bound once to the arrays that it works on, so that a run only calls the kernels.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

import numpy as np

from loopwright.errors import ArgumentError, RunError, did_you_mean
from loopwright.executors.callees import (
    HostStep,
    ParallelRun,
    SharedArrays,
    dependencies,
    in_one_piece,
    independent_runs,
    seconds_of,
    sequence,
)
from loopwright.executors.executor import Executor
from loopwright.executors.places import HostPlace, PlacedProgram, host_program
from loopwright.executors.program import Array, Program
from loopwright.executors.whole_program import WholeProgram, whole_program
from loopwright.runtime import Extent, Module, ThreadPool, decoded, load_params, save_params


class GraphExecutor(Executor):
    """A program of kernels, ready to run; named after TVM's, whose methods it has; ArgumentError
    where a kernel or a constant is missing, or has another shape or dtype.

    Args:
        kernels: by name; Python functions among them. Stages that depend on constants alone are
            computed now, once.
        constants: by the names of the program's values; they are taken over.
        shared: arrays that are kept once for several programs; None: arrays computed from
            constants belong to this executor and those that share its weights.
        in_place: names of the constants that kernels read without a copy: a change of their
            elements counts in the next run, except for arrays computed from them.

    Example:
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(lw.graph.var("x", (2,))))
        >>> model = lw.graph.compile(module, "llvm")
        >>> executor = lw.executors.GraphExecutor(model.program, model.kernels, model.constants)
        >>> executor.run(x=np.array([1, -1], "float32"))
        >>> print(executor.get_output(0).numpy())
        [1. 0.]
    """

    def __init__(
        self,
        program: Program,
        kernels: Mapping[str, Module | HostStep],
        constants: Mapping[str, Array],
        shared: SharedArrays | None = None,
        in_place: Collection[str] = (),
    ) -> None:
        self._begin(host_program(program, kernels, constants, shared, in_place))

    @property
    def program(self) -> Program:
        """The program that it runs."""
        return self._placed.program

    def another(self) -> GraphExecutor:
        """The same model with memory of its own, to run beside this one: weights and arrays
        computed from them are shared, so creating it costs little.
        """
        return GraphExecutor._over(self._placed)

    def of_size(self, program: Program) -> GraphExecutor:
        """An executor of the same kernels and weights, on values of other shapes, where kernels
        take any size; ArgumentError where one does not take these.
        """
        return GraphExecutor._over(replace(self._placed, program=program))

    def save_params(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the weights to a safetensors file, by the names that the program gives them.

        These are the weights as the kernels take them, after graph passes: a convolution's, say,
        are multiplied by the factors of a folded batch normalisation. RunError where the file
        cannot be written, UsageError where another file is there and `force` is false.
        """
        values = self.program.values
        weights = {values[n].name: a for n, a in self._placed.constants.items()}
        return save_params(path, weights, force=force)

    def load_params(self, params: bytes | str | os.PathLike[str] | Mapping[str, Array]) -> None:
        """Set weights, and inputs, by name; weights that kernels pack are packed again.

        ``params`` is a safetensors file, its bytes, or arrays by name; weights that it does not
        name stay. Executors that shared weights with this one keep theirs. ArgumentError where an
        array fits no weight and no input: nothing was changed; UsageError for an unreadable file.
        """
        values = self.program.values
        numbers = {values[n].name: n for n in self._placed.constants}
        if isinstance(params, Mapping):
            arrays: Mapping[str, Any] = params
        elif isinstance(params, bytes | bytearray):
            arrays = decoded(bytes(params), Path("the parameters"))
        else:
            arrays = load_params(params)
        unknown = [n for n in arrays if n not in numbers and self.get_input_index(n) < 0]
        if unknown:
            raise ArgumentError(
                f"the model has no weight and no input {unknown[0]!r}"
                f"{did_you_mean(unknown[0], [*numbers, *self.get_input_info()[0]])}"
            )
        fresh = {
            numbers[name]: np.array(HostPlace().fitted(values[numbers[name]], a), order="C")
            for name, a in arrays.items()
            if name in numbers
        }
        self.set_input(None, None, **{n: a for n, a in arrays.items() if n not in numbers})
        if fresh:
            steps = enumerate(self.program.steps)
            touched = [n for n, step in steps if not fresh.keys().isdisjoint(step.args)]
            self._use(self._placed.with_constants(fresh), touched)

    def share_params(self, other: GraphExecutor) -> None:
        """Use the weights of another executor of this program, and arrays computed from them,
        without a copy; ArgumentError where its program, or its device, is another one.
        """
        place = self._placed.place
        if other._placed.place != place:
            raise ArgumentError(f"share_params: the other executor does not run on {place.device}")
        if other.program != self.program:
            raise ArgumentError("share_params: the other executor runs another program")
        self._check_idle()
        for number, lent in self._lent_outputs.items():
            self._check_apart(number, lent.extent, other._placed.taken)
        # All: kernels of one name may come from another build there.
        self._use(other._placed, range(len(self._calls)))

    def whole_program(self, name: str) -> WholeProgram:
        """The program as one function with the weights as they are now."""
        return whole_program(name, self._placed)

    def seconds_of_steps(self) -> list[float]:
        """Run once, waiting for each step; the seconds of each, with the host's part."""
        return [seconds_of(call, 1, self.sync) for call in self._calls]

    def run_side_by_side(self, number: int = 20, gain: float = 0.05) -> tuple[tuple[str, ...], ...]:
        """Find calls that are faster in parallel than one after the other, and run them so.

        Adjacent calls that do not depend on each other, such as the branches of a model, are timed
        both ways: one after the other, each with all threads, and in parallel, each on one thread
        of the pool of parallel loops. Memory stays as it is planned. It pays for kernels that are
        too small for several threads, or built for one. The result holds for this executor; where
        calls are a loop in Python it finds nothing. Returns the kernels of each group.

        Args:
            number: runs of each group in a sample; the medians of 5 samples are compared.
            gain: fraction of its time that a group must save.
        """
        self._run()
        groups = independent_runs(self.program.steps, self.program.values)
        candidates = groups if in_one_piece(self._calls) else []
        taken = []
        for group in candidates:
            # Each with a workspace of its own.
            apart = [self._bound(self._placed.callees[n]) for n in group]
            if _faster_together(apart, number, gain):
                self._calls[group.start : group.stop] = apart
                taken.append(group)
        self._groups = tuple(taken)
        self._calls_changed()
        return tuple(tuple(self.program.steps[n].kernel for n in g) for g in self._groups)


def _faster_together(calls: Sequence[Any], number: int, gain: float) -> bool:
    ways = sequence(calls), sequence(calls, [range(len(calls))])
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(5):
        for run, times in zip(ways, samples, strict=True):
            run()
            times.append(seconds_of(run, number))
    apart, together = map(median, samples)
    return together < apart * (1 - gain)


class _Borrowed(NamedTuple):
    """Arrays of the caller's that a run reads and writes until it has ended, by name."""

    run: Future[None]
    reads: Mapping[str, Extent]
    writes: Mapping[str, Extent]


_lock = threading.Lock()
_borrowed: list[_Borrowed] = []  # runs of all executors that had not ended when the last one began


class AsyncGraphExecutor(GraphExecutor):
    """A graph executor whose steps run on worker threads, each as soon as it can.

    The caller is free meanwhile (`run_async`). A run as a whole takes longer than that of a
    `GraphExecutor`, since threads of Python cost microseconds for each step, and kernels with
    parallel loops get all threads one after the other; `GraphExecutor.run_side_by_side` makes
    branches faster.

    Args:
        num_workers: worker threads, 1 to 1023, else UsageError; None: those of parallel loops.
        share_memory: values lie where the program puts them, and a step also waits for readers of
            the values that it overwrites. Without it each value has memory of its own: more memory,
            and no such waits.

    Example:
        >>> x = lw.graph.var("x", (2, 4))
        >>> branches = [lw.graph.op.nn.softmax(x, axis=n) for n in (0, 1)]
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.add(*branches))
        >>> executor = lw.graph.compile(module, "llvm").async_executor(num_workers=2)
        >>> executor.run_async(x=np.zeros((2, 4), "float32")).result()
        >>> print(executor.get_output(0).numpy()[0])
        [0.75 0.75 0.75 0.75]
    """

    _parallel = True

    def __init__(
        self,
        program: Program,
        kernels: Mapping[str, Module],
        constants: Mapping[str, Array],
        num_workers: int | None = None,
        share_memory: bool = False,
    ) -> None:
        self._begin(host_program(program, kernels, constants), num_workers, share_memory)

    @classmethod
    def _over(
        cls, placed: PlacedProgram, num_workers: int | None = None, share_memory: bool = False
    ) -> Self:
        executor = cls.__new__(cls)
        executor._begin(placed, num_workers, share_memory)
        return executor

    @classmethod
    def of(
        cls, other: GraphExecutor, num_workers: int | None = None, share_memory: bool = False
    ) -> AsyncGraphExecutor:
        """An executor of the program of another one, with its weights."""
        return cls._over(other._placed, num_workers, share_memory)

    def _begin(
        self, placed: PlacedProgram, num_workers: int | None = None, share_memory: bool = False
    ) -> None:
        program, self._apart = placed.program, not share_memory
        self._workers = ThreadPool(num_workers, "loopwright-step")
        self._order = dependencies(program.steps, program.values if share_memory else None)
        self._running: Future[None] | None = None
        super()._begin(placed)

    def another(self) -> AsyncGraphExecutor:
        """The same model with workers and memory of its own; weights are shared."""
        return self._over(self._placed, self._workers.num_threads, not self._apart)

    def run_async(self, **inputs: object) -> Future[None]:
        """Set inputs by name, and begin a run; inputs and outputs are left alone until its end. The
        ``result`` of the future that is returned raises the error of a kernel.

        RunError where the last run has not ended; or that of another executor, which writes an
        array of the caller's that this one has, or reads one that this one writes.
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
