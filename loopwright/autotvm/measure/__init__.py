"""``autotvm.measure``: inputs and results of a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from loopwright.autotvm.measure import measure_methods
from loopwright.errors import UsageError, no_such_name
from loopwright.measure import (
    BuildResult,
    LocalBuilder,
    LocalRunner,
    MeasureError,
    MeasureErrorNo,
    create_measure_batch,
    measure_option,
)
from loopwright.measure import MeasureInput as _Input
from loopwright.measure import MeasureResult as _Result
from loopwright.records.autotvm import ERRORS
from loopwright.task import ConfigEntity, Task
from loopwright.task.task import TargetLike, resolve_target

__all__ = [
    "BuildResult",
    "LocalBuilder",
    "LocalRunner",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "create_measure_batch",
    "measure_methods",
    "measure_option",
]

_PROCESSES = (
    "builders and runners are processes of loopwright's own (docs/adr/019); a measurer of your own "
    "is anything with the methods of loopwright.measure.MeasurerLike, given as measure_option"
)
_INSTEAD = {
    "Builder": _PROCESSES,
    "Runner": _PROCESSES,
    "RPCRunner": "tune on the machine itself with LocalRunner, and merge the logs",
    "request_remote": "tune on the machine itself with LocalRunner, and merge the logs",
}


class _ByPosition(type):
    """The type of classes that add only an order of arguments: instances of the base are theirs."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__bases__)


class MeasureInput(_Input, metaclass=_ByPosition):
    """One trial to be measured: ``loopwright.MeasureInput`` with AutoTVM's order of arguments.

    Args:
        target: the target; another one than the task's replaces it.
        task: the task.
        config: a point of its space.
        trial: number of the trial, from 0.

    Raises:
        UsageError: the arguments are in another order.

    Example:
        >>> from loopwright import autotvm
        >>> task = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm")
        >>> autotvm.MeasureInput(task.target, task, task.config_space.get(3)).config.index
        3
    """

    def __init__(
        self, target: TargetLike, task: Task, config: ConfigEntity, trial: int = 0
    ) -> None:
        if not isinstance(task, Task) or not isinstance(config, ConfigEntity):
            raise UsageError("MeasureInput takes a target, a task and a configuration of its space")
        wanted = resolve_target(target)
        if wanted != task.target:
            task = Task(task.name, task.args, wanted)
            config = task.config(config)
        super().__init__(task, config, trial)


class MeasureResult(_Result, metaclass=_ByPosition):
    """The result of a trial: ``loopwright.MeasureResult`` with AutoTVM's order of arguments.

    Args:
        costs: seconds of each sample; of a failure the exception, or another object.
        error_no: `MeasureErrorNo`, or its number; 0: no failure.
        all_cost: seconds that the trial took.
        timestamp: Unix time of its end.
        fields: those of ``loopwright.MeasureResult`` by name, which take precedence.

    Raises:
        UsageError: there is no such error.

    Example:
        >>> from loopwright import autotvm
        >>> costs, error_no, all_cost, timestamp = autotvm.MeasureResult((0.5, 0.7), 0, 3.0, 1.6e9)
        >>> print(costs, error_no.name, all_cost)
        (0.5, 0.7) NO_ERROR 3.0
        >>> print(autotvm.MeasureResult((RuntimeError("no such device"),), 4, 3.0, 1.6e9).error)
        RUN_ERROR: no such device
    """

    def __init__(
        self,
        costs: Sequence[float | BaseException] = (),
        error_no: int = 0,
        all_cost: float = 0.0,
        timestamp: float = 0.0,
        **fields: Any,
    ) -> None:
        error = _error(costs, error_no)
        times = () if error is not None else tuple(costs)
        given: dict[str, Any] = {"times": times, "error": error, "run_s": all_cost, "ts": timestamp}
        super().__init__(**{**given, **fields})


def _error(costs: Sequence[object], error_no: int) -> MeasureError | None:
    """The failure that AutoTVM means by a number, with the text of its exception."""
    if error_no == 0:
        return None
    if error_no not in ERRORS:
        raise UsageError(f"MeasureResult: error_no is a MeasureErrorNo, 0 to 8, got {error_no!r}")
    kind, text = ERRORS[error_no]
    said = next((str(cost) for cost in costs if isinstance(cost, BaseException)), "")
    return MeasureError(kind, said or text)


def __getattr__(name: str) -> NoReturn:
    raise no_such_name("loopwright.autotvm.measure", name, _INSTEAD)
