"""The graph executor: kernels one after the other, over memory that is shared out beforehand.

Named after TVM's, whose methods it has. Each kernel is bound once to the arrays that it works on,
so that a run is a call of each and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import ArgumentError, did_you_mean
from loopwright.runtime.arrays.host import NDArray, aligned_bytes
from loopwright.runtime.executors.host_step import HostStep
from loopwright.runtime.executors.program import Program, Step, Value
from loopwright.runtime.module import Module
from loopwright.runtime.ndarray import array

Array = npt.NDArray[Any]
#: What a step calls, and the numbers of the values that it is called with.
_Function = tuple[Any, list[int]]


class GraphExecutor:
    """A model, ready to run.

    Args:
        program: its kernels and values.
        kernels: by name; Python functions among them. What an argument that is constant leads to is
            computed now, once.
        constants: by the names of the program's values; they are taken over.

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
    ) -> None:
        numbers = [n for n, v in enumerate(program.values) if v.kind == "constant"]
        weights = {n: _weight(program.values[n], constants) for n in numbers}
        self._begin(program, weights, [_function(s, kernels, weights) for s in program.steps])

    def _begin(
        self, program: Program, weights: Mapping[int, Array], functions: Sequence[_Function]
    ) -> None:
        self.program = program
        self._weights, self._functions = weights, functions
        self._pool = aligned_bytes(max(program.pool_bytes, 1))
        self._arrays = [self._array(n, v) for n, v in enumerate(program.values)]
        self._inputs = {program.values[n].name: n for n in program.inputs}
        self._calls = [self._bound(n) for n in range(len(program.steps))]

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
        made._begin(self.program, self._weights, self._functions)
        return made

    # -- memory --------------------------------------------------------------------------------

    def _array(self, number: int, v: Value) -> Array:
        if v.kind == "stored":
            part = self._pool[v.offset : v.offset + v.nbytes]
            return part.view(v.dtype).reshape(v.shape)
        return np.zeros(v.shape, v.dtype) if v.kind == "input" else self._weights[number]

    def _bound(self, number: int) -> Any:
        function, values = self._functions[number]
        return function.bind(*(self._arrays[n] for n in values))

    # -- inputs --------------------------------------------------------------------------------

    def get_num_inputs(self) -> int:
        """How many inputs there are."""
        return len(self.program.inputs)

    def get_num_outputs(self) -> int:
        """How many outputs there are."""
        return len(self.program.outputs)

    def get_input_index(self, name: str) -> int:
        """The place of an input among all; -1 where there is none of the name."""
        n = self._inputs.get(name)
        return -1 if n is None else self.program.inputs.index(n)

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """The shapes and the dtypes of the inputs by name."""
        values = [self.program.values[n] for n in self.program.inputs]
        return {v.name: v.shape for v in values}, {v.name: v.dtype for v in values}

    def set_input(
        self, key: str | int | None = None, value: object = None, **named: object
    ) -> None:
        """Copy arrays into inputs.

        Args:
            key: the name of an input, or its place.
            value: its array.
            named: further inputs by name.

        Raises:
            ArgumentError: there is no such input, or the array has another shape or dtype.
        """
        given: dict[str | int, object] = {name: x for name, x in named.items()}
        if key is not None:
            given[key] = value
        fitting = {k: _fitting(self._value(k), x) for k, x in given.items()}
        for k, elements in fitting.items():
            self._arrays[self._number(k)][...] = elements

    def set_input_zero_copy(self, key: str | int, value: object) -> None:
        """Let an input be an array of the caller's, whose elements count when the model runs.

        Raises:
            ArgumentError: as of `set_input`; or it is not contiguous.
        """
        self._replace(self._number(key), _fitting(self._value(key), value))

    def set_output_zero_copy(self, index: int, value: object) -> None:
        """Let the model write an output into an array of the caller's.

        Raises:
            ArgumentError: there is no such output, the array does not fit, or cannot be written.
        """
        number = self._output(index)
        v = self.program.values[number]
        given = _fitting(v, value)
        readers = sum(n == number for n in self.program.outputs)
        if v.kind != "stored" or readers > 1:
            raise ArgumentError(
                f"output {index} is an input, a constant, or another output, too; get a copy of it"
            )
        if not given.flags.writeable:
            raise ArgumentError(f"the array for output {index} cannot be written")
        self._replace(number, given)

    def _replace(self, number: int, elements: Array) -> None:
        """Bind all that works on a value to another array."""
        self._arrays[number] = elements
        for n, step in enumerate(self.program.steps):
            if number in step.args:
                self._calls[n] = self._bound(n)

    def get_input(self, key: str | int) -> NDArray:
        """A copy of an input, as it is now."""
        return array(self._arrays[self._number(key)])

    def _number(self, key: str | int) -> int:
        if isinstance(key, str) and key in self._inputs:
            return self._inputs[key]
        if isinstance(key, int) and 0 <= key < len(self.program.inputs):
            return self.program.inputs[key]
        hint = did_you_mean(key, self._inputs) if isinstance(key, str) else ""
        raise ArgumentError(
            f"there is no input {key!r}{hint}; there are {', '.join(self._inputs) or 'none'}"
        )

    def _value(self, key: str | int) -> Value:
        return self.program.values[self._number(key)]

    # -- running -------------------------------------------------------------------------------

    def run(self, **inputs: object) -> None:
        """Set inputs by name, then run all kernels.

        Raises:
            ArgumentError: as of `set_input`; nothing ran.
            RunError: a kernel failed.
        """
        if inputs:
            self.set_input(None, None, **inputs)
        for call in self._calls:
            call()

    def get_output(self, index: int, out: Array | NDArray | None = None) -> Array | NDArray:
        """A copy of an output.

        Args:
            index: which one, from 0.
            out: an array to copy it into.

        Raises:
            ArgumentError: there is no such output, or ``out`` has another shape or dtype.
        """
        number = self._output(index)
        found = self._arrays[number]
        if out is None:
            return array(found)
        _fitting(self.program.values[number], out)[...] = found
        return out

    def _output(self, index: int) -> int:
        if not 0 <= index < len(self.program.outputs):
            raise ArgumentError(f"there is no output {index}; there are {self.get_num_outputs()}")
        return self.program.outputs[index]


