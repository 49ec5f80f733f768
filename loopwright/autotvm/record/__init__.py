"""``autotvm.record``: logs as pairs of ``MeasureInput`` and ``MeasureResult``."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from loopwright.autotvm.measure import MeasureInput
from loopwright.errors import LoopwrightError, RecordError, UsageError
from loopwright.history.selection import other_knobs
from loopwright.measure import MeasureInput as AnyInput
from loopwright.measure import MeasureResult
from loopwright.records import Json, Log, Record, load, load_lines, pick_best, read_line, split
from loopwright.task import TASKS, Task
from loopwright.task.dispatch import say_once
from loopwright.task.knobs import KnobKind
from loopwright.tuner.run.recorded import result_of
from loopwright.version import __version__

__all__ = [
    "Pair",
    "decode",
    "encode",
    "load_from_buffer",
    "load_from_file",
    "measure_str_key",
    "pick_best",
    "split_workload",
]

#: AutoTVM's letters for the kinds of knobs.
_LETTERS: dict[KnobKind, str] = {"split": "sp", "reorder": "re", "annotate": "an", "other": "ot"}
#: The cost by which AutoTVM marks a failure.
_FAILED = 1e9


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
        pair = super().__new__(cls, (item, result_of(record)))
        pair.record = record
        return pair


def load_from_file(filename: str | os.PathLike[str]) -> Iterator[Pair]:
    """Yield ``(MeasureInput, MeasureResult)`` of each record of a log of loopwright or AutoTVM.

    ``tuner.load_history`` and ``apply_history_best`` take them. Malformed lines, and records whose
    template is not registered or refuses their arguments, are skipped with one warning.

    Raises:
        RecordError: the file does not exist or cannot be read.

    Example:
        >>> from loopwright import autotvm
        >>> sum(1 for _ in autotvm.record.load_from_file("tuned.jsonl"))  # doctest: +SKIP
        200
    """
    return _pairs(load(filename))


def load_from_buffer(file: Iterable[str | bytes]) -> Iterator[Pair]:
    """As `load_from_file`, from an open file or from lines in memory.

    Args:
        file: an open file, an ``io.StringIO``, or lines.

    Example:
        >>> import io
        >>> from loopwright import autotvm
        >>> list(autotvm.record.load_from_buffer(io.StringIO("# no record")))
        []
    """
    return _pairs(load_lines(file, str(getattr(file, "name", "the buffer"))))


def _pairs(log: Log) -> Iterator[Pair]:
    """The pairs of a log's records; one warning for all records that are skipped."""
    if complaint := log.complaint():
        say_once(complaint)
    tasks: dict[tuple[str, str], Task | str] = {}
    missed: Counter[str] = Counter()
    for record in log:
        key = (record.task, repr(sorted(record.target.items())))
        if key not in tasks:
            tasks[key] = _task(record)
        pair = _pair(record, tasks[key])
        if isinstance(pair, Pair):
            yield pair
        else:
            missed[pair] += 1
    if missed:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in missed.most_common(3))
        say_once(f"{log.path}: passed over {missed.total()} of {len(log)} records: {reasons}")


def _pair(record: Record, task: Task | str) -> Pair | str:
    """The pair of a record of a task, or the reason why there is none."""
    if isinstance(task, str):
        return task
    if differing := other_knobs(task, record.config):
        return f"configurations do not fit {task}: {differing}"
    try:
        config = task.config(record.config)
    except LoopwrightError as error:
        return f"configurations do not fit {task}: {error}"
    return Pair(record, MeasureInput(task.target, task, config, record.trial))


def _task(record: Record) -> Task | str:
    """The task of a record, or the reason why there is none."""
    if record.op not in TASKS:
        return f"the template {record.op!r} is not registered"
    try:
        task = Task(record.op, record.args, record.target)
        _ = task.config_space
    except LoopwrightError as error:
        return f"{record.op}: {error}"
    return task


