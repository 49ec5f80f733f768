"""``autotvm.measure``: what goes into a measurement and what comes out."""

from __future__ import annotations

from loopwright.errors import UsageError
from loopwright.measure import (
    BuildResult,
    LocalBuilder,
    LocalRunner,
    MeasureErrorNo,
    MeasureResult,
    create_measure_batch,
    measure_option,
)
from loopwright.measure import MeasureInput as _Input
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
    "measure_option",
]


class MeasureInput(_Input):
    """One trial to be measured: ``loopwright.MeasureInput`` with AutoTVM's order of arguments.

    Args:
        target: the target; that of the task, or one for which the task is then meant.
        task: the task.
        config: a point of its space.
        trial: number of the trial, from 0.

    Raises:
        UsageError: the arguments stand in another order.

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