def _weight(v: Value, constants: Mapping[str, Array]) -> Array:
    if v.name not in constants:
        raise ArgumentError(f"constant {v.name!r} is missing{did_you_mean(v.name, constants)}")
    return _fitting(v, constants[v.name])


def _function(
    step: Step, kernels: Mapping[str, Module | HostStep], weights: Mapping[int, Array]
) -> _Function:
    """What a step calls, with its constants given, and the values that it is called with."""
    if step.kernel not in kernels:
        raise ArgumentError(f"kernel {step.kernel!r} is missing")
    module = kernels[step.kernel]
    if isinstance(module, HostStep):
        return module, list(step.args)
    args = module.artifact.contents.function(module.entry_name).args
    if len(args) != len(step.args):
        raise ArgumentError(
            f"kernel {step.kernel!r} has {len(args)} arguments, the program gives {len(step.args)}"
        )
    pairs = list(zip(args, step.args, strict=True))
    for arg, n in pairs:
        if arg.constant and n not in weights:
            raise ArgumentError(
                f"kernel {step.kernel!r} takes {arg.name!r} as a constant, the program gives value "
                f"{n}, which is none; build the kernel without it"
            )
    given = [weights[n] for arg, n in pairs if arg.constant]
    rest = [n for arg, n in pairs if not arg.constant]
    return (module.with_constants(*given) if given else module), rest


def _fitting(v: Value, given: object) -> Array:
    """An array of a value's shape and dtype; it shares memory with what was given."""
    found: Array = given.numpy() if isinstance(given, NDArray) else np.asarray(given)
    if found.shape != v.shape or found.dtype != np.dtype(v.dtype):
        raise ArgumentError(
            f"{v.name!r} is {v.dtype}{list(v.shape)}, got {found.dtype}{list(found.shape)}"
        )
    return found
