"""A model of any batch: a program of formulas, kernels of every size, memory planned for each."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loopwright.errors import UsageError
from loopwright.executors.callees import HostStep, SharedArrays
from loopwright.executors.graph_executor import GraphExecutor
from loopwright.executors.model import Model
from loopwright.executors.program import (
    VERSION,
    Array,
    Kind,
    Program,
    Step,
    Value,
    placed,
    reading,
    steps_from_json,
    steps_to_json,
)
from loopwright.runtime import Module, RuntimeCache, SizeFormula, evaluate, text

_FORMAT = "loopwright.sized_program"
#: Size for the checks of a program when it is read: any size gives the same structure.
_ANY = 2
#: Sizes whose programs are kept for the next call.
_KEEP = 16


@dataclass(frozen=True)
class SizedValue:
    """A tensor of a program whose extents may depend on its size.

    ``shape`` has numbers, the name of the size, or formulas of it
    (`loopwright.runtime.artifacts.manifest`); the rest is as of `Value`.

    Example:
        >>> from loopwright.executors import SizedValue
        >>> print(SizedValue("x", (["*", "n", 2], 3), "float32", "input").at({"n": 4}).shape)
        (8, 3)
    """

    name: str
    shape: tuple[SizeFormula, ...]
    dtype: str
    kind: Kind

    def at(self, sizes: Mapping[str, int]) -> Value:
        shape = tuple(evaluate(n, sizes) for n in self.shape)
        return Value(self.name, shape, self.dtype, self.kind)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(text, self.shape))}]"


@dataclass(frozen=True)
class SizedProgram:
    """A program with one open size; `at` gives the program for a number.

    ``size`` is its name; the rest is as of `Program`. Kernels of steps serve every size.

    Example:
        >>> from loopwright.executors import SizedProgram, SizedValue, Step
        >>> x = SizedValue("x", ("n", 4), "float32", "input")
        >>> y = SizedValue("y", ("n", 4), "float32", "stored")
        >>> program = SizedProgram("n", (x, y), (Step("double", (0, 1)),), (0,), (1,))
        >>> print(program.at(8).values[1].shape, program.at(8).pool_bytes)
        (8, 4) 128
    """

    size: str
    values: tuple[SizedValue, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    output_names: tuple[str, ...] = ()

    def at(self, number: int) -> Program:
        """The program for a number of the size, with its memory planned.

        RunError where it is inconsistent, see `Program`; UsageError for a malformed formula.
        """
        values = [v.at({self.size: number}) for v in self.values]
        return placed(values, self.steps, self.inputs, self.outputs, self.output_names)

    @property
    def input_values(self) -> tuple[SizedValue, ...]:
        return tuple(self.values[n] for n in self.inputs)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "version": VERSION,
            "size": self.size,
            "values": [[v.name, list(v.shape), v.dtype, v.kind] for v in self.values],
            **steps_to_json(self.steps, self.inputs, self.outputs),
            "output_names": list(self.output_names),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SizedProgram:
        """The program of `to_json`; RunError for anything else, or another version."""
        with reading(data, _FORMAT, "program of a model whose size varies"):
            program = SizedProgram(
                str(data["size"]),
                tuple(SizedValue(n, tuple(s), d, k) for n, s, d, k in data["values"]),
                *steps_from_json(data),
                tuple(map(str, data["output_names"])),
            )
            program.at(_ANY)
        return program


class SizedModel:
    """A program of any size with its kernels, which take every size, and its weights.

    Several threads may ask it for sizes at once. ``constants``, ``host_steps`` and ``shared`` are
    as of `Model`.

    Example:
        >>> from loopwright.executors import SizedModel, SizedProgram, SizedValue, Step
        >>> n = te.size_var("n")
        >>> A = te.placeholder((n,), name="A")
        >>> B = te.compute((n,), lambda i: A[i] * 2, name="B")
        >>> double = lw.build(te.create_schedule(B.op), [A, B], "llvm")
        >>> x = SizedValue("x", ("n",), "float32", "input")
        >>> y = SizedValue("y", ("n",), "float32", "stored")
        >>> program = SizedProgram("n", (x, y), (Step("double", (0, 1)),), (0,), (1,))
        >>> model = SizedModel(program, {"double": double}, {})
        >>> print(model.at(3)(np.ones(3, "float32"))[0])
        [2. 2. 2.]
    """

    def __init__(
        self,
        program: SizedProgram,
        kernels: Mapping[str, Module],
        constants: Mapping[str, Array],
        host_steps: Mapping[str, HostStep] | None = None,
        shared: SharedArrays | None = None,
    ) -> None:
        self.program, self.kernels, self.constants = program, kernels, constants
        self.host_steps = host_steps or {}
        self._shared = shared
        self._first: GraphExecutor | None = None
        self._kept: RuntimeCache[Model] = RuntimeCache(_KEEP, counted=False)  # one "byte" a model
        self._lock = threading.Lock()

    def at(self, number: int) -> Model:
        """The model for a number of the size; its memory is planned now.

        ArgumentError where a kernel does not take values of this size.
        """
        return self._kept.get_or_make(
            number, lambda: _ModelOfSize(self, self.program.at(number)), nbytes=1
        )

    def executor(self, program: Program, in_place: Collection[str] = ()) -> GraphExecutor:
        """An executor of the program for a size; all share weights, and the first `in_place`."""
        with self._lock:
            if self._first is None:
                called: dict[str, Module | HostStep] = {**self.kernels, **self.host_steps}
                self._first = GraphExecutor(program, called, self.constants, self._shared, in_place)
            return self._first.of_size(program)


class _ModelOfSize(Model):
    def __init__(self, whole: SizedModel, program: Program) -> None:
        super().__init__(program, whole.kernels, whole.constants, whole.host_steps)
        self._whole = whole

    @cached_property
    def _first(self) -> GraphExecutor:
        return self._whole.executor(self.program)

    def _check_whole(self, done: str) -> None:
        """Refused: it would be of one size, its kernels are of any; the model of all is saved."""
        size, alone = self._whole.program.size, " by itself" if done == "saved" else ""
        raise UsageError(
            f"a model whose kernels take every {size} cannot be {done}{alone}; compile it with "
            "this one among its batches, and take that"
        )
