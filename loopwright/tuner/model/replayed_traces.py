"""Records of other spaces as a cost model sees them, whose configuration means nothing here.

A record of a template, of another structure or of another workload has a trace. Replayed on its
expression it is a schedule, and features of schedules are the same numbers for all: only those of
knobs are of one space alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from loopwright.cost.analytical import predicted
from loopwright.cost.features.extract import StateFeatures
from loopwright.errors import LoopwrightError, TimeLimitError
from loopwright.history.rebuild import dag_of
from loopwright.records import Expression, Record
from loopwright.time_limit import TEMPLATE_S, limited
from loopwright.tuner.model.cost_model import Batch

if TYPE_CHECKING:
    from loopwright.schedule.state import State
    from loopwright.target import Target
    from loopwright.te.dag import Dag

_log = logging.getLogger("loopwright.cost")


class Expressions:
    """Tensor expressions by hash: those of logs, and that of a task itself, which needs no log."""

    def __init__(self, own: str = "", make: Callable[[], Dag] | None = None) -> None:
        self._own, self._make = own, make
        self._dags: dict[str, Dag | None] = {}
        self._lines: dict[str, Expression] = {}

    def add(self, lines: Mapping[str, Sequence[Expression]]) -> None:
        """Take in the expressions of a log, `loopwright.records.Log.dags`."""
        for digest, expressions in lines.items():
            if expressions:
                self._lines.setdefault(digest, expressions[0])

    def __contains__(self, digest: str) -> bool:
        return digest in self._lines or bool(digest and digest == self._own)

    def dag(self, digest: str) -> Dag | None:
        """The DAG of a hash; None where no log held it, or its line is damaged."""
        if digest not in self._dags:
            self._dags[digest] = self._find(digest)
        return self._dags[digest]

    def _find(self, digest: str) -> Dag | None:
        if digest == self._own and self._make is not None:
            dag = self._make()
            if dag.hash == digest:
                return dag
        return _dag(self._lines[digest]) if digest in self._lines else None


def _dag(line: Expression) -> Dag | None:
    try:
        return dag_of(line)
    except LoopwrightError as exc:
        _log.warning("%s; its records are not learned from", exc)
        return None


def traced_batch(
    records: Sequence[Record],
    expressions: Expressions,
    target: Target,
    feature_type: str,
    analytical: bool,
) -> Batch:
    """Features and offsets of the schedules that the traces of records make, for the target of now.

    Records are of one kind of target, and ``feature_type`` is not ``"knob"``; a row that cannot be
    replayed is marked as failed.
    """
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


def _state(record: Record, expressions: Expressions) -> State | None:
    """The schedule of a record; None where it cannot be made again."""
    from loopwright.schedule import replay

    dag = expressions.dag(record.dag)
    if dag is None or not record.trace:
        return None
    try:
        schedule = limited(TEMPLATE_S, "a trace", replay, dag, record.trace, often=True)
    except (LoopwrightError, TimeLimitError):
        return None
    return schedule.state
