"""The graph executor: kernels one after the other, over memory that is shared out beforehand.

Named after TVM's, whose methods it has. Each kernel is bound once to the arrays that it works on,
so that a run is a call of each and nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import ArgumentError, did_you_mean
from loopwright.runtime.arrays.host import aligned_bytes
from loopwright.runtime.executors.batches.shared_arrays import SharedArrays
from loopwright.runtime.executors.callees import Callee, callees
from loopwright.runtime.executors.dependencies import independent_runs
from loopwright.runtime.executors.executor import Executor, fitted, seconds_of
from loopwright.runtime.executors.host_step import HostStep
from loopwright.runtime.executors.program import Program, Value
from loopwright.runtime.executors.sequence import in_one_piece, sequence
from loopwright.runtime.executors.whole_program import WholeProgram, whole_program
from loopwright.runtime.function import BoundCall
from loopwright.runtime.module import Module
from loopwright.runtime.params import decoded, load_params, save_params

Array = npt.NDArray[Any]


class GraphExecutor(Executor):
    """A model, ready to run.

    Args:
        program: its kernels and values.
        kernels: by name; Python functions among them. What an argument that is constant leads to is
            computed now, once.
        constants: by the names of the program's values; they are taken over.
        shared: arrays that are kept once for several programs; None: what is computed from
            constants is this executor's alone, and of those that share its weights.
        in_place: names of the constants that kernels read where they lie, in place of copies: a
            change of their elements counts in the next run, but for what was computed from them.

    Attributes:
        program: as given.

    Raises:
        ArgumentError: a kernel or a constant is missing, or has another shape or dtype.

    Example:
        >>> from loopwright.runtime.executors import GraphExecutor, Program, Step, Value
        >>> A = te.placeholder((4,), name="A")
        >>> double = lw.build([A, te.compute((4,), lambda i: A[i] * 2, name="B")], "llvm")
        >>> x, y = Value("x", (4,), "float32", "input"), Value("y", (4,), "float32", "stored")
        >>> program = Program((x, y), (Step("double", (0, 1)),), (0,), (1,), 64)
        >>> executor = GraphExecutor(program, {"double": double}, {})
        >>> executor.run(x=np.ones(4, "float32"))
        >>> print(executor.get_output(0).numpy())
        [2. 2. 2. 2.]
    """

    def __init__(
        self,
        program: Program,
        kernels: Mapping[str, Module | HostStep],
        constants: Mapping[str, Array],
        shared: SharedArrays | None = None,
        in_place: Collection[str] = (),
    ) -> None:
        numbers = [n for n, v in enumerate(program.values) if v.kind == "constant"]
        weights = {n: weight_of(program.values[n], constants) for n in numbers}
        live = {n for n in numbers if program.values[n].name in in_place}
        called = callees(program.steps, kernels, weights, shared=shared, in_place=live)
        self._begin(program, kernels, weights, called)

    def _begin(
        self,
        program: Program,
        kernels: Mapping[str, Module | HostStep],
        weights: Mapping[int, Array],
        called: Sequence[Callee],
    ) -> None:
        super().__init__(program.input_values, program.output_values)
        self.program, self._kernels = program, kernels
        self._weights, self._callees = weights, called
        self._pool = self._memory()
        self._arrays: list[Any] = [self._array(n, v) for n, v in enumerate(program.values)]
        self._room = aligned_bytes(0)
        self._calls = [self._bound(n) for n in range(len(program.steps))]
        self._groups: tuple[range, ...] = ()
        self._share_workspace()
        self._sequence: Callable[[], None] | None = None

    def another(self) -> GraphExecutor:
        """The same model, ready to run beside this one.

        Returns:
            An executor with inputs, outputs and memory of its own. Weights are shared, and what was
            computed from them, so that it is made in no time.

        Example:
            >>> x = lw.graph.var("x", (2,))
            >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(x))
            >>> first = lw.graph.compile(module, "llvm").executor()
            >>> second = first.another()
            >>> first.run(x=np.array([1, -1], "float32"))
            >>> second.run(x=np.array([-2, 2], "float32"))
            >>> print(first.get_output(0).numpy(), second.get_output(0).numpy())
            [1. 0.] [0. 2.]
        """
        made = GraphExecutor.__new__(GraphExecutor)
        made._begin(self.program, self._kernels, self._weights, self._callees)
        return made

    def of_size(self, program: Program) -> GraphExecutor:
        """The same kernels on values of other sizes.

        Args:
            program: the same steps over the same values, whose shapes may differ where kernels take
                any size.

        Returns:
            An executor that shares the weights of this one, and what was computed from them.

        Raises:
            ArgumentError: a kernel does not take values of these sizes.
        """
        made = GraphExecutor.__new__(GraphExecutor)
        made._begin(program, self._kernels, self._weights, self._callees)
        return made

    # -- memory --------------------------------------------------------------------------------

    def _memory(self) -> Any:
        """The memory that values between kernels share."""
        return aligned_bytes(max(self.program.pool_bytes, 1))

    def _share_workspace(self, others: Sequence[Any] = ()) -> None:
        """Let calls that never run together work in the same memory, which caches hold then.

        Args:
            others: calls beside those of the program's steps.
        """
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

    def _bound(self, number: int) -> Any:
        return self._bound_to(self._callees[number])

    def _bound_to(self, callee: Callee) -> Any:
        return callee.function.bind(*(self._arrays[n] for n in callee.rest))

    def _input_array(self, place: int) -> Any:
        return self._arrays[self.program.inputs[place]]

    def _output_array(self, place: int) -> Any:
        return self._arrays[self.program.outputs[place]]

    def _replace_input(self, place: int, elements: Array) -> None:
        self._replace(self.program.inputs[place], elements)

    def _replace_output(self, place: int, elements: Array) -> None:
        number = self.program.outputs[place]
        readers = sum(n == number for n in self.program.outputs)
        if self.program.values[number].kind != "stored" or readers > 1:
            raise ArgumentError(
                f"output {self.outputs[place].name!r} is an input, a constant, or another output, "
                "too; get a copy of it"
            )
        self._replace(number, elements)

    def _constants(self) -> Iterable[tuple[str, Any]]:
        return ((self.program.values[n].name, a) for n, a in self._weights.items())

    def _replace(self, number: int, elements: Any) -> None:
        """Bind what works on a value to another array; where that is refused, nothing changes."""
        touched = [n for n, step in enumerate(self.program.steps) if number in step.args]
        before, self._arrays[number] = self._arrays[number], elements
        try:
            self._bind_again(touched)
        except ArgumentError:
            self._arrays[number] = before
            raise

    def _bind_again(self, steps: Sequence[int]) -> None:
        bound = [self._bound(n) for n in steps]
        for n, call in zip(steps, bound, strict=True):
            self._calls[n] = call
        self._share_workspace()
        self._sequence = None

    # -- weights -------------------------------------------------------------------------------

    def save_params(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the weights to a safetensors file, by the names that the program gives them.

        These are the weights as the kernels take them: what passes have computed from those of a
        model, such as a convolution's with the factors of a batch normalisation.

        Args:
            path: the file, replaced in one step.
            force: as of `loopwright.runtime.save_params`.

        Returns:
            The path.

        Raises:
            RunError: the file cannot be written.
            UsageError: another file is there.

        Example:
            >>> w = lw.graph.const(np.eye(2, dtype="float32"), name="w")
            >>> y = lw.graph.op.nn.dense(lw.graph.var("x", (1, 2)), w)
            >>> module = lw.graph.IRModule.from_expr(y)
            >>> executor = lw.graph.compile(module, "llvm").executor()
            >>> path = executor.save_params("w.safetensors")
            >>> executor.load_params({"w": np.array([[2, 0], [0, 3]], "float32")})
            >>> executor.run(x=np.ones((1, 2), "float32"))
            >>> print(executor.get_output(0).numpy())
            [[2. 3.]]
            >>> executor.load_params(path)
            >>> executor.run()
            >>> print(executor.get_output(0).numpy())
            [[1. 1.]]
        """
        values = self.program.values
        weights = {values[n].name: a for n, a in self._weights.items()}
        return save_params(path, weights, force=force)

    def load_params(self, params: bytes | str | os.PathLike[str] | Mapping[str, Array]) -> None:
        """Set weights, and inputs, by name; what kernels pack of weights is packed again.

        Other executors, with which this one shared weights, keep theirs.

        Args:
            params: a safetensors file, its bytes, or arrays by name. Weights that it does not name
                stay as they are.

        Raises:
            ArgumentError: the model has no weight and no input of a name, or an array has another
                shape or dtype; nothing was changed.
            UsageError: the file is missing, or damaged.
        """
        values = self.program.values
        numbers = {values[n].name: n for n in self._weights}
        given = _arrays_of(params)
        unknown = [n for n in given if n not in numbers and self.get_input_index(n) < 0]
        if unknown:
            raise ArgumentError(
                f"the model has no weight and no input {unknown[0]!r}"
                f"{did_you_mean(unknown[0], [*numbers, *self.get_input_info()[0]])}"
            )
        fresh = {
            numbers[name]: np.array(fitted(values[numbers[name]], a), order="C")
            for name, a in given.items()
            if name in numbers
        }
        self.set_input(None, None, **{n: a for n, a in given.items() if n not in numbers})
        self._set_weights({**self._weights, **fresh}, fresh)

    def share_params(self, other: GraphExecutor) -> None:
        """Take the weights of another executor, and what was computed from them, without a copy.

        Args:
            other: an executor of the same program.

        Raises:
            ArgumentError: its program is another one.

        Example:
            >>> w = lw.graph.const(np.eye(2, dtype="float32"), name="w")
            >>> y = lw.graph.op.nn.dense(lw.graph.var("x", (1, 2)), w)
            >>> model = lw.graph.compile(lw.graph.IRModule.from_expr(y), "llvm")
            >>> first, second = model.executor(), model.executor()
            >>> first.load_params({"w": np.full((2, 2), 2, "float32")})
            >>> second.share_params(first)
            >>> second.run(x=np.ones((1, 2), "float32"))
            >>> print(second.get_output(0).numpy())
            [[4. 4.]]
        """
        if other.program != self.program:
            raise ArgumentError("share_params: the other executor runs another program")
        self._check_shared(other)
        self._weights, self._callees = other._weights, other._callees
        for n, array in self._weights.items():
            self._arrays[n] = array
        self._bind_again(range(len(self._calls)))

    def _check_shared(self, other: GraphExecutor) -> None:
        """Refuse weights of another executor in which an output of this one lies."""
        self._check_idle()
        for place, lent in self._lent_outputs.items():
            self._check_apart(place, lent.extent, other._read_always())
        self._taken = other._taken

    def _set_weights(self, weights: Mapping[int, Array], changed: Mapping[int, Array]) -> None:
        """Take other weights; the steps that read a changed one are prepared again."""
        args = self.program.steps, self._kernels, weights
        self._callees = callees(*args, before=self._callees, changed=changed)
        self._weights, self._taken = weights, None
        for n, array in changed.items():
            self._arrays[n] = array
        touched = [n for n, s in enumerate(self.program.steps) if set(s.args) & set(changed)]
        self._bind_again(touched)

    def whole_program(self, name: str) -> WholeProgram:
        """The program as one function with the weights as they are now.

        Args:
            name: of the function.

        Raises:
            UsageError: as of `loopwright.runtime.executors.whole_program.whole_program`.
        """
        return whole_program(name, self.program, self._kernels, self._callees, self._weights)

    # -- running -------------------------------------------------------------------------------

    def _run(self) -> None:
        if self._sequence is None:
            self._sequence = sequence(self._calls, self._groups)
        self._sequence()

    def seconds_of_steps(self) -> list[float]:
        """Run once, and wait for each step: the seconds of each, the host's part among them.

        Raises:
            RunError: a step failed.
        """
        found = []
        for call in self._calls:
            begin = time.perf_counter()
            call()
            self.sync()
            found.append(time.perf_counter() - begin)
        return found

    def run_side_by_side(self, number: int = 20, gain: float = 0.05) -> tuple[tuple[str, ...], ...]:
        """Find calls that are faster side by side than one after the other, and run them so.

        Calls one behind the other that do not need each other, such as the branches of a model, are
        timed both ways: one after the other, each with all threads, and side by side, each on one
        thread of the pool of parallel loops. Memory stays as it is planned. It pays for
        kernels that are too small to be shared out, or built for one thread. What is found holds
        for this executor; where calls are a loop in Python it finds nothing.

        Args:
            number: runs of each group in a sample; the medians of 5 samples are compared.
            gain: by which share of its time a group must be faster.

        Returns:
            The kernels of each group that runs side by side.

        Raises:
            RunError: a kernel failed.

        Example:
            >>> x = lw.graph.var("x", (4, 4))
            >>> branches = [lw.graph.op.nn.softmax(x, axis=n) for n in (0, 1)]
            >>> module = lw.graph.IRModule.from_expr(lw.graph.op.add(*branches))
            >>> executor = lw.graph.compile(module, "llvm").executor()
            >>> groups = executor.run_side_by_side()
            >>> executor.run(x=np.zeros((4, 4), "float32"))
            >>> print(executor.get_output(0).numpy()[0], len(groups) <= 1)
            [0.5 0.5 0.5 0.5] True
        """
        self._run()
        groups = independent_runs(self.program.steps, self.program.values)
        found = groups if in_one_piece(self._calls) else []
        self._groups = tuple(g for g in found if self._takes_group(g, number, gain))
        self._sequence = None
        return tuple(tuple(self.program.steps[n].kernel for n in g) for g in self._groups)

    def _takes_group(self, group: range, number: int, gain: float) -> bool:
        """Give the calls of a group workspaces of their own if they are faster side by side."""
        apart = [self._bound(n) for n in group]
        if not _faster_together(apart, number, gain):
            return False
        self._calls[group.start : group.stop] = apart
        return True


def _faster_together(calls: Sequence[Any], number: int, gain: float) -> bool:
    """Whether calls take less time side by side."""
    ways = sequence(calls), sequence(calls, [range(len(calls))])
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(5):
        for run, found in zip(ways, samples, strict=True):
            run()
            found.append(seconds_of(run, number))
    apart, together = map(median, samples)
    return together < apart * (1 - gain)


def weight_of(v: Value, constants: Mapping[str, Array]) -> Array:
    """The array of a constant.

    Raises:
        ArgumentError: it is missing, or has another shape or dtype.
    """
    if v.name not in constants:
        raise ArgumentError(f"constant {v.name!r} is missing{did_you_mean(v.name, constants)}")
    return fitted(v, constants[v.name])


def _arrays_of(params: bytes | str | os.PathLike[str] | Mapping[str, Array]) -> Mapping[str, Any]:
    """Arrays by name, of a file, its bytes, or as they are given."""
    if isinstance(params, Mapping):
        return params
    if isinstance(params, bytes | bytearray):
        return decoded(bytes(params), Path("the parameters"))
    return load_params(params)
