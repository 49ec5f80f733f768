"""Ansor's inputs and results of measurements, and logs of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from loopwright import records
from loopwright.compat.autotvm import result_fields
from loopwright.compat.states import (
    ComputeDAG,
    State,
    named_workload,
    registered_tensors,
    workload_key_to_tensors,
)
from loopwright.errors import TaskError, UsageError
from loopwright.history import rebuild
from loopwright.measure import LocalBuilder, LocalRunner, measure_option
from loopwright.measure import MeasureInput as TrialInput
from loopwright.measure import MeasureResult as TrialResult
from loopwright.records import Expression, Log, Record, Store
from loopwright.space import EXPRESSION, tensor_program
from loopwright.target import Target
from loopwright.task import TASKS
from loopwright.te import Dag
from loopwright.tuner import LogToFile, Monitor, progress_bar, result_of

if TYPE_CHECKING:
    from loopwright.measure import MeasureOption
    from loopwright.tuner import Callback, TunerLike


class MeasuredTask:
    """The facts of a record about its task; its key is that of `make_workload_key`, and of tensors
    without a function the hash of their expression.
    """

    def __init__(self, workload_key: str, target: Target, make_dag: Callable[[], ComputeDAG]):
        self.workload_key, self.target = workload_key, target
        self._make_dag = make_dag

    @cached_property
    def compute_dag(self) -> ComputeDAG:
        return self._make_dag()


class MeasureInput:
    """A schedule of a `SearchTask`, or of a task that a record has facts about, measured or to be
    measured, with its record or None.

    Example:
        >>> X = te.placeholder((16,), name="X")
        >>> dag = lw.auto_scheduler.ComputeDAG(te.compute((16,), lambda i: X[i] + 1, name="Y"))
        >>> task = lw.auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> item = lw.auto_scheduler.MeasureInput(task, dag.get_init_state())
        >>> print(item.task.target.kind, len(item.state.transform_steps))
        llvm 0
    """

    def __init__(self, task: Any, state: State, record: Record | None = None) -> None:
        self.task, self.state, self.record = task, state, record


def key_of(name: str, args: Sequence[Any], dag_hash: str, unnamed: str) -> str:
    return json.dumps([dag_hash] if name == unnamed else [name, *args])


def input_of(log: Log, record: Record, unnamed: str) -> MeasureInput:
    """The input of a record; the expression is read on demand."""

    def scheduled() -> Any:
        rebuilt = rebuild(log, record)
        return rebuilt.schedule, rebuilt.args

    def dag() -> ComputeDAG:
        return ComputeDAG.of_schedule(*scheduled())

    key = key_of(record.op, record.args, record.dag, unnamed)
    target = Target({name: value for name, value in record.target.items() if name != "cc"})
    return MeasureInput(MeasuredTask(key, target, dag), State(scheduled), record)


def input_of_tuner(item: TrialInput, task: Any) -> MeasureInput:
    tuned = item.task
    state = State(lambda: tuned.instantiate(item.config), task.compute_dag, item.config)
    return MeasureInput(task, state)


class MeasureResult(TrialResult):
    """The result of a trial: that of ``autotvm`` with ``error_msg``, the text of a failure, as
    third argument; its other arguments and errors apply.

    Example:
        >>> result = lw.auto_scheduler.MeasureResult((0.5, 0.7), 0, "", 3.0, 1.6e9)
        >>> print(result.costs, result.error_no.name, result.all_cost)
        (0.5, 0.7) NO_ERROR 3.0
    """

    def __init__(
        self,
        costs: Sequence[float] = (),
        error_no: int = 0,
        error_msg: str | None = None,
        all_cost: float = 0.0,
        timestamp: float = 0.0,
        **fields: Any,
    ) -> None:
        values = result_fields(costs, error_no or 0, error_msg or "", all_cost, timestamp)
        super().__init__(**(values | fields))

    @property
    def error_msg(self) -> str:
        """The text of the failure; empty where there is none."""
        return "" if self.error is None else self.error.text


def as_measured(result: TrialResult) -> MeasureResult:
    return MeasureResult(**{f.name: getattr(result, f.name) for f in fields(result)})


class LocalRPCMeasureContext:
    """Ansor's runner in a process of its own: its ``runner``, for `TuningOptions`, is an ordinary
    one.

    Args:
        priority, n_parallel: accepted: kernels of one device run one after the other.
        number, repeat, min_repeat_ms: calls of a sample, samples, and the least time of a sample in
            milliseconds; without any of them, samples are those of `loopwright.LocalRunner`.
        device: 0, the first of the target's kind, or a name, such as ``"opencl:1"``; UsageError
            for other numbers.

    Example:
        >>> print(lw.auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=300).runner.counts)
        (3, 1, 300)
    """

    def __init__(
        self,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: float = 10,
        number: int | None = None,
        repeat: int | None = None,
        min_repeat_ms: float | None = None,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int | str = 0,
    ) -> None:
        if isinstance(device, int) and device != 0:
            raise UsageError(
                f"LocalRPCMeasureContext: device {device} does not say its kind; name it, such as "
                f'device="opencl:{device}"'
            )
        if (number, repeat, min_repeat_ms) != (None, None, None):  # all have Ansor's meaning then
            number, repeat = number or 3, repeat or 1
            min_repeat_ms = min_repeat_ms or 0
        self.runner = LocalRunner(
            timeout=timeout,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            cooldown_interval=cooldown_interval,
            enable_cpu_cache_flush=enable_cpu_cache_flush,
            device=str(device or ""),
        )


AnyPath = str | os.PathLike[str]
_FILE = "auto_scheduler_tuning.json"  # Ansor's name of the log where none is given


class RecordToFile(LogToFile):
    """The log of a search, for ``measure_callbacks``: ``loopwright.callback.log_to_file``.

    Example:
        >>> print(lw.auto_scheduler.RecordToFile("matmul.json").filename)
        matmul.json
    """

    def __init__(self, filename: AnyPath = _FILE) -> None:
        super().__init__(filename)
        self.filename = self.path


class RecordReader:
    """Reads a log; raises a RecordError where it does not exist or cannot be read.

    Example:
        >>> reader = lw.auto_scheduler.RecordReader("matmul.jsonl")
        >>> inputs, results = reader.read_lines(max_lines=2)
        >>> print(len(inputs), inputs[0].task.workload_key)
        2 ["matmul", 64, 64, 64, false, false, "float32"]
        >>> print(sum(result.error_no == 0 for _, result in reader) >= 6)
        True
    """

    def __init__(self, filename: AnyPath = _FILE) -> None:
        self.filename = os.fspath(filename)
        self._log = records.load(filename)

    def __iter__(self) -> Iterator[tuple[MeasureInput, MeasureResult]]:
        for record in self._log:
            if not record.phase:  # further measurements of a trial are none of their own
                yield self.pair(record)

    def pair(self, record: Record) -> tuple[MeasureInput, MeasureResult]:
        """A record of the log as input and result."""
        return input_of(self._log, record, EXPRESSION), as_measured(result_of(record))

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Inputs and results of up to ``max_lines`` trials behind ``skip_lines``, in two lists; all
        for None, or below 1.
        """
        end = None if max_lines is None or max_lines < 1 else skip_lines + max_lines
        pairs = list(islice(self, skip_lines, end))
        return [item for item, _ in pairs], [result for _, result in pairs]

    @property
    def records(self) -> list[Record]:
        """All records, as `loopwright.records` has them."""
        return list(self._log)


