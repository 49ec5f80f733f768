"""Tasks of a model, and its tuning: they share a budget that minimises end-to-end time."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loopwright.errors import GraphError, UsageError, did_you_mean
from loopwright.graph.batches import BatchSource, checked_batches, one_batch, source_of
from loopwright.graph.frontend.source import ModelLike, module_of
from loopwright.graph.kernels import KernelTasks, kernel_tasks, operators_of
from loopwright.graph.layout.choice import LayoutChoice, chosen_layouts
from loopwright.graph.op.windows import CHANNELS_BLOCKED, CHANNELS_LAST
from loopwright.graph.plan import Planned
from loopwright.graph.registry import DEFINITION, Pattern, get_op, op_names
from loopwright.graph.transform.pipeline import prepared
from loopwright.measure import MeasureOption
from loopwright.task import TargetLike, Task, resolve_target
from loopwright.tuner import (
    Callback,
    TasksMonitor,
    TasksSummary,
    flop_of,
    log_to_file,
    seconds,
    shows_progress,
    task_table,
    tune_tasks,
)
from loopwright.tuner.run import loop


@dataclass(frozen=True)
class ModelTask:
    """A task of a model.

    Example:
        >>> x = lw.graph.var("x", (1, 64))
        >>> y = lw.graph.op.nn.dense(x, np.ones((64, 64), "float32"))
        >>> y = lw.graph.op.nn.dense(y, np.ones((64, 64), "float32"))
        >>> module = lw.graph.IRModule.from_expr(y)
        >>> print([(t.weight, t.ops) for t in lw.graph.extract_tasks(module, "llvm")])
        [(2, ('nn.dense',))]
    """

    task: Task  #: its key is the hash of the expression and the kind of target
    weight: int  #: number of calls of its kernels in a run of the model
    #: names in the compiled model; of several batches with the batch appended: ``"dense_0@8"``
    kernels: tuple[str, ...]
    ops: tuple[str, ...]  #: the operators that they are made of, in order
    implementation: str = DEFINITION  #: of their anchor, see `Implementation`
    #: equal for tasks that compute the same kernels in different ways: the fastest counts
    group: str = ""
    rank: int = 0  #: number of tasks of its group that have a higher priority
    constant_bytes: int = 0  #: of the constants that one call of its kernels reads

    @property
    def is_simple(self) -> bool:
        """Whether no operator sums or multiplies along an axis: elements are moved and mapped."""
        return all(get_op(name).pattern <= Pattern.INJECTIVE for name in self.ops)


def extract_tasks(
    model: ModelLike | BatchSource,
    target: TargetLike = None,
    *,
    ops: Collection[str] | None = None,
    include_simple_tasks: bool = False,
    example_inputs: Sequence[Any] | None = None,
    layouts: LayoutChoice | str | os.PathLike[str] | None = None,
    batches: Iterable[int] | None = None,
) -> list[ModelTask]:
    """The tasks of a model, each once, in the order in which the model first needs them.

    They are of the kernels that `compile` builds for the same target: what is tuned is what runs. A
    kernel whose operator has several implementations has a task for each that can compute it.

    Args:
        model, target, example_inputs, layouts, batches: as of `compile`, but for measured layouts.
            Of several batches each expression has one task; its weight is the sum of its calls in a
            run of each batch. Nodes without a kernel have no task.
        ops: only tasks that contain one of these operators, such as ``["nn.conv"]``, in any layout;
            None: all.
        include_simple_tasks: also tasks that only move and map elements, whose default mostly runs
            at memory speed; they are left out unless ``ops`` names one of their operators.

    Raises:
        GraphError: there is no such operator, this is no model, or `compile` would refuse it.
        UsageError: ``batches`` is empty, or given with layouts; or the layouts are invalid.

    Example:
        >>> x = lw.graph.var("x", (1, 64))
        >>> y = lw.graph.op.nn.softmax(lw.graph.op.nn.dense(x, np.ones((10, 64), "float32")))
        >>> module = lw.graph.IRModule.from_expr(y)
        >>> for found in lw.graph.extract_tasks(module, "llvm"):
        ...     print(found.weight, found.task, found.kernels)
        ...
        1 graph/dense((1, 64), (10, 64)) ('dense_0',)
        1 graph/softmax((1, 10)) ('softmax_1',)
    """
    if isinstance(ops, str):
        raise GraphError(f"ops are given as a list of names: [{ops!r}]")
    for name in ops or ():
        if name not in op_names():
            hint = did_you_mean(str(name), op_names())
            raise GraphError(f"there is no operator {name!r}{hint}; see lw.graph.op_names()")
    resolved = resolve_target(target)
    if batches is None:
        module = module_of(one_batch(model), example_inputs=example_inputs)
        planned = prepared(module, chosen_layouts(layouts), resolved)
        tasks = grouped(planned, kernel_tasks(planned, resolved))
    else:
        if layouts is not None:
            raise UsageError("layouts are chosen for known sizes; give them or batches, not both")
        source = source_of(model, example_inputs=example_inputs)
        tasks = _merged(
            (batch, grouped(planned, kernel_tasks(planned, resolved)))
            for batch in checked_batches(batches)
            for planned in [prepared(source.at(batch), target=resolved)]
        )
    if ops is None:
        return [one for one in tasks if include_simple_tasks or not one.is_simple]
    # `ConvertLayout` and `AlterOpLayout` give operators other names.
    names = {name + end for name in ops for end in ("", CHANNELS_LAST, CHANNELS_BLOCKED)}
    return [one for one in tasks if not names.isdisjoint(one.ops)]


def grouped(planned: Planned, tasks: KernelTasks) -> list[ModelTask]:
    """The tasks of a program's kernels, each once: kernels of one expression have one task."""
    tasks_by_key: dict[str, ModelTask] = {}
    for name, candidates in tasks.items():
        group = candidates[0].task.key
        for rank, one in enumerate(candidates):
            key, calls = one.task.key, planned.calls[name]
            before = tasks_by_key.get(key)
            if before is not None:
                kernels = (*before.kernels, name)
                tasks_by_key[key] = replace(before, weight=before.weight + calls, kernels=kernels)
                continue
            program = planned.program
            step = next(step for step in program.steps if step.kernel == name)
            values = [program.values[n] for n in step.args]
            tasks_by_key[key] = ModelTask(
                one.task,
                calls,
                (name,),
                operators_of(planned.kernels[name][0]),
                one.implementation,
                group,
                rank,
                constant_bytes=sum(v.nbytes for v in values if v.kind == "constant"),
            )
    return list(tasks_by_key.values())


