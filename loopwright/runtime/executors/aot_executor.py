"""The ahead-of-time executor: a model as one compiled function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import UsageError
from loopwright.runtime.calling.argument import Arg
from loopwright.runtime.executors.executor import Executor
from loopwright.runtime.executors.program import Value
from loopwright.runtime.function import Function
from loopwright.runtime.module import Module

Array = npt.NDArray[Any]


class AotExecutor(Executor):
    """A model that is one function, ready to run.

    Its memory is the inputs, the outputs and one workspace. Named after TVM's, whose methods it
    has. `Model.aot_executor` makes one in this process; of a library that `Model.export_library`
    wrote, `loopwright.load_module` gives the module, and neither LLVM nor a compiler is needed.

    Args:
        module: whose entry function takes inputs and then outputs.
        constants: arrays of its model, by name; None: of a library, which has its own.

    Raises:
        UsageError: the function takes sizes, or is for a device.

    Example:
        >>> from loopwright.runtime.executors import AotExecutor
        >>> x = lw.graph.var("x", (2,))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(x))
        >>> path = lw.graph.compile(module, "llvm").export_library("relu.so")
        >>> executor = AotExecutor(lw.load_module(path))
        >>> executor.run(x=np.array([1, -1], "float32"))
        >>> print(executor.get_output(0).numpy())
        [1. 0.]
    """

    def __init__(self, module: Module, constants: Mapping[str, Array] | None = None) -> None:
        function = module[module.entry_name]
        if not isinstance(function, Function):
            raise UsageError(f"{module.entry_name} takes sizes, or is for a device")
        self._module, self._function, self._weights = module, function, constants or {}
        inputs = [_value(a) for a in function.args if not a.output]
        outputs = [_value(a) for a in function.args if a.output]
        super().__init__(inputs, outputs)
        self._arrays = [np.zeros(a.shape, a.dtype) for a in function.args]
        self._call = function.bind(*self._arrays)

    def another(self) -> AotExecutor:
        """The same model, ready to run beside this one: the code and the weights are shared."""
        return AotExecutor(self._module, self._weights)

    def _input_array(self, place: int) -> Array:
        return self._arrays[place]

    def _output_array(self, place: int) -> Array:
        return self._arrays[len(self.inputs) + place]

    def _constants(self) -> Iterable[tuple[str, Any]]:
        return self._weights.items()

    def _replace_input(self, place: int, elements: Array) -> None:
        self._replace(place, elements)

    def _replace_output(self, place: int, elements: Array) -> None:
        self._replace(len(self.inputs) + place, elements)

    def _replace(self, place: int, elements: Array) -> None:
        arrays = [*self._arrays]
        arrays[place] = elements
        self._call = self._function.bind(*arrays)
        self._arrays = arrays

    def _run(self) -> None:
        self._call()


def _value(arg: Arg) -> Value:
    return Value(arg.name, arg.shape, arg.dtype.name, "stored" if arg.output else "input")
