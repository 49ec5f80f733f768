"""``autotvm.record``: logs as pairs of ``MeasureInput`` and ``MeasureResult``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from loopwright.errors import LoopwrightError
from loopwright.measure import MeasureInput, MeasureResult
from loopwright.records import Record, load, pick_best, split
from loopwright.task import TASKS, Task
from loopwright.task.dispatch import say_once
from loopwright.tuner.run.recorded import result_of

__all__ = ["Pair", "load_from_file", "pick_best", "split_workload"]


class Pair(tuple[MeasureInput, MeasureResult]):
    """``(input, result)`` of one record.

    Attributes:
        record: the record.

    Example:
        >>> for measure_input, result in lw.autotvm.record.load_from_file("matmul.jsonl"):
        ...     assert result.error_no == 0 and measure_input.config.index is not None
        ...
    """

    record: Record

    def __new__(cls, record: Record, item: MeasureInput) -> Pair:
        """Make the pair of a record."""
        pair = super().__new__(cls, (item, result_of(record)))
        pair.record = record
        return pair


def load_from_file(filename: str | os.PathLike[str]) -> Iterator[Pair]:
    """Yield ``(MeasureInput, MeasureResult)`` of each record of a log of loopwright or AutoTVM.

    ``tuner.load_history`` and ``apply_history_best`` take them. Lines that cannot be understood,
    and records whose template is not registered or refuses their arguments, are passed over, which
    is said once.

    Raises:
        RecordError: the file does not exist or cannot be read.

    Example:
        >>> for measure_input, result in lw.autotvm.record.load_from_file("matmul.jsonl"):
        ...     assert measure_input.task.name == "matmul"
        ...
    """
    log = load(filename)
    if complaint := log.complaint():
        say_once(complaint)
    tasks: dict[tuple[str, str], Task | str] = {}
    missed: Counter[str] = Counter()
    for record in log:
        key = (record.task, repr(sorted(record.target.items())))
        if key not in tasks:
            tasks[key] = _task(record)
        task = tasks[key]
        if isinstance(task, str):
            missed[task] += 1
            continue
        try:
            yield Pair(record, MeasureInput(task, task.config(record.config), record.trial))
        except LoopwrightError as error:
            missed[f"configurations do not fit {task}: {error}"] += 1
    if missed:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in missed.most_common(3))
        say_once(f"{filename}: passed over {missed.total()} of {len(log)} records: {reasons}")


def split_workload(
    in_file: str | os.PathLike[str], out_dir: str | os.PathLike[str] | None = None
) -> list[Path]:
    """Split a log into one file for each task.

    Args:
        in_file: the log.
        out_dir: the folder of the files; None: the log's name with ``.tasks`` behind it.

    Returns:
        The files.

    Raises:
        RecordError: the log cannot be read, or a file not be written.

    Example:
        >>> print(len(lw.autotvm.record.split_workload("matmul.jsonl", "by_task")))
        1
    """
    return list(split(in_file, f"{os.fspath(in_file)}.tasks" if out_dir is None else out_dir))


def _task(record: Record) -> Task | str:
    """The task of a record, or why there is none."""
    if record.op not in TASKS:
        return f"the template {record.op!r} is not registered"
    try:
        task = Task(record.op, record.args, record.target)
        _ = task.config_space
    except LoopwrightError as error:
        return f"{record.op}: {error}"
    return task
