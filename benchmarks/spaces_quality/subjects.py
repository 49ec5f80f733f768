"""What has an automatic space: the workloads of the other benchmarks, and the expressions without a
template, with inputs and right answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.expressions.cases import EXPRESSIONS, Expression
from benchmarks.expressions.measuring import exact
from benchmarks.expressions.sides import numpy_calls
from benchmarks.workloads import CASES, MORE_CASES, Case
from loopwright import te
from loopwright.cli.workload import find_workload
from loopwright.measure.candidate import task_inputs
from loopwright.runtime import Arg
from loopwright.space import AutomaticTask
from loopwright.task import Task

Array = npt.NDArray[Any]
#: Largest error of a float32 kernel, relative to the largest element of the answer.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Subject:
    """Something that has an automatic space.

    Attributes:
        name: row of the table.
        tensors: makes its arguments, result last.
        data: makes inputs for them, and the answer in float64.
        tolerance: largest error relative to the largest element of the answer.
    """

    name: str
    tensors: Callable[[], list[te.Tensor]]
    data: Callable[[Sequence[te.Tensor]], tuple[list[Array], Array]]
    tolerance: float = _TOLERANCE


def subjects() -> list[Subject]:
    """The workloads, and the expressions."""
    workloads = [_of_workload(case) for case in (*CASES, *MORE_CASES)]
    return [*workloads, *map(_of_expression, EXPRESSIONS)]


def _of_expression(e: Expression) -> Subject:
    def data(tensors: Sequence[te.Tensor]) -> tuple[list[Array], Array]:
        inputs = e.inputs(tensors)
        return inputs, numpy_calls.call(e.call)(*map(exact, inputs))

    return Subject(e.name, e.tensors, data, e.tolerance)


def _of_workload(case: Case) -> Subject:
    def template() -> Task:
        return find_workload(case.op, list(case.params), "llvm", 1).task

    def tensors() -> list[te.Tensor]:
        task = template()
        if isinstance(task, AutomaticTask):
            return list(task.program.args)
        return list(task.instantiate(task.config_space.default_index)[1])

    def data(tensors: Sequence[te.Tensor]) -> tuple[list[Array], Array]:
        task = template()
        args = [
            Arg(t.name, t.static_shape, np.dtype(t.dtype), n == len(tensors) - 1)
            for n, t in enumerate(tensors)
        ]
        inputs = task_inputs(task, args)
        assert task.reference is not None
        return inputs, np.asarray(task.reference(*map(exact, inputs)))

    return Subject(case.name, tensors, data)