def encode(inp: AnyInput, result: MeasureResult, protocol: str = "json") -> str:
    """Write a measurement as one line of an AutoTVM log, version 0.2.

    The line holds AutoTVM's fields: target, template, arguments, knob values, times or the number
    of the error. ``log_to_file`` writes all fields of loopwright.

    Args:
        inp: the input.
        result: its result.
        protocol: ``"json"``; AutoTVM's ``"pickle"`` is refused.

    Returns:
        The line, without the newline; `decode` reads it.

    Raises:
        UsageError: another protocol.

    Example:
        >>> from loopwright import autotvm
        >>> task = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm")
        >>> inp = autotvm.MeasureInput(task.target, task, task.config_space.get(3))
        >>> line = autotvm.record.encode(inp, autotvm.MeasureResult(times=(0.5,)))
        >>> autotvm.record.decode(line)[1].costs
        (0.5,)
    """
    _check_protocol("encode", protocol)
    costs: Sequence[float] = result.costs if result.error_no == 0 else (_FAILED,)
    line: dict[str, Json] = {
        "input": [str(inp.target), inp.task.name, inp.task.args, {}],
        "config": {"index": inp.config.index, "code_hash": None, "entity": _entity(inp)},
        "result": [costs, int(result.error_no), result.all_cost, result.timestamp],
        "version": 0.2,
        "loopwright_version": __version__,
    }
    return json.dumps(line)


def _entity(inp: AnyInput) -> list[list[Json]]:
    """The knobs as AutoTVM writes them: ``["tile_x", "sp", [-1, 8]]``."""
    knobs = inp.task.config_space.knobs
    return [[name, _LETTERS[knobs[name].kind], v] for name, v in inp.config.values.items()]


def decode(row: str | bytes, protocol: str = "json") -> Pair | None:
    """Read one line of a log of AutoTVM or of loopwright.

    Args:
        row: the line.
        protocol: ``"json"``; AutoTVM's ``"pickle"`` is refused.

    Returns:
        ``(MeasureInput, MeasureResult)``; None for a comment, a blank line, or any other line that
        is not a measurement.

    Raises:
        RecordError: the line is malformed, its template is not registered, or its configuration
            does not fit.
        UsageError: another protocol.

    Example:
        >>> with open("matmul.jsonl") as file:
        ...     pairs = [lw.autotvm.record.decode(line) for line in file]
        ...
        >>> print(sum(pair is not None for pair in pairs) >= 6)
        True
    """
    _check_protocol("decode", protocol)
    line = read_line(row.encode() if isinstance(row, str) else row)
    if not isinstance(line, Record):
        return None
    pair = _pair(line, _task(line))
    if isinstance(pair, str):
        raise RecordError(f"decode: {pair}")
    return pair


def _check_protocol(verb: str, protocol: str) -> None:
    if protocol != "json":
        raise UsageError(
            f'{verb}: protocol={protocol!r} is not there; leave it out, which means "json" '
            "(what was pickled could run any code when it is read)"
        )


def measure_str_key(inp: AnyInput, include_config: bool = True) -> str:
    """A text that is equal for inputs of equal target, template, arguments and configuration.

    Args:
        inp: the input.
        include_config: False leaves the configuration out.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> one, other = (lw.MeasureInput(task, task.config(index)) for index in (0, 1))
        >>> key = lw.autotvm.record.measure_str_key
        >>> print(key(one) == key(other), key(one, False) == key(other, False))
        False True
    """
    config = str(inp.config) if include_config else ""
    return f"{inp.target}{inp.task}{config}"


def split_workload(
    in_file: str | os.PathLike[str],
    clean: bool = True,
    out_dir: str | os.PathLike[str] | None = None,
) -> list[Path]:
    """Split a log into one file for each task.

    Args:
        in_file: the log.
        clean: accepted: equal lines are written once, and no measurement is left out.
        out_dir: the folder of the files; None: the log's name followed by ``.tasks``.

    Returns:
        The files.

    Raises:
        RecordError: the log cannot be read, or a file not be written.

    Example:
        >>> print(len(lw.autotvm.record.split_workload("matmul.jsonl", out_dir="by_task")))
        1
    """
    return list(split(in_file, f"{os.fspath(in_file)}.tasks" if out_dir is None else out_dir))
