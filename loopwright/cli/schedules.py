"""Kernels of a workload for the verbs that build: the default one, and that of the best record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from loopwright.cli import named_record as chosen_record
from loopwright.cli.console import echo
from loopwright.cli.named_record import RecordName, record_options
from loopwright.cli.workload import Workload, counted
from loopwright.errors import RecordError, UsageError

if TYPE_CHECKING:
    from loopwright.lowering.context import PassContext
    from loopwright.measure import MeasureOption
    from loopwright.measure.checking.check import Array
    from loopwright.records import Log, Record
    from loopwright.runtime import Device, Module
    from loopwright.schedule import Schedule
    from loopwright.target import Target
    from loopwright.task import ApplyHistoryBest, Task
    from loopwright.te import Tensor


@contextmanager
def alone(device: Device | None = None) -> Iterator[None]:
    """Hold a device, the CPU by default: no other process of loopwright times anything there."""
    from loopwright.measure import DeviceLock
    from loopwright.measure.devices import CPU_LOCK, lock_names

    names = [CPU_LOCK] if device is None else lock_names([device])
    with ExitStack() as stack:
        for name in names:
            lock = DeviceLock(name, announce=_say)
            lock.acquire()
            stack.callback(lock.release)
        yield


#: Records of a log that are checked, at most, until one is found right.
_CHECKS = 8


def history_options(command: Callable[..., object]) -> Callable[..., object]:
    decorators = (
        click.option(
            "--history",
            multiple=True,
            type=click.Path(),
            metavar="LOG",
            help="A log of `loopwright tune`, or a folder of such *.jsonl: the fastest kernel in "
            "it that fits this workload and machine is taken. Several may be given.",
        ),
        click.option(
            "--allow-default",
            is_flag=True,
            help="Where nothing in the logs fits, take the default configuration instead of "
            "failing.",
        ),
    )
    command = record_options(command)
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@dataclass(frozen=True)
class ChosenSchedule:
    schedule: Schedule
    #: Tensors in calling order.
    args: list[Tensor]
    #: The context that chose it; None for the default, and for a named record.
    history: ApplyHistoryBest | None = None
    #: Settings for lowering; None: those of the caller.
    passes: PassContext | None = None
    #: A line about the record that was named.
    record: str = ""

    @property
    def choice(self) -> str:
        """A line about the record; empty for the default configuration."""
        return self.record if self.history is None else str(self.history.report()[-1])

    @property
    def report(self) -> str:
        """The report of the context that chose it; empty for the default configuration."""
        return self.record if self.history is None else str(self.history.report())

    def context(self) -> AbstractContextManager[object]:
        return nullcontext() if self.passes is None else self.passes


def default(workload: Workload) -> ChosenSchedule:
    task = workload.task
    schedule, args = task.instantiate(task.config_space.get(task.config_space.default_index))
    return ChosenSchedule(schedule, list(args))


def best(
    workload: Workload,
    history: Sequence[str],
    name: RecordName,
    *,
    allow_default: bool = False,
    check: bool = True,
    verdicts: bool = True,
    device: str | None = None,
) -> ChosenSchedule | None:
    """The schedule of the best record of some logs, or of the named one; None without logs, and,
    with ``allow_default``, where no record fits.

    ``check`` compares the answer of a record that was never checked with the reference and notes
    the outcome in its log; a wrong one makes way for the next best. With ``verdicts`` the default
    takes the place of a record that is only as fast.
    """
    from loopwright.records.log import check_has_records
    from loopwright.task import apply_history_best
    from loopwright.task.applying.sources import logs_of

    name.check(history)
    if not history:
        return None
    logs = list(logs_of(history))
    if not any(log.records for log in logs) and (name.given or not allow_default):
        check_has_records(logs[0])
    for log in logs:
        if complaint := log.complaint():
            echo(complaint, err=True)
    if name.given:
        return _named(workload, logs, name, check=check, device=device)
    # From the records, not from the logs: the lines above have said what was skipped.
    context = apply_history_best([log.records for log in logs], verdicts=verdicts)
    if check:
        _check(workload, context, logs, device)
    choice = context.explain(workload.task)
    context.strict = not allow_default and (check or choice.record is None)
    try:
        scheduled = context.apply(workload.task)
    except RecordError as error:
        raise RecordError(f"{', '.join(history)}: {error}") from error
    if scheduled is None:
        echo(f"{', '.join(history)}: {choice}", err=True)
        return None
    return ChosenSchedule(scheduled[0], list(scheduled[1]), context)


def _named(
    workload: Workload, logs: Sequence[Log], name: RecordName, *, check: bool, device: str | None
) -> ChosenSchedule:
    """The schedule of the named record, checked if it never was."""
    from loopwright.measure import recheck
    from loopwright.records import Checked
    from loopwright.task.applying.as_called import duration

    record, rebuilt = chosen_record.find(workload, logs, name)
    time = "no time" if record.median is None else f"{duration(record.median)} per call in the log"
    chosen = ChosenSchedule(
        rebuilt.schedule, rebuilt.args, None, rebuilt.passes, f"record {record.id} ({time})"
    )
    if not check:
        return chosen
    error = record.error
    if error is None and record.checked is not Checked.YES:
        click.echo(f"record {record.id} was never checked: checking it", err=True)
        with chosen.context():
            scheduled = (chosen.schedule, chosen.args)
            checked = recheck(workload.task, record, scheduled, _option(device), _say)
        _note(checked, record, logs)
        error = checked.error
    if error is not None:
        raise RecordError(f"record {record.id} is not used: {error['kind']}: {error['text']}")
    return chosen


def _option(device: str | None) -> MeasureOption | None:
    """Settings for a check on a device."""
    from loopwright.measure import LocalRunner, measure_option

    return None if device is None else measure_option(runner=LocalRunner(device=device))


def _check(
    workload: Workload, context: ApplyHistoryBest, logs: Sequence[Log], device: str | None
) -> None:
    """Check the best record, if it never was; a wrong one makes way for the next best."""
    from loopwright.measure import recheck
    from loopwright.records import Checked
    from loopwright.task import Match

    task = workload.task
    for _ in range(_CHECKS):
        choice, scheduled = context.choose(task)
        if choice.record is None or scheduled is None or choice.checked is Checked.YES:
            return
        if choice.match is Match.DEFAULT:
            return  # that is what will be built
        click.echo(f"record {choice.record.id} was never checked: checking it", err=True)
        checked = recheck(task, choice.record, scheduled, _option(device), _say)
        context.load([checked])
        _note(checked, choice.record, logs)
        if checked.error is not None:
            text = f"{checked.error['kind']}: {checked.error['text']}"
            echo(f"record {choice.record.id} is out: {text}", err=True)
        elif checked.checked is not Checked.YES:
            echo(f"it cannot be checked: {checked.check_reason}", err=True)
            return


def _note(checked: Record, record: Record, logs: Sequence[Log]) -> None:
    """Append the outcome of a check to the log of its record, so that it is known next time."""
    from loopwright.records import Store

    path = next(log.path for log in logs if any(other is record for other in log))
    try:
        with Store(path) as store:
            store.append(checked)
    except RecordError as error:
        click.echo(f"the check is not noted: {error}", err=True)


def _say(text: str) -> None:
    echo(text, err=True)


def compiled(workload: Workload, scheduled: ChosenSchedule, *, verify: bool = False) -> Module:
    """Compile a schedule for the workload's target, or take its code from the user's cache;
    ``verify`` puts the time of the kernel, as users call it, into the report.
    """
    from loopwright.driver import build

    name = re.sub(r"\W+", "_", workload.task.name)
    name = name if name[0].isalpha() and not name.startswith("lw_") else f"kernel_{name}"
    target = workload.task.target
    with scheduled.context():
        return build(
            scheduled.schedule, scheduled.args, target, name=name, verify=verify, cache=True
        )


def random_arguments(module: Module, task: Task | None = None) -> list[Array]:
    """Arrays for the entry function: random inputs, outputs full of NaN or of a pattern. A task
    knows the meaning of its inputs, such as indices; without it they are small numbers.
    """
    from loopwright.measure.arguments import arguments
    from loopwright.measure.checking.check import poison
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


def on_device(arrays: Sequence[Array], device: Device) -> Sequence[Any]:
    """Arrays for the kernels of a device: those of the CPU as they are, else copies."""
    from loopwright.runtime import array, cpu

    return arrays if device == cpu() else [array(a, device=device) for a in arrays]


def device_of(target: Target, wanted: str | None) -> Device:
    """The one device that kernels of a target are timed on; several named ones are refused."""
    from loopwright.measure.devices import measured_on

    devices = measured_on(target, wanted or "")
    if len(devices) > 1:
        raise UsageError(f"--device {wanted}: kernels are compared on one device; name one")
    return devices[0]


def where(module: Module, device: Device) -> str:
    """The place where a kernel runs, for people: ``2 threads``, or the device."""
    from loopwright.runtime import cpu

    if device != cpu():
        return f"{device} ({device.device_name})"
    return counted(threads_of(module))


def threads_of(module: Module) -> int:
    from loopwright.runtime import get_num_threads

    return int(module.artifact.manifest["num_threads"]) or get_num_threads()
