"""Cost model of a task's records, to explain them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from loopwright.cost.features import Extractor
from loopwright.records import Record, measured
from loopwright.task import Task
from loopwright.tuner.model.candidates import score_of
from loopwright.tuner.model.cost_model import Batch, Samples
from loopwright.tuner.model.parts import part_of, rows_of
from loopwright.tuner.model.xgb_model import XGBCostModel
from loopwright.tuner.run.recorded import result_of


def learn(
    task: Task,
    records: Iterable[Record],
    feature_type: str = "itervar",
    loss_type: str = "reg",
) -> XGBCostModel:
    """Train a cost model on the records of one task, such as ``explain`` takes.

    Records of other tasks and of other spaces are passed over. Where a configuration was measured
    twice under the same conditions, the later record counts. What was measured with other hardware,
    threads or compilers is compared only among itself.

    Args:
        task: the task.
        records: records, or a `loopwright.records.Log`.
        feature_type: see `loopwright.cost.features.Extractor`.
        loss_type: see `XGBCostModel`.

    Returns:
        The model. Where fewer than two configurations ran it is not ``ready``.

    Raises:
        UsageError: an option is not among those allowed, or records of several structures are to be
            told apart by knobs, of which each structure has its own.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> records = lw.records.load("matmul.jsonl").records
        >>> model = lw.tuner.learn(task, records)
        >>> print(lw.tuner.explain(task, 0, model).predicted is not None)
        True
    """
    space = task.config_space
    latest: dict[tuple[tuple[str, str, int], int], Record] = {}
    for record in measured(records):
        index = space.find(record.config) if record.task == task.alias else None
        if index is not None:
            latest[(record.build, record.hardware, record.threads), index] = record
    points = [index for _, index in latest]
    described = part_of(task, points[0])[0] if points else task
    model = XGBCostModel(Extractor(described, feature_type).names, loss_type)
    if not points:
        return model
    numbers = {where: n for n, where in enumerate(dict.fromkeys(where for where, _ in latest))}
    rows = rows_of(task, points, feature_type)
    outcomes, scores = zip(*(score_of(result_of(r)) for r in latest.values()), strict=True)
    model.fit(
        Samples(
            Batch(rows.values, np.zeros(len(latest)), rows.failed),
            np.array(scores, np.float64),
            np.array(outcomes, np.int64),
            np.array([numbers[where] for where, _ in latest], np.int64),
        )
    )
    return model
