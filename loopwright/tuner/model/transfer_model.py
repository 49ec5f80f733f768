"""The transfer model learns from measurements of other shapes, templates, structures and workloads.

They never count as trials and are never compared with those of the task; the prediction of this
model weighs less and less as the task's own results come in. A record of another space has a trace:
replayed on its expression it is a schedule, whose features are the same numbers for all; only those
of knobs are of one space alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loopwright.cost import StateFeatures, predicted
from loopwright.errors import LoopwrightError, TimeLimitError
from loopwright.history import dag_of
from loopwright.records import Expression, Record
from loopwright.task import ConfigEntity, Scheduler, Task, digits_of
from loopwright.time_limit import TEMPLATE_S, limited
from loopwright.tuner.model.candidates import CandidateBatches, part_of, score_of
from loopwright.tuner.model.cost_model import Batch, SampleOutcome, Samples, concatenated, joined
from loopwright.tuner.model.xgb_model import XGBCostModel
from loopwright.tuner.run.recorded import result_of
from loopwright.tuner.run.state import point

if TYPE_CHECKING:
    from loopwright.measure import MeasureInput, MeasureResult
    from loopwright.schedule import State
    from loopwright.target import Target
    from loopwright.te import Dag
    from loopwright.tuner.run.interfaces import TunerLike


_log = logging.getLogger("loopwright.cost")


class ExpressionTable:
    """Tensor expressions by hash: those of logs, and the task's own, which needs no log."""

    def __init__(self, own: str = "", make: Callable[[], Dag] | None = None) -> None:
        self._own, self._make = own, make
        self._dags: dict[str, Dag | None] = {}
        self._lines: dict[str, Expression] = {}

    def add(self, lines: Mapping[str, Sequence[Expression]]) -> None:
        for digest, expressions in lines.items():
            if expressions:
                self._lines.setdefault(digest, expressions[0])

    def __contains__(self, digest: str) -> bool:
        return digest in self._lines or bool(digest and digest == self._own)

    def dag(self, digest: str) -> Dag | None:
        """The DAG of a hash; None where no log held it, or its line is damaged."""
        if digest not in self._dags:
            own = self._make() if digest == self._own and self._make is not None else None
            self._dags[digest] = own if own is not None and own.hash == digest else None
            if self._dags[digest] is None and digest in self._lines:
                self._dags[digest] = self._read(digest)
        return self._dags[digest]

    def _read(self, digest: str) -> Dag | None:
        try:
            return dag_of(self._lines[digest])
        except LoopwrightError as exc:
            _log.warning("%s; its records are not learned from", exc)
            return None


def traced_batch(
    records: Sequence[Record],
    expressions: ExpressionTable,
    target: Target,
    feature_type: str,
    analytical: bool,
) -> Batch:
    """Features and offsets of the schedules that traces make for ``target``; a row that cannot be
    replayed is marked as failed. Records are of one kind of target."""
    features = StateFeatures(target, feature_type)
    values = np.full((len(records), len(features.columns)), np.nan, np.float32)
    offset = np.zeros(len(records))
    failed = np.ones(len(records), np.bool_)
    for row, record in enumerate(records):
        state = _state(record, expressions)
        if state is None:
            continue
        values[row] = features.row(state)
        prediction = predicted(state, target) if analytical else 0.0
        failed[row] = math.isnan(prediction) or not np.isfinite(values[row]).all()
        offset[row] = 0.0 if failed[row] else prediction
    values[failed] = np.nan
    return Batch(values, offset, failed)


def _state(record: Record, expressions: ExpressionTable) -> State | None:
    from loopwright.schedule import replay

    dag = expressions.dag(record.dag)
    if dag is None or not record.trace:
        return None
    try:
        schedule = limited(TEMPLATE_S, "a trace", replay, dag, record.trace, often=True)
    except (LoopwrightError, TimeLimitError):
        return None
    return schedule.state


