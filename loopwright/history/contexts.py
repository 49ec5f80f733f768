"""Sources of logs, and dispatch contexts that hold configurations without ranking records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from loopwright.errors import RecordError, UsageError
from loopwright.records import Json, Log, Record, Store, check_is_log, load, load_lines
from loopwright.task import ConfigEntity, DispatchContext, Scheduled, TargetLike, Task, task_of


class HasRecord(Protocol):
    """An object that knows its record, as `loopwright.autotvm.record.load_from_file` yields it."""

    record: Record


#: One log, or a part of one. An open file, and an iterator of lines, are iterables of text.
Source: TypeAlias = str | bytes | os.PathLike[str] | Record | HasRecord | Log | Store


def logs_of(source: Source | Iterable[Any] | None) -> Iterator[Log]:
    """The logs of a source, which for a folder are all ``*.jsonl`` in it, and for None are none."""
    if source is None:
        return
    if isinstance(source, Log):
        yield source
    elif isinstance(source, Store):
        yield load(source.path)
    elif (record := _record(source)) is not None:
        yield Log(Path("records"), [record])
    elif isinstance(source, (str, os.PathLike)) and not _is_line(source):
        path = Path(source)
        for log in map(load, _files(path)):
            # In a folder the file of another program is passed over, with a warning.
            if log.skipped and not path.is_dir():
                check_is_log(log, torn=True)
            yield log
    elif isinstance(source, (str, bytes)):
        yield load_lines([source])
    elif hasattr(source, "readline"):
        file = cast(Iterable[str | bytes], source)
        yield load_lines(file, str(getattr(source, "name", "an open file")))
    elif isinstance(source, Iterable):
        yield from _parts(source)
    else:
        raise UsageError(
            "apply_history_best takes the path of a log or of a folder of *.jsonl, an open file, "
            f"its lines, records, a Log, a Store, or a list of these; got {source!r:.60}"
        )


def _parts(source: Iterable[Any]) -> Iterator[Log]:
    """The logs of an iterable; its lines and loose records make up one log each."""
    lines: list[str | bytes] = []
    records: list[Record] = []
    for part in source:
        if _is_line(part):
            lines.append(part)
        elif (record := _record(part)) is not None:
            records.append(record)
        else:
            yield from logs_of(part)
    if lines:
        yield load_lines(lines)
    if records:
        yield Log(Path("records"), records)


def _record(source: object) -> Record | None:
    record = source if isinstance(source, Record) else getattr(source, "record", None)
    return record if isinstance(record, Record) else None


def _is_line(source: object) -> bool:
    """Whether it is a line of a log, as a file yields it, and no path."""
    if isinstance(source, bytes):
        return True
    return isinstance(source, str) and (source.endswith("\n") or source.lstrip()[:1] in ("{", "#"))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    # A pipe in a folder would be waited for.
    files = sorted(file for file in path.glob("*.jsonl") if file.is_file())
    if not files:
        raise RecordError(f"the folder {str(path)!r} holds no *.jsonl; name a log file")
    return files


#: A task, or the name and arguments that are its workload in AutoTVM.
Workload: TypeAlias = Task | tuple[Json, ...]
#: A configuration, its index, or ``{knob: value}``.
Config: TypeAlias = ConfigEntity | int | Mapping[str, Json]


class _ConfigContext(DispatchContext):
    """A context that knows configurations: a schedule is the template's under one of them."""

    def apply(self, task: Task) -> Scheduled | None:
        """The schedule under this context's configuration, or None where it has none.

        InstantiationError where the template refuses it, SpaceError where the task has no such one.
        """
        config = self.config_for(task)
        return None if config is None else task.instantiate(config)