def load_records(filename: AnyPath) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Yield ``(MeasureInput, MeasureResult)`` of each trial of a log, as `RecordReader` does.

    Example:
        >>> pairs = list(lw.auto_scheduler.load_records("matmul.jsonl"))
        >>> print(len(pairs) >= 6, len(pairs[0][0].state.transform_steps) > 0)
        True True
    """
    return iter(RecordReader(filename))


def load_best_record(
    filename: AnyPath,
    workload_key: str | None = None,
    target: Target | str | None = None,
    include_compatible: bool = False,
) -> tuple[MeasureInput, MeasureResult] | tuple[None, None]:
    """The best trial of a log, by the rule of `loopwright.records.best`: input and result, or
    ``(None, None)`` where there is none; TaskError where no workload has the key.

    Args:
        workload_key: key of the workload; all records of an equal expression count. None: any.
        target: only trials for targets of its kind; None: any.
        include_compatible: accepted: exactly the records of an equal expression count.
    """
    reader = RecordReader(filename)
    candidates = reader.records
    if workload_key is not None:
        candidates = _of_workload(candidates, workload_key)
    if target is not None:
        kind = (target if isinstance(target, Target) else Target(target)).canonical["kind"]
        candidates = [record for record in candidates if record.target.get("kind") == kind]
    best = records.best(candidates)
    return (None, None) if best is None else reader.pair(best)


def _of_workload(records: Sequence[Record], workload_key: str) -> list[Record]:
    """The records of a workload; by name and arguments where its function is not registered."""
    if registered_tensors(workload_key) is None:
        name, args = named_workload(workload_key)
        if name not in TASKS and not args:  # an expression by its hash
            return [record for record in records if record.dag == name]
        if name not in TASKS:
            return [r for r in records if r.op == name and list(r.args) == args]
    program = tensor_program(workload_key_to_tensors(workload_key))
    dag, _ = Dag.from_ops([t.op for t in program.outputs])
    return [record for record in records if record.dag == dag.hash]


def save_records(
    filename: AnyPath, inputs: Sequence[MeasureInput], results: Sequence[TrialResult]
) -> None:
    """Append trials to a log, which is created when it does not exist.

    The inputs are of a log, whose records are written as they are, or states of a `SearchTask`.
    UsageError where the numbers of inputs and results differ; RecordError where the log cannot be
    written.

    Example:
        >>> inputs, results = lw.auto_scheduler.RecordReader("matmul.jsonl").read_lines(2)
        >>> lw.auto_scheduler.save_records("two.jsonl", inputs, results)
        >>> print(len(list(lw.auto_scheduler.load_records("two.jsonl"))))
        2
    """
    if len(inputs) != len(results):
        raise UsageError(f"save_records: {len(inputs)} inputs and {len(results)} results")
    with Store(filename) as store:
        for item, result in zip(inputs, results, strict=True):
            schedule, record = item.state.schedule, item.record or _record(item, result)
            ids, dag = list(schedule.arg_ids(item.state.args)), schedule.dag
            store.expression(Expression(dag.hash, dag.to_json(), ids, record.op, record.args))
            store.append(record)


def _record(item: MeasureInput, result: TrialResult) -> Record:
    task = getattr(item.task, "automatic_task", None)
    if task is None:
        raise TaskError("save_records takes inputs of a log, or of a SearchTask")
    error, config = result.error, item.state.config
    same = ("dropped", "build_s", "run_s", "ts", "checked", "check_reason", "max_error", "program")
    return Record(
        task=task.key,
        op=task.name,
        args=list(task.args),
        target=item.task.target.canonical,
        config={} if config is None else config.values,
        times=tuple(result.times),
        dag=item.state.schedule.dag.hash,
        trace=item.state.transform_steps,
        error=None if error is None else {"kind": error.kind, "text": error.text},
        env=records.environment(),
        **{name: getattr(result, name) for name in (*same, "code")},
    )


class _Silent(Monitor):
    """Shows nothing, not even the end of a run."""

    shows_result = True


class TuningOptions:
    """Limits of a search, and settings of measuring; UsageError where a number is malformed, two
    logs are named, or builder, runner or a callback is of another kind.

    Args:
        num_measure_trials: valid trials of a search, beyond those in its log; 0: none.
        early_stopping: number of trials without a better one that ends a search; None, or below
            1: no limit.
        num_measures_per_round: trials before the model learns again; None: 16, which learns
            faster than Ansor's 64.
        verbose: 0 prints nothing; 1 shows progress.
        runner: ``"local"``, a `LocalRunner`, or that of a `LocalRPCMeasureContext`.
        measure_callbacks: `RecordToFile` names the log; others are called
            ``callback(tuner, inputs, results)`` after every round, or have a method ``callback``
            that takes the policy in place of the tuner, as Ansor's do.

    Example:
        >>> record = lw.auto_scheduler.RecordToFile("matmul.json")
        >>> options = lw.auto_scheduler.TuningOptions(10, measure_callbacks=[record])
        >>> print(options.num_measure_trials, options.log)
        10 matmul.json
    """

    def __init__(
        self,
        num_measure_trials: int = 0,
        early_stopping: int | None = None,
        num_measures_per_round: int | None = None,
        verbose: int = 1,
        builder: LocalBuilder | str = "local",
        runner: LocalRunner | str = "local",
        measure_callbacks: Sequence[Any] | None = None,
    ) -> None:
        self.num_measure_trials = _checked_count("num_measure_trials", num_measure_trials, 0)
        no_limit = early_stopping is None or early_stopping < 1
        self.early_stopping = None if no_limit else early_stopping
        self.num_measures_per_round = num_measures_per_round
        if num_measures_per_round is not None:
            _checked_count("num_measures_per_round", num_measures_per_round, 1)
        self.verbose = verbose
        self.measure_option: MeasureOption = measure_option(builder, runner)
        self.builder, self.runner = self.measure_option.builder, self.measure_option.runner
        self.measure_callbacks = list(measure_callbacks or ())
        logs = [one for one in self.measure_callbacks if isinstance(one, RecordToFile)]
        if len(logs) > 1:
            raise UsageError(
                f"TuningOptions: {len(logs)} logs; give one RecordToFile, and copy the log"
            )
        self.log = logs[0].filename if logs else None
        for one in self.measure_callbacks:
            if not callable(one) and not callable(getattr(one, "callback", None)):
                raise UsageError(
                    f"TuningOptions: {one!r:.60} is no callback: give a RecordToFile, or what is "
                    "called with (tuner, inputs, results)"
                )

    def callbacks(self, policies: Sequence[Any]) -> list[Callback]:
        """The callbacks of tuners; those with Ansor's method get the policy whose round it was."""
        by_task = {policy.automatic_task.key: policy for policy in policies}

        def relay(one: Any) -> Callback:
            def call(
                tuner: TunerLike, inputs: Sequence[TrialInput], results: Sequence[TrialResult]
            ) -> None:
                policy = by_task[tuner.task.key]
                measured = [input_of_tuner(item, policy.task) for item in inputs]
                one.callback(policy, measured, [as_measured(result) for result in results])

            return call

        return [one if callable(one) else relay(one) for one in self.measure_callbacks]

    def display(self, policy: Any) -> Monitor:
        return progress_bar() if self.verbose and policy.verbose else _Silent()


def _checked_count(name: str, value: int, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"TuningOptions: {name} is an integer of at least {least}, got {value!r}")
    return value
