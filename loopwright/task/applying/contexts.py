"""Dispatch contexts that hold configurations themselves, without a ranking of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from loopwright.errors import RecordError, UsageError
from loopwright.records import Json, Record
from loopwright.task.applying.sources import Source, logs_of
from loopwright.task.dispatch import DispatchContext, task_of
from loopwright.task.space import ConfigEntity
from loopwright.task.task import TargetLike, Task
from loopwright.task.template import Scheduled

#: A configuration, its index, or ``{knob: value}``.
Config: TypeAlias = ConfigEntity | int | Mapping[str, Json]


class _ConfigContext(DispatchContext):
    """A context that knows configurations: a schedule is the template's under one of them."""

    def apply(self, task: Task) -> Scheduled | None:
        """The schedule under this context's configuration, or None where it has none.

        Raises:
            InstantiationError: the template refuses the configuration.
            SpaceError: it is none of the task's space.
        """
        config = self.config_for(task)
        return None if config is None else task.instantiate(config)


class ApplyConfig(_ConfigContext):
    """Run every template inside the block under one configuration.

    Args:
        config: A configuration, its index, or ``{knob: value}``.

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

    def update(
        self, target: TargetLike, workload: Task | tuple[Json, ...], cfg: ConfigEntity
    ) -> None:
        """Use another configuration from now on, for every template."""
        self.config = cfg


class ApplyFixedConfig(_ConfigContext):
    """Run the templates of some tasks under fixed configurations, whatever their arguments are.

    AutoTVM's counterpart prefers the named schedules among several implementations of an operator;
    here a template is one implementation, and templates that are not named are left to the contexts
    outside.

    Args:
        tasks: Tasks whose templates are meant.
        schedule_names: Name, or names, of those templates that are to be fixed; empty: all.
        configs: Configuration by name of the template; index 0 for those that are not in it.

    Raises:
        UsageError: a name is that of no task.

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
        known = {task.name for task in tasks}
        chosen = (schedule_names,) if isinstance(schedule_names, str) else tuple(schedule_names)
        self._configs: dict[str, Config] = dict(configs or {})
        for name in (*chosen, *self._configs):
            if name not in known:
                there = ", ".join(sorted(known)) or "none"
                raise UsageError(
                    f"ApplyFixedConfig: no task is of template {name!r}; there are {there}"
                )
        self._names = frozenset(chosen or known)

    def config_for(self, task: Task) -> ConfigEntity | None:
        """The template's configuration; None for templates that are not named."""
        return task.config(self._configs.get(task.name, 0)) if task.name in self._names else None

    def update(
        self, target: TargetLike, workload: Task | tuple[Json, ...], cfg: ConfigEntity
    ) -> None:
        """Use another configuration for a template from now on."""
        self._configs[task_of(target, workload).name] = cfg


class ApplyGraphBest(_ConfigContext):
    """Run the templates of a network under one record each, in the order in which they are called.

    Once all records are used up, a task that has come before gets the configuration of that time,
    and others are left to the contexts outside.

    Args:
        records: A log with one record for each call, in order; see ``apply_history_best``.

    Raises:
        RecordError: a log is missing or cannot be read.

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
        """The schedule of the next record.

        Raises:
            RecordError: the record is of another task.
        """
        if self._next < len(self._records):
            record = self._records[self._next]
            if task.alias != record.task and task.key != record.expression:
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

    def update(
        self, target: TargetLike, workload: Task | tuple[Json, ...], cfg: ConfigEntity
    ) -> None:
        """Use another configuration for a workload once the records are used up."""
        self._known[task_of(target, workload).alias] = cfg