def _merged(batches: Iterable[tuple[int, list[ModelTask]]]) -> list[ModelTask]:
    merged: dict[str, ModelTask] = {}
    for batch, tasks in batches:
        for one in tasks:
            kernels = tuple(f"{name}@{batch}" for name in one.kernels)
            before = merged.get(one.task.key)
            if before is not None:
                kernels = (*before.kernels, *kernels)
                one = replace(before, weight=before.weight + one.weight)
            merged[one.task.key] = replace(one, kernels=kernels)
    return list(merged.values())


#: Trials of a task, on average, where no limit is given.
TRIALS = 64
#: Bytes of weights that are told: more than caches hold.
_MOST = 64 << 20
#: Limits of `tune_tasks` beside the number of trials.
_LIMITS = ("early_stopping", "per_task_early_stopping", "min_gain")


def tune(
    model: ModelLike | BatchSource | list[ModelTask],
    target: TargetLike = None,
    *,
    log: str | os.PathLike[str],
    trials: int | None = None,
    timeout: float | str | None = None,
    ops: Collection[str] | None = None,
    include_simple_tasks: bool = False,
    example_inputs: Sequence[Any] | None = None,
    layouts: LayoutChoice | str | os.PathLike[str] | None = None,
    batches: Iterable[int] | None = None,
    callbacks: Sequence[Callback | TasksMonitor] = (),
    verbose: bool | None = None,
    **options: Any,
) -> TasksSummary:
    """Tune the kernels of a model, so that the model as a whole becomes faster.

    Each kernel is a task, weighted by the number of its calls in the model. The next trials go to
    the task that promises most for the sum of weight x time, see `loopwright.tune_tasks`. Of
    several implementations of a kernel each gets a round, those of the highest priority first; then
    the fastest counts, and goes on. Every measurement is in the log before it is used: a run that
    was killed continues from there when it is called again. `compile` takes the log as its history.

    On a CPU, a call of a kernel finds its constants where they are inside the model: as many bytes
    of others have been read since the last one as the model has weights
    (``LocalRunner.other_constants``), unless the measure option says otherwise. A kernel that reads
    its weights often is slow where each time they come from memory.

    Args:
        model: as of `extract_tasks`, or tasks that it gave.
        target: of the kernels; None is the current target, or the default one. Of tasks, their own.
        log: the file that measurements are appended to.
        trials: valid results that the log has to hold of all tasks together, at least one a task;
            without any limit 64 for each task.
        timeout: of this call, making the tasks and the final comparison included: seconds, or
            ``"90s"``, ``"30m"``, ``"8h"``.
        ops, include_simple_tasks, example_inputs, layouts, batches: as of `extract_tasks`.
        callbacks: such as ``loopwright.tuner.task_table()``; see `loopwright.tune_tasks`.
        verbose: show that table; None: on a terminal and in a notebook, unless a callback shows it.
        options: others of `loopwright.tune_tasks`, such as ``tuner``, ``seed``, ``min_gain`` and
            ``measure_option``.

    Returns:
        The table of tasks. Its ``expected`` is the expected time of a run of the model in seconds,
        as far as its tasks go: of kernels that no playoff compared with the default, that of the
        default.

    Raises:
        GraphError: this is no model, or it has nothing to tune.
        UsageError: a limit is malformed, or there are fewer trials than tasks.
        TuneError, NothingRan, TuningInterrupted: as of `loopwright.tune_tasks`.

    Example:
        >>> x = lw.graph.var("x", (8, 64))
        >>> y = lw.graph.op.nn.softmax(lw.graph.op.nn.dense(x, np.ones((32, 64), "float32")))
        >>> module = lw.graph.IRModule.from_expr(y)
        >>> summary = lw.tune(module, "llvm", log="model.jsonl", trials=4)
        >>> print(summary.trials, [row.weight for row in summary.rows])
        4 [1, 1]
        >>> model = lw.compile(module, "llvm", history="model.jsonl")
    """
    begin = time.monotonic()
    if "n_trial" in options:
        raise UsageError("n_trial: of a model it is called trials, of all its tasks together")
    limit = seconds(timeout)
    if not isinstance(model, list):
        model = extract_tasks(
            model,
            target,
            ops=ops,
            include_simple_tasks=include_simple_tasks,
            example_inputs=example_inputs,
            layouts=layouts,
            batches=batches,
        )
    tasks = _by_work(model)
    if trials is None and limit is None and all(options.get(name) is None for name in _LIMITS):
        trials = TRIALS * len(tasks)
    if limit is not None:
        limit -= time.monotonic() - begin
        if limit <= 0:
            raise UsageError(
                f"timeout {timeout!r}: making {len(tasks)} tasks of the model took longer; give it "
                "more time"
            )
    if shows_progress(verbose, callbacks):
        callbacks = [*callbacks, task_table()]
    options["measure_option"] = _among_weights(options.get("measure_option"), tasks)
    return tune_tasks(
        [one.task for one in tasks],
        n_trial=trials,
        timeout=limit,
        callbacks=[log_to_file(os.fspath(log)), *callbacks],
        weights=[one.weight for one in tasks],
        alternatives=[one.group or None for one in tasks],
        **options,
    )


def _among_weights(measure_option: Any, tasks: Sequence[ModelTask]) -> Any:
    """A measure option under which the model's other weights are read between calls of a kernel."""
    option = loop.default_option() if measure_option is None else measure_option
    if not isinstance(option, MeasureOption) or option.runner.other_constants is not None:
        return option
    weights = sum(one.weight * one.constant_bytes for one in tasks if one.rank == 0)
    return replace(option, runner=replace(option.runner, other_constants=min(weights, _MOST)))


def _by_work(tasks: list[ModelTask]) -> list[ModelTask]:
    """The tasks, largest work first: a budget may end before each had a turn."""
    if not all(isinstance(one, ModelTask) for one in tasks):
        raise GraphError("tune: expected a model, or the tasks that extract_tasks gives")
    if not tasks:
        raise GraphError(
            "tune: the model has no kernel that computes more than elements one by one; "
            "include_simple_tasks=True tunes those"
        )
    # Implementations built without records come first: one with a record replaces them.
    return sorted(tasks, key=lambda one: (one.rank, -one.weight * flop_of(one.task)))
