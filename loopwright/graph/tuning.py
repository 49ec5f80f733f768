"""Tuning of whole models: the tasks share a budget that minimises end-to-end time."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from loopwright.errors import GraphError, UsageError
from loopwright.graph.batches.source import BatchSource
from loopwright.graph.frontend.source import ModelLike
from loopwright.graph.layout.choice import LayoutChoice
from loopwright.graph.tasks import ModelTask, extract_tasks
from loopwright.measure import MeasureOption
from loopwright.task.task import TargetLike
from loopwright.tuner import TasksMonitor, TasksSummary, log_to_file, tune_tasks
from loopwright.tuner.run import loop
from loopwright.tuner.run.budget import seconds
from loopwright.tuner.run.interfaces import Callback
from loopwright.tuner.run.state import flop_of

#: Trials of a task, on average, where no limit is given.
TRIALS = 64
#: Bytes of weights that are told: more than caches hold.
_MOST = 64 << 20
#: Name of the number of trials in `tune_tasks`.
_TRIALS = "n_trial"
#: Names of its other limits.
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
        model: a module, an ONNX model as `from_onnx` takes it, a model of PyTorch as `from_torch`
            does, or tasks of `extract_tasks`.
        target: of the kernels; None is the current target, or the default one. Of tasks, their own.
        log: the file that measurements are appended to.
        trials: valid results that the log has to hold of all tasks together, at least one a task;
            without any limit 64 for each task.
        timeout: of this call, making the tasks and the final comparison included: seconds, or
            ``"90s"``, ``"30m"``, ``"8h"``.
        ops, include_simple_tasks, example_inputs, layouts, batches: as of `extract_tasks`.
        callbacks: such as ``loopwright.tuner.task_table()``; see `loopwright.tune_tasks`.
        options: others of `loopwright.tune_tasks`, such as ``tuner``, ``seed``, ``min_gain`` and
            ``measure_option``.

    Returns:
        The table of tasks. Its ``expected`` is the expected time of a run of the model in seconds,
        as far as its tasks go: of kernels that no playoff compared with the default, that of the
        default.

    Raises:
        GraphError: this is no model, or it has nothing to tune.
        UsageError: a limit is malformed, or there are fewer trials than tasks.
        TuneError, NothingRan: as of `loopwright.tune_tasks`.
        TuningInterrupted: Ctrl-C; the log is synced.

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
    if _TRIALS in options:
        raise UsageError(f"{_TRIALS}: of a model it is called trials, of all its tasks together")
    limit = seconds(timeout)
    if isinstance(model, list):
        tasks = _by_work(model)
    else:
        found = extract_tasks(
            model,
            target,
            ops=ops,
            include_simple_tasks=include_simple_tasks,
            example_inputs=example_inputs,
            layouts=layouts,
            batches=batches,
        )
        tasks = _by_work(found)
    if trials is None and limit is None and all(options.get(name) is None for name in _LIMITS):
        trials = TRIALS * len(tasks)
    if limit is not None:
        limit -= time.monotonic() - begin
        if limit <= 0:
            raise UsageError(
                f"timeout {timeout!r}: making {len(tasks)} tasks of the model took longer; give it "
                "more time"
            )
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


def _among_weights(given: Any, tasks: Sequence[ModelTask]) -> Any:
    """A measure option under which the model's other weights are read between calls of a kernel."""
    option = loop.default_option() if given is None else given
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