#: Largest number of measurements of one other task, the latest: more make no better model.
_LATEST = 2048
#: Least number of measurements that ran for a task to teach anything.
_LEAST = 4
#: Largest number of replayed traces, shared out among the workloads: each takes milliseconds.
_REPLAYED = 2048

#: A point of a space; its features are derived together with those of all others.
_Point: TypeAlias = tuple[Scheduler, int]


@dataclass
class _Group:
    """Measurements whose times are compared with each other; of a candidate the last one counts."""

    #: Template or workload.
    name: str
    #: Measurements in known spaces, by index.
    points: dict[Hashable, tuple[_Point, MeasureResult]] = field(default_factory=dict)
    #: The others, by candidate.
    records: dict[str, tuple[Record, MeasureResult]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.points) + len(self.records)


@dataclass
class History:
    expressions: ExpressionTable = field(default_factory=ExpressionTable)
    #: Template or workload that is tuned; knobs of others say nothing of it.
    name: str = ""
    #: Number of measurements that a model learned from, and of their tasks.
    used: int = 0
    tasks: int = 0
    #: Number of measurements that say nothing here, or too little: of no known expression, of knobs
    #: where knobs are learned from, or too few of their task.
    foreign: int = 0
    _groups: dict[Hashable, _Group] = field(default_factory=dict)

    def add(self, task: Task, pairs: Iterable[tuple[ConfigEntity, MeasureResult]]) -> None:
        group = self._group(task.name, task.key, task.config_space.space_hash)
        for config, result in pairs:
            if result.same_as:  # the program of another one, which counts once
                continue
            index = point(config)
            group.points[index] = (part_of(task, index), result)

    def add_given(
        self, task: Task, history: Iterable[tuple[MeasureInput, MeasureResult] | Record]
    ) -> None:
        records: list[tuple[Record, MeasureResult]] = []
        for item in history:
            if isinstance(item, Record):
                records.append((item, result_of(item)))
                continue
            measured, result = item
            same_kind = measured.task.target.kind == task.target.kind
            points = range(measured.task.config_space.range_length)
            if measured.config.index not in points or not same_kind:
                self.foreign += 1
            else:
                self.add(measured.task, [(measured.config, result)])
        self.add_records(task, records)

    def add_records(self, task: Task, records: Iterable[tuple[Record, MeasureResult]]) -> None:
        """Take in records: other shapes of the task's template as points, others by their trace."""
        tasks: dict[str, Task | None] = {}
        for record, result in records:
            if record.same_as:
                continue
            if record.task not in tasks:
                tasks[record.task] = _other_shape(task, record)
            other = tasks[record.task]
            index = None if other is None else other.config_space.find(record.config)
            if other is not None and index is not None:
                space = other.config_space.space_hash
                if index in self._group(other.name, other.key, space).points:
                    continue  # it was given without its record, too, as AutoTVM's pairs are
                group = self._group(other.name, other.key, space, record)
                group.points[index] = (part_of(other, index), result)
            elif record.kind == task.target.kind and record.dag in self.expressions:
                group = self._group(record.op, record.dag, "", record)
                group.records[record.candidate] = (record, result)
            else:
                self.foreign += 1

    def _group(self, name: str, task: str, space: str, record: Record | None = None) -> _Group:
        """The group of measurements of one task; records are kept apart by hardware and threads."""
        conditions = ("", 0) if record is None else (record.hardware, record.threads)
        return self._groups.setdefault((name, task, space, *conditions), _Group(name))

    def samples(self, candidates: CandidateBatches) -> Samples | None:
        parts: list[Samples] = []
        traced = sum(bool(group.records) for group in self._groups.values())
        most = min(_LATEST, _REPLAYED // max(traced, 1))
        for group in self._groups.values():
            part = self._samples(group, candidates, len(parts), most)
            if part is None:
                self.foreign += len(group)
                continue
            parts.append(part)
            self.used += len(part)
        self.tasks = len(parts)
        return joined(parts) if parts else None

    def _samples(
        self, group: _Group, candidates: CandidateBatches, number: int, most: int
    ) -> Samples | None:
        """Samples of one group; None where they are too few, or of other knobs."""
        if candidates.feature_type == "knob" and (group.records or group.name != self.name):
            return None
        points = list(group.points.values())[-_LATEST:]
        by_part: dict[int, list[tuple[_Point, MeasureResult]]] = {}
        for item in points:
            by_part.setdefault(id(item[0][0]), []).append(item)
        results = [result for items in by_part.values() for _, result in items]
        batches = [_batch([p for p, _ in items], candidates) for items in by_part.values()]
        records = list(group.records.values())[-most:]
        if records:
            batches.append(
                traced_batch(
                    [record for record, _ in records],
                    self.expressions,
                    candidates.task.target,
                    candidates.feature_type,
                    candidates.analytical,
                )
            )
            results += [result for _, result in records]
        complete = [batch for batch in batches if batch is not None]
        scores = [score_of(result) for result in results]
        ran = sum(outcome != SampleOutcome.FAILED for outcome, _ in scores)
        if len(complete) < len(batches) or ran < _LEAST:
            return None
        outcomes, speeds = zip(*scores, strict=True)
        return Samples(
            concatenated(complete),
            np.array(speeds, np.float64),
            np.array(outcomes, np.int64),
            np.full(len(scores), number, np.int64),
        )

    @property
    def notes(self) -> list[str]:
        lines = []
        if self.used:
            tasks = f"{self.tasks} other {'task' if self.tasks == 1 else 'tasks'}"
            lines.append(f"model:   pretrained on {self.used} results of {tasks}")
        if self.foreign:
            lines.append(
                f"model:   {self.foreign} results given to learn from are not used: their log "
                "holds no expression of them, knobs of other spaces tell nothing here, or they "
                "are too few of their task"
            )
        return lines


def _other_shape(task: Task, record: Record) -> Task | None:
    """The task of a record of the same template; None for other templates or refused arguments."""
    if record.op != task.name:
        return None
    try:
        other = task.of(record.args)
    except LoopwrightError:
        return None
    # Tensors that were given without a function have a name that they share with all others.
    return None if task.automatic and other.dag_hash != record.dag else other


def _batch(points: Sequence[_Point], candidates: CandidateBatches) -> Batch | None:
    """Features of points of one space; None where the space has other features."""
    part = points[0][0]
    same_kind = candidates
    if part is not candidates.task:
        same_kind = CandidateBatches(part, candidates.feature_type, candidates.analytical)
    if same_kind.names != candidates.names:
        return None
    digits = digits_of(part.config_space, [index for _, index in points])
    return same_kind.without_transfer(digits)


class Teacher:
    """Trains a model on a tuner's ``elsewhere``, ``pretrained``, ``relatives`` when they grow."""

    def __init__(self, tuner: TunerLike) -> None:
        self._tuner = tuner
        self._size = (0, 0, 0)
        self.history = History()
        self.model: XGBCostModel | None = None

    def taught(
        self, candidates: CandidateBatches, loss_type: str, threads: int
    ) -> XGBCostModel | None:
        tuner = self._tuner
        size = (len(tuner.pretrained), len(tuner.elsewhere), len(tuner.relatives))
        if size == self._size:
            return self.model
        self._size = size
        self.model = None
        task = tuner.task
        default = task.config_space.default_index
        expressions = ExpressionTable(task.dag_hash, lambda: task.instantiate(default)[0].dag)
        expressions.add(tuner.expressions)
        history = self.history = History(expressions, task.name)
        history.add(tuner.task, tuner.elsewhere)
        history.add_given(tuner.task, tuner.pretrained)
        history.add_records(tuner.task, tuner.relatives)
        samples = history.samples(candidates)
        if samples is None:
            return None
        model = XGBCostModel(candidates.names, loss_type, threads)
        model.fit(samples)
        self.model = model if model.ready else None
        return self.model
