"""A model of any batch: kernels that take every size, and memory that is planned for each."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy.typing as npt

from loopwright.errors import UsageError
from loopwright.runtime.executors.aot_executor import AotExecutor
from loopwright.runtime.executors.batches.shared_arrays import SharedArrays
from loopwright.runtime.executors.batches.sized_program import SizedProgram
from loopwright.runtime.executors.graph_executor import GraphExecutor
from loopwright.runtime.executors.host_step import HostStep
from loopwright.runtime.executors.model import Model
from loopwright.runtime.executors.program import Program
from loopwright.runtime.module import Module

Array = npt.NDArray[Any]
#: Sizes whose programs are kept for the next call.
_KEEP = 16


class SizedModel:
    """A program of any size with its kernels and weights.

    Several threads may ask it for sizes at once.

    Args:
        program: its steps, and its values as formulas of the size.
        kernels: by name; they take every size.
        constants, host_steps, shared: as of `Model`.

    Attributes:
        program, kernels, constants, host_steps: as given.

    Example:
        >>> from loopwright.runtime.executors import SizedModel, SizedProgram, SizedValue, Step
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
        self._known: OrderedDict[int, Model] = OrderedDict()
        self._lock = threading.Lock()

    def at(self, number: int) -> Model:
        """The model for a number of the size; its memory is planned now.

        Raises:
            ArgumentError: a kernel does not take values of this size.
        """
        with self._lock:
            found = self._known.pop(number, None) or _ModelOfSize(self, self.program.at(number))
            self._known[number] = found
            if len(self._known) > _KEEP:
                self._known.popitem(last=False)
        return found

    def executor(self, program: Program, in_place: Collection[str] = ()) -> GraphExecutor:
        """An executor of the program for a size; all share weights and their packed forms.

        `in_place` is as of `GraphExecutor`, and the same for all sizes.
        """
        with self._lock:
            if self._first is None:
                called: dict[str, Module | HostStep] = {**self.kernels, **self.host_steps}
                self._first = GraphExecutor(program, called, self.constants, self._shared, in_place)
            return self._first.of_size(program)


class _ModelOfSize(Model):
    """A model for one size, whose kernels take any."""

    def __init__(self, whole: SizedModel, program: Program) -> None:
        super().__init__(program, whole.kernels, whole.constants, whole.host_steps)
        self._whole = whole

    @cached_property
    def _first(self) -> GraphExecutor:
        return self._whole.executor(self.program)

    def aot_executor(self) -> AotExecutor:
        """Refused: the function would be of one size, its kernels are of any."""
        self._refuse("one function")

    def export_library(
        self,
        path: str | os.PathLike[str],
        cc: str | None = None,
        fcompile: Callable[..., object] | None = None,
        *,
        force: bool = False,
    ) -> Path:
        """Refused, as `aot_executor` is."""
        self._refuse("a library")

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Refused: the model of all sizes is saved."""
        self._refuse("saved by itself")

    def _refuse(self, done: str) -> NoReturn:
        size = self._whole.program.size
        raise UsageError(
            f"a model whose kernels take every {size} cannot be {done}; compile it with this one "
            "among its batches, and take that"
        )
