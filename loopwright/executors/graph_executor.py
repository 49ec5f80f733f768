"""The graph executor: runs kernels one after the other over statically planned memory.

Each kernel is bound once to the arrays that it works on, so that a run only calls the kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from loopwright.errors import ArgumentError, did_you_mean
from loopwright.executors.call_sequence import in_one_piece, independent_runs, sequence
from loopwright.executors.callees import Callee, HostStep, SharedArrays, callees, seconds_of
from loopwright.executors.executor import Executor, fitted, weights_of
from loopwright.executors.program import Array, Program, Value
from loopwright.executors.whole_program import WholeProgram, whole_program
from loopwright.runtime import BoundCall, Module, aligned_bytes, decoded, load_params, save_params


class GraphExecutor(Executor):
    """A program of kernels, ready to run; named after TVM's, whose methods it has.

    Args:
        program: its kernels and values.
        kernels: by name; Python functions among them. Stages that depend on constants alone are
            computed now, once.
        constants: by the names of the program's values; they are taken over.
        shared: arrays that are kept once for several programs; None: arrays computed from
            constants belong to this executor and those that share its weights.
        in_place: names of the constants that kernels read without a copy: a change of their
            elements counts in the next run, except for arrays computed from them.

    Attributes:
        program: as given.

    Raises:
        ArgumentError: a kernel or a constant is missing, or has another shape or dtype.

    Example:
        >>> from loopwright.executors import GraphExecutor, Program, Step, Value
        >>> A = te.placeholder((4,), name="A")
        >>> double = lw.build([A, te.compute((4,), lambda i: A[i] * 2, name="B")], "llvm")
        >>> x, y = Value("x", (4,), "float32", "input"), Value("y", (4,), "float32", "stored")
        >>> program = Program((x, y), (Step("double", (0, 1)),), (0,), (1,), 64)
        >>> executor = GraphExecutor(program, {"double": double}, {})
        >>> executor.run(x=np.ones(4, "float32"))
        >>> print(executor.get_output(0).numpy())
        [2. 2. 2. 2.]
    """

    #: The weights on the device of a `DeviceGraphExecutor`.
    _there: object = None

    def __init__(
        self,
        program: Program,
        kernels: Mapping[str, Module | HostStep],
        constants: Mapping[str, Array],
        shared: SharedArrays | None = None,
        in_place: Collection[str] = (),
    ) -> None:
        weights = weights_of(program, constants)
        live = {n for n in weights if program.values[n].name in in_place}
        called = callees(program.steps, kernels, weights, shared=shared, in_place=live)
        self._begin(program, kernels, weights, called)

    def _begin(
        self,
        program: Program,
        kernels: Mapping[str, Module | HostStep],
        weights: Mapping[int, Array],
        called: Sequence[Callee],
    ) -> None:
        slots, alone = (program.inputs, program.outputs), program.outputs_alone
        super().__init__(program.input_values, program.output_values, slots, alone)
        self.program, self._kernels = program, kernels
        self._weights, self._callees = weights, called
        self._pool = self._memory()
        self._arrays: list[Any] = [self._array(n, v) for n, v in enumerate(program.values)]
        self._room = aligned_bytes(0)
        self._calls = [*map(self._bound, called)]
        self._groups: tuple[range, ...] = ()
        self._share_workspace()
        self._sequence: Callable[[], None] | None = None

    def another(self) -> GraphExecutor:
        """The same model with inputs, outputs and memory of its own, to run beside this one.

        Weights and arrays computed from them are shared, so creating it costs little.
        """
        return GraphExecutor.of_size(self, self.program)

    def of_size(self, program: Program) -> GraphExecutor:
        """An executor of the same kernels and weights, on values of other shapes, where kernels
        take any size; ArgumentError where one does not take these.
        """
        executor = GraphExecutor.__new__(GraphExecutor)
        executor._begin(program, self._kernels, self._weights, self._callees)
        return executor

    def _memory(self) -> Any:
        return aligned_bytes(max(self.program.pool_bytes, 1))

    def _share_workspace(self, others: Sequence[Any] = ()) -> None:
        """Let steps and ``others``, which never run together, share one (cached) workspace."""
        steps = [c for n, c in enumerate(self._calls) if not any(n in g for g in self._groups)]
        calls = [c for c in (*steps, *others) if isinstance(c, BoundCall) and c.workspace_bytes]
        most = max((call.workspace_bytes for call in calls), default=0)
        if most > len(self._room):
            self._room = aligned_bytes(most)
        for call in calls:
            call.use_workspace(self._room)

    def _array(self, number: int, v: Value) -> Any:
        if v.kind == "stored":
            part = self._pool[v.offset : v.offset + v.nbytes]
            return part.view(v.dtype).reshape(v.shape)
        return np.zeros(v.shape, v.dtype) if v.kind == "input" else self._weights[number]

    def _bound(self, callee: Callee) -> Any:
        return callee.function.bind(*(self._arrays[n] for n in callee.rest))

    def _constants(self) -> Iterable[tuple[str, Any]]:
        return ((self.program.values[n].name, a) for n, a in self._weights.items())

    def _replace(self, slot: int, elements: Any) -> None:
        touched = [n for n, step in enumerate(self.program.steps) if slot in step.args]
        before, self._arrays[slot] = self._arrays[slot], elements
        try:
            self._bind_again(touched)
        except ArgumentError:
            self._arrays[slot] = before
            raise

    def _bind_again(self, steps: Sequence[int]) -> None:
        bound = [self._bound(self._callees[n]) for n in steps]
        for n, call in zip(steps, bound, strict=True):
            self._calls[n] = call
        self._share_workspace()
        self._sequence = None

    def save_params(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the weights to a safetensors file, by the names that the program gives them.

        These are the weights as the kernels take them, after graph passes: a convolution's, say,
        are multiplied by the factors of a folded batch normalisation. RunError where the file
        cannot be written, UsageError where another file is there and `force` is false.
        """
        values = self.program.values
        weights = {values[n].name: a for n, a in self._weights.items()}
        return save_params(path, weights, force=force)

    def load_params(self, params: bytes | str | os.PathLike[str] | Mapping[str, Array]) -> None:
        """Set weights, and inputs, by name; weights that kernels pack are packed again.

        ``params`` is a safetensors file, its bytes, or arrays by name; weights that it does not
        name stay. Executors that shared weights with this one keep theirs.

        Raises:
            ArgumentError: the model has no weight and no input of a name, or an array has another
                shape or dtype; nothing was changed.
            UsageError: the file is missing, or damaged.
        """
        values = self.program.values
        numbers = {values[n].name: n for n in self._weights}
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
            numbers[name]: np.array(fitted(values[numbers[name]], a), order="C")
            for name, a in arrays.items()
            if name in numbers
        }
        self.set_input(None, None, **{n: a for n, a in arrays.items() if n not in numbers})
        self._set_weights({**self._weights, **fresh}, fresh)

    def share_params(self, other: GraphExecutor) -> None:
        """Use the weights of another executor of this program, and arrays computed from them,
        without a copy; ArgumentError where its program is another one.
        """
        if other.program != self.program:
            raise ArgumentError("share_params: the other executor runs another program")
        self._check_idle()
        for place, lent in self._lent_outputs.items():
            self._check_apart(place, lent.extent, other._read_always())
        self._taken, self._there = other._taken, other._there
        # All: kernels of one name may come from another build there.
        self._take(other._weights, other._callees, other._weights, range(len(self._calls)))

    def _set_weights(self, weights: Mapping[int, Array], changed: Mapping[int, Array]) -> None:
        """Use other weights; the steps that read a changed one are prepared again."""
        args = self.program.steps, self._kernels, weights
        called = callees(*args, before=self._callees, changed=changed)
        self._taken = None
        steps = enumerate(self.program.steps)
        touched = [n for n, step in steps if not set(step.args).isdisjoint(changed)]
        self._take(weights, called, changed, touched)

    def _take(
        self,
        weights: Mapping[int, Array],
        called: Sequence[Callee],
        changed: Collection[int],
        steps: Sequence[int],
    ) -> None:
        """Use weights and the callees that are prepared for them; bind these steps again."""
        self._weights, self._callees = weights, called
        for n in changed:
            self._arrays[n] = self._array(n, self.program.values[n])
        self._bind_again(steps)

    def whole_program(self, name: str) -> WholeProgram:
        """The program as one function with the weights as they are now."""
        return whole_program(name, self.program, self._kernels, self._callees, self._weights)

    def _run(self) -> None:
        if self._sequence is None:
            self._sequence = sequence(self._calls, self._groups)
        self._sequence()

    def seconds_of_steps(self) -> list[float]:
        """Run once, waiting for each step; the seconds of each, with the host's part."""
        return [seconds_of(call, 1, self.sync) for call in self._calls]

    def run_side_by_side(self, number: int = 20, gain: float = 0.05) -> tuple[tuple[str, ...], ...]:
        """Find calls that are faster in parallel than one after the other, and run them so.

        Adjacent calls that do not depend on each other, such as the branches of a model, are timed
        both ways: one after the other, each with all threads, and in parallel, each on one thread
        of the pool of parallel loops. Memory stays as it is planned. It pays for kernels that are
        too small for several threads, or built for one. The result holds for this executor; where
        calls are a loop in Python it finds nothing.

        Args:
            number: runs of each group in a sample; the medians of 5 samples are compared.
            gain: fraction of its time that a group must save.

        Returns:
            The kernels of each group that runs in parallel.
        """
        self._run()
        groups = independent_runs(self.program.steps, self.program.values)
        candidates = groups if in_one_piece(self._calls) else []
        taken = []
        for group in candidates:
            # Each with a workspace of its own.
            apart = [self._bound(self._callees[n]) for n in group]
            if _faster_together(apart, number, gain):
                self._calls[group.start : group.stop] = apart
                taken.append(group)
        self._groups = tuple(taken)
        self._sequence = None
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
