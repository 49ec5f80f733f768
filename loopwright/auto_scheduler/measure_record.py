"""``auto_scheduler.measure_record``: logs as pairs of ``MeasureInput`` and ``MeasureResult``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from loopwright import records
from loopwright.auto_scheduler.measure import MeasureInput, MeasureResult, input_of, recorded_result
from loopwright.auto_scheduler.workload_registry import (
    named_workload,
    registered_tensors,
    workload_key_to_tensors,
)
from loopwright.errors import TaskError, UsageError
from loopwright.measure import MeasureResult as AnyResult
from loopwright.records import Expression, Record, Store
from loopwright.space.expression import tensor_program
from loopwright.space.tasks import EXPRESSION
from loopwright.target import Target
from loopwright.task import TASKS
from loopwright.te import Dag
from loopwright.tuner.run.callbacks import LogToFile

__all__ = ["RecordReader", "RecordToFile", "load_best_record", "load_records", "save_records"]

AnyPath = str | os.PathLike[str]
#: Ansor's name of the log where none is given.
_FILE = "auto_scheduler_tuning.json"


class RecordToFile(LogToFile):
    """The log of a search, for ``measure_callbacks``; as ``loopwright.callback.log_to_file``.

    Args:
        filename: the log, JSON lines; created when it does not exist. A search continues it.

    Example:
        >>> from loopwright import auto_scheduler
        >>> print(auto_scheduler.RecordToFile("matmul.json").filename)
        matmul.json
    """

    def __init__(self, filename: AnyPath = _FILE) -> None:
        super().__init__(filename)
        self.filename = self.path


class RecordReader:
    """Reads a log.

    Args:
        filename: the log.

    Raises:
        RecordError: it does not exist or cannot be read.

    Example:
        >>> from loopwright import auto_scheduler
        >>> reader = auto_scheduler.RecordReader("matmul.jsonl")
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
        return input_of(self._log, record, EXPRESSION), recorded_result(record)

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Inputs and results of trials, in two lists.

        Args:
            max_lines: trials at most; None, or below 1: all.
            skip_lines: number of trials to skip first.
        """
        end = None if max_lines is None or max_lines < 1 else skip_lines + max_lines
        pairs = list(islice(self, skip_lines, end))
        return [item for item, _ in pairs], [result for _, result in pairs]

    @property
    def records(self) -> list[Record]:
        """All records, as `loopwright.records` has them."""
        return list(self._log)


def load_records(filename: AnyPath) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Yield ``(MeasureInput, MeasureResult)`` of each trial of a log.

    Raises:
        RecordError: the log does not exist or cannot be read.

    Example:
        >>> from loopwright import auto_scheduler
        >>> pairs = list(auto_scheduler.load_records("matmul.jsonl"))
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
    """The best trial of a log, by the rule of `loopwright.records.best`.

    Args:
        filename: the log.
        workload_key: key of the workload; all records of an equal expression count. None: any.
        target: only trials for targets of its kind; None: any.
        include_compatible: accepted: exactly the records of an equal expression count.

    Returns:
        Input and result; ``(None, None)`` where there is none.

    Raises:
        RecordError: the log does not exist or cannot be read.
        TaskError: no workload has the key.

    Example:
        >>> from loopwright import auto_scheduler
        >>> item, result = auto_scheduler.load_best_record("matmul.jsonl", target="llvm")
        >>> print(item.record.id == lw.records.best(lw.records.load("matmul.jsonl")).id)
        True
    """
    reader = RecordReader(filename)
    found = reader.records
    if workload_key is not None:
        found = _of_workload(found, workload_key)
    if target is not None:
        kind = (target if isinstance(target, Target) else Target(target)).canonical["kind"]
        found = [record for record in found if record.target.get("kind") == kind]
    best = records.best(found)
    return (None, None) if best is None else reader.pair(best)


def _of_workload(found: Sequence[Record], workload_key: str) -> list[Record]:
    """The records of a workload; by name and arguments where its function is not registered."""
    if registered_tensors(workload_key) is None:
        name, args = named_workload(workload_key)
        if name not in TASKS and not args:  # an expression by its hash
            return [record for record in found if record.dag == name]
        if name not in TASKS:
            return [r for r in found if r.op == name and list(r.args) == args]
    program = tensor_program(workload_key_to_tensors(workload_key))
    dag, _ = Dag.from_ops([t.op for t in program.outputs])
    return [record for record in found if record.dag == dag.hash]


def save_records(
    filename: AnyPath, inputs: Sequence[MeasureInput], results: Sequence[AnyResult]
) -> None:
    """Append trials to a log.

    Args:
        filename: the log; created when it does not exist.
        inputs: inputs from a log, whose records are written as they are, or states of a
            `SearchTask`.
        results: the result of each.

    Raises:
        UsageError: their numbers differ.
        RecordError: the log cannot be written.

    Example:
        >>> from loopwright import auto_scheduler
        >>> inputs, results = auto_scheduler.RecordReader("matmul.jsonl").read_lines(2)
        >>> auto_scheduler.save_records("two.jsonl", inputs, results)
        >>> print(len(list(auto_scheduler.load_records("two.jsonl"))))
        2
    """
    if len(inputs) != len(results):
        raise UsageError(f"save_records: {len(inputs)} inputs and {len(results)} results")
    with Store(filename) as store:
        for item, result in zip(inputs, results, strict=True):
            store.expression(_expression(item))
            store.append(item.record or _record(item, result))


def _expression(item: MeasureInput) -> Expression:
    schedule, task = item.state.schedule, _identity(item)
    ids: list[Any] = list(schedule.arg_ids(item.state.args))
    dag = schedule.dag
    return Expression(dag.hash, dag.to_json(), ids, task[1], task[2])


def _identity(item: MeasureInput) -> tuple[str, str, list[Any]]:
    """Key, name and arguments of the task of an input."""
    if item.record is not None:
        return item.record.task, item.record.op, item.record.args
    task = getattr(item.task, "automatic_task", None)
    if task is None:
        raise TaskError("save_records takes inputs of a log, or of a SearchTask")
    return task.key, task.name, list(task.args)


def _record(item: MeasureInput, result: AnyResult) -> Record:
    key, op, args = _identity(item)
    error = result.error
    config = item.state.config
    return Record(
        task=key,
        op=op,
        args=args,
        target=item.task.target.canonical,
        config={} if config is None else config.values,
        times=tuple(result.times),
        dag=item.state.schedule.dag.hash,
        trace=item.state.transform_steps,
        dropped=result.dropped,
        error=None if error is None else {"kind": error.kind, "text": error.text},
        build_s=result.build_s,
        run_s=result.run_s,
        ts=result.ts,
        env=records.environment(),
        checked=result.checked,
        check_reason=result.check_reason,
        max_error=result.max_error,
        program=result.program,
        code=result.code,
    )
