"""Training data from elsewhere: other shapes of the template, other compilers.

These measurements never count as trials and are never compared with those of the task. A model of
its own, the transfer model, learns from them, each shape apart; its prediction weighs less and less
as the task's own results come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from loopwright.errors import LoopwrightError
from loopwright.records import Record
from loopwright.task import ConfigEntity, Task
from loopwright.tuner.model.candidates import Candidates, Measurements
from loopwright.tuner.model.cost_model import Samples, joined
from loopwright.tuner.run.recorded import result_of
from loopwright.tuner.run.state import point

if TYPE_CHECKING:
    from loopwright.measure import MeasureInput, MeasureResult

#: Measurements of one other task that are used, the latest: more make no better model.
_LATEST = 2048
#: A task with fewer that ran teaches nothing.
_LEAST = 4


@dataclass
class History:
    """Measurements by the task that they are of.

    Attributes:
        used: how many a model learned from.
        tasks: of how many tasks those are.
        foreign: how many were of other templates, or of no point of their space, or too few of
            their task, and are not used.
    """

    used: int = 0
    tasks: int = 0
    foreign: int = 0
    _groups: dict[str, tuple[Task, dict[int, tuple[ConfigEntity, MeasureResult]]]] = field(
        default_factory=dict
    )

    def add(self, task: Task, pairs: Iterable[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Take in measurements of one task; of a configuration the last one counts."""
        key = f"{task.key} {task.config_space.space_hash}"
        group = self._groups.setdefault(key, (task, {}))[1]
        group.update((point(config), (config, result)) for config, result in pairs)

    def add_given(
        self, task: Task, given: Iterable[tuple[MeasureInput, MeasureResult] | Record]
    ) -> None:
        """Take in what ``load_history`` was given; what is of another template is only counted."""
        records: list[tuple[Record, MeasureResult]] = []
        for item in given:
            if isinstance(item, Record):
                records.append((item, result_of(item)))
                continue
            measured, result = item
            if measured.task.name != task.name or measured.config.index is None:
                self.foreign += 1
            else:
                self.add(measured.task, [(measured.config, result)])
        self.add_records(task, [pair for pair in records if pair[0].op == task.name])
        self.foreign += sum(record.op != task.name for record, _ in records)

    def add_records(self, task: Task, records: Iterable[tuple[Record, MeasureResult]]) -> None:
        """Take in records of other shapes of the template of ``task``."""
        tasks: dict[str, Task | None] = {}
        for record, result in records:
            if record.task not in tasks:
                tasks[record.task] = _other_shape(task, record)
            other = tasks[record.task]
            index = None if other is None else other.config_space.find(record.config)
            if other is None or index is None:
                self.foreign += 1
            else:
                self.add(other, [(other.config_space.get(index), result)])

    def samples(self, candidates: Candidates) -> Samples | None:
        """All measurements as a model learns them, each task with a number; None when too few."""
        parts: list[Samples] = []
        for task, pairs in self._groups.values():
            part = _samples(task, list(pairs.values())[-_LATEST:], candidates, len(parts))
            if part is None:
                self.foreign += len(pairs)
                continue
            parts.append(part)
            self.used += len(part)
        self.tasks = len(parts)
        return joined(parts) if parts else None

    @property
    def notes(self) -> list[str]:
        """What was used and what was not, a line each."""
        lines = []
        if self.used:
            tasks = f"{self.tasks} other {'task' if self.tasks == 1 else 'tasks'}"
            lines.append(f"model:   pretrained on {self.used} results of {tasks}")
        if self.foreign:
            lines.append(
                f"model:   {self.foreign} results given to learn from are of another template, or "
                "too few of their task, and are not used"
            )
        return lines


def _other_shape(task: Task, record: Record) -> Task | None:
    """The task of a record of the same template; None when the template refuses its arguments."""
    try:
        return task.of(record.args)
    except LoopwrightError:
        return None


def _samples(
    task: Task,
    pairs: Sequence[tuple[ConfigEntity, MeasureResult]],
    candidates: Candidates,
    number: int,
) -> Samples | None:
    measured = Measurements()
    measured.add(pairs)
    if measured.ran < _LEAST:
        return None
    own = candidates if task is candidates.task else candidates.of(task)
    if own.names != candidates.names:
        return None
    samples = measured.samples(own, 0)
    return Samples(
        samples.batch, samples.score, samples.outcome, np.full(len(samples), number, np.int64)
    )
