"""Kernels of a workload for the verbs that build: the default one, and that of the best record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import numpy as np

from loopwright.cli.harmless import echo
from loopwright.cli.workload import Workload

if TYPE_CHECKING:
    from loopwright.measure.check import Array
    from loopwright.runtime import Module
    from loopwright.schedule import Schedule
    from loopwright.task import Task
    from loopwright.te import Tensor


@contextmanager
def alone() -> Iterator[None]:
    """Hold the device: no other process of loopwright times anything meanwhile."""
    from loopwright.measure import DeviceLock

    lock = DeviceLock(announce=lambda text: click.echo(text, err=True))
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class ChosenSchedule:
    """A schedule with its arguments, and where it is from.

    Attributes:
        schedule: the schedule.
        args: its tensors in calling order.
        choice: which record it is, in words; empty for the default configuration.
    """

    schedule: Schedule
    args: list[Tensor]
    choice: str = ""


def default(workload: Workload) -> ChosenSchedule:
    """The schedule of the default configuration."""
    task = workload.task
    schedule, args = task.instantiate(task.config_space.get(task.config_space.default_index))
    return ChosenSchedule(schedule, list(args))


def best(workload: Workload, history: str | None) -> ChosenSchedule | None:
    """The schedule of the best record of a log; None, said on standard error, without one.

    Raises:
        RecordError: the log is missing or cannot be read.
    """
    from loopwright.records import open_log
    from loopwright.task import apply_history_best

    if history is None:
        return None
    log = open_log(history)
    if complaint := log.complaint():
        echo(complaint, err=True)
    # From the records, not from the log: the line above has said what was skipped.
    context = apply_history_best(log.records)
    scheduled = context.apply(workload.task)
    if scheduled is None:
        echo(f"{history}: {context.explain(workload.task)}", err=True)
        return None
    return ChosenSchedule(scheduled[0], list(scheduled[1]), str(context.explain(workload.task)))


def compiled(workload: Workload, scheduled: ChosenSchedule) -> Module:
    """Compile a schedule for the workload's target."""
    from loopwright.driver import build

    name = re.sub(r"\W+", "_", workload.task.name)
    name = name if name[0].isalpha() and not name.startswith("lw_") else f"kernel_{name}"
    return build(scheduled.schedule, scheduled.args, workload.task.target, name)


def random_arguments(module: Module, task: Task | None = None) -> list[Array]:
    """Arrays for the entry function: random inputs, outputs full of NaN or of a pattern.

    Args:
        module: what is to be run.
        task: whose kernel it is. It knows what the inputs are used for, an index for example;
            without it they are small numbers.
    """
    from loopwright.measure.arguments import arguments
    from loopwright.measure.check import poison
    from loopwright.measure.data.plan import DataPlan, input_set
    from loopwright.measure.data.planning import task_inputs

    args = arguments(module.artifact)
    if task is None:
        inputs = iter(input_set(DataPlan(), args, 0, None, 0))
    else:
        inputs = iter(task_inputs(task, args))
    arrays = [np.empty(arg.shape, arg.dtype) if arg.output else next(inputs) for arg in args]
    for arg, array in zip(args, arrays, strict=True):
        if arg.output:
            poison(array)
    return arrays


def threads_of(module: Module) -> int:
    """How many threads a module's parallel loops use."""
    from loopwright.runtime import get_num_threads

    return int(module.artifact.manifest["num_threads"]) or get_num_threads()