class ApplyConfig(_ConfigContext):
    """Run every template inside the block under one configuration.

    The configuration may also be an index, or ``{knob: value}``.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> from loopwright.task import ApplyConfig
        >>> with ApplyConfig({"unroll_k": 4}), lw.Target("llvm"):
        ...     s, args = lw.ops.matmul(64, 64, 64)
        ...
        >>> print([t.name for t in args])
        ['A', 'B', 'C']
    """

    def __init__(self, config: Config) -> None:
        self.config = config

    def config_for(self, task: Task) -> ConfigEntity:
        """The configuration, in the space of the task."""
        return task.config(self.config)

    def update(self, target: TargetLike, workload: Workload, cfg: ConfigEntity) -> None:
        """Use another configuration from now on, for every template."""
        self.config = cfg


class ApplyFixedConfig(_ConfigContext):
    """Run the templates of some tasks under fixed configurations, whatever their arguments are.

    AutoTVM's counterpart prefers the named schedules among several implementations of an operator;
    here a template is one implementation, and templates that are not named are left to the contexts
    outside.

    Args:
        schedule_names: Name, or names, of those templates that are to be fixed; empty: all.
            UsageError for one that is of no task.
        configs: Configuration by name of the template; index 0 for those that are not in it.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> from loopwright.task import ApplyFixedConfig
        >>> with ApplyFixedConfig([task], "matmul"), lw.Target("llvm"):
        ...     s, args = lw.ops.matmul(64, 64, 64)
        ...
        >>> print([t.name for t in args])
        ['A', 'B', 'C']
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        schedule_names: str | Sequence[str] = (),
        configs: Mapping[str, Config] | None = None,
    ) -> None:
        names = {task.name for task in tasks}
        chosen = (schedule_names,) if isinstance(schedule_names, str) else tuple(schedule_names)
        self._configs: dict[str, Config] = dict(configs or {})
        for name in (*chosen, *self._configs):
            if name not in names:
                there = ", ".join(sorted(names)) or "none"
                raise UsageError(
                    f"ApplyFixedConfig: no task is of template {name!r}; there are {there}"
                )
        self._names = frozenset(chosen or names)

    def config_for(self, task: Task) -> ConfigEntity | None:
        """The template's configuration; None for templates that are not named."""
        return task.config(self._configs.get(task.name, 0)) if task.name in self._names else None

    def update(self, target: TargetLike, workload: Workload, cfg: ConfigEntity) -> None:
        """Use another configuration for a template from now on."""
        self._configs[task_of(target, workload).name] = cfg


class ApplyGraphBest(_ConfigContext):
    """Run the templates of a network under one record each, in the order in which they are called.

    Once all records are used up, a task that has come before gets the configuration of that time,
    and others are left to the contexts outside.

    ``records`` is a log with one record for each call, in order; errors as of `apply_history_best`.

    Example:
        >>> from loopwright.task import ApplyGraphBest
        >>> with ApplyGraphBest("matmul.jsonl"), lw.Target("llvm"):
        ...     s, args = lw.ops.matmul(64, 64, 64)
        ...
        >>> print([t.name for t in args])
        ['A', 'B', 'C']
    """

    def __init__(self, records: Source | Iterable[Any]) -> None:
        self._records: list[Record] = [r for log in logs_of(records) for r in log]
        self._next = 0
        self._known: dict[str, ConfigEntity] = {}

    def apply(self, task: Task) -> Scheduled | None:
        """The schedule of the next record; RecordError where that is of another task."""
        if self._next < len(self._records):
            record = self._records[self._next]
            if not task.is_of(record):
                raise RecordError(
                    f"ApplyGraphBest: call {self._next + 1} is of {task}, and record "
                    f"{self._next + 1} of {record.task}; give the records in the order of the calls"
                )
            self._known[task.alias] = task.config(record.config)
            self._next += 1
        return super().apply(task)

    def config_for(self, task: Task) -> ConfigEntity | None:
        """The configuration that the task got last; None where it has not come yet."""
        return self._known.get(task.alias)

    def update(self, target: TargetLike, workload: Workload, cfg: ConfigEntity) -> None:
        """Use another configuration for a workload once the records are used up."""
        self._known[task_of(target, workload).alias] = cfg
