"""Learn a cost model from a log, and explain a candidate's predicted speed by its features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright.cost import AnalyticalModel, Extractor
from loopwright.errors import TuneError
from loopwright.records import Record, measured
from loopwright.task import ConfigEntity, Task, digits_of
from loopwright.tuner.model.candidates import part_of, rows_of, score_of
from loopwright.tuner.model.cost_model import Batch, Samples
from loopwright.tuner.model.xgb_model import XGBCostModel
from loopwright.tuner.run.recorded import result_of

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Line:
    name: str
    #: In its own unit; where the model sees a logarithm this is before taking it.
    value: float
    #: Added to the predicted log2 of the speed; None without a model.
    contribution: float | None
    #: Meaning in words; empty for a knob.
    meaning: str


@dataclass(frozen=True)
class Explanation:
    """The features of one candidate.

    Attributes:
        estimate: the share of the machine's peak that the analytical model expects.
        predicted: the learned model's score, log2 of the speed up to a constant; None without one.
        ahead: the share of its training samples that the model predicts to be slower; None when it
            does not have them.
        lines: features, those with the largest contributions first; features of loops, loads and
            stages that the candidate does not have are left out.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> explanation = lw.tuner.explain(task, 0)
        >>> print(explanation.config.index, len(explanation.lines) > 10)
        0 True
    """

    config: ConfigEntity
    estimate: float
    predicted: float | None
    ahead: float | None
    lines: tuple[Line, ...]

    @property
    def title(self) -> str:
        text = f"{self.config}: {self.estimate:.0%} of the peak by the analytical model"
        if self.predicted is not None:
            text += f"; learned score {self.predicted:.2f}"
        if self.ahead is not None:
            text += f", above {self.ahead:.0%} of what it learned from"
        return text

    def text(self, limit: int | None = None) -> str:
        rows = [_cells(x) for x in self.lines[:limit]]
        widths = [max((len(r[k]) for r in rows), default=0) for k in range(3)]
        body = [
            f"{name:<{widths[0]}}  {value:>{widths[1]}}  {part:>{widths[2]}}  {what}".rstrip()
            for name, value, part, what in rows
        ]
        return "\n".join([self.title, *body])

    def __str__(self) -> str:
        return self.text()

    def table(self, limit: int | None = None) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self.title), title_justify="left")
        table.add_column("feature")
        table.add_column("value", justify="right")
        table.add_column("adds (log2 of speed)", justify="right")
        table.add_column("what it is")
        for line in self.lines[:limit]:
            table.add_row(*_cells(line))
        return table


def _cells(line: Line) -> tuple[str, str, str, str]:
    part = "" if line.contribution is None else f"{line.contribution:+.3f}"
    return line.name, f"{line.value:.4g}", part, line.meaning


def explain(
    task: Task,
    config: ConfigEntity | int | Mapping[str, Any],
    model: XGBCostModel | None = None,
    feature_type: str = "itervar",
) -> Explanation:
    """Explain a candidate by its features and the contribution of each to a model's prediction.

    Args:
        config: a configuration of its space, its index, or ``{knob: value}``.
        model: a trained model on features of ``feature_type``; its contributions are the SHAP
            values of its trees (Lundberg et al., 2018), which add up to its prediction.
        feature_type: see `Extractor`.

    Raises:
        TuneError: the template refuses the candidate, its values are no point of the space, or the
            model is for other features.
    """
    entity = task.config(config)
    if entity.index is None:
        raise TuneError(f"{entity} is not a point of the space of {task}; give an index of it")
    part, local = part_of(task, entity.index)
    digits = digits_of(part.config_space, [local])
    extractor = Extractor(part, feature_type)
    rows = extractor.rows(digits)
    if rows.failed[0]:
        task.instantiate(entity)
        raise TuneError(f"no features could be derived from the schedule of {entity}")
    parts: list[float | None] = [None] * len(extractor.columns)
    predicted = ahead = None
    if model is not None:
        batch = Batch.plain(rows.values)
        predicted = float(model.predict(batch)[0])
        if model.samples is not None and len(model.samples):
            learned = model.samples.batch
            scores = model.predict(learned.with_offset(np.zeros(len(learned))))
            ahead = float(np.mean(scores < predicted))
        parts = list(model.contributions(batch)[0])
    lines = [
        Line(c.name, float(np.exp2(v) - 1 if c.logged else v), part, c.meaning)
        for c, v, part in zip(extractor.columns, rows.values[0], parts, strict=True)
        if v or part
    ]
    lines.sort(key=lambda x: -abs(x.contribution or 0.0))
    estimate = float(np.exp2(AnalyticalModel(part).predict(digits)[0]))
    return Explanation(entity, estimate, predicted, ahead, tuple(lines))


def learn(
    task: Task, records: Iterable[Record], feature_type: str = "itervar", loss_type: str = "reg"
) -> XGBCostModel:
    """Train a cost model on the records of one task, such as ``explain`` takes.

    Records of other tasks and spaces are passed over. Where a configuration was measured twice
    under the same conditions, the later record counts; other hardware, threads or compilers are
    compared only among themselves. With fewer than two configurations that ran, the model is not
    ``ready``.

    Args:
        feature_type: see `loopwright.cost.features.Extractor`.
        loss_type: see `XGBCostModel`.

    Raises:
        UsageError: an unknown option, or features of knobs for records of several structures.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> model = lw.tuner.learn(task, lw.records.load("matmul.jsonl").records)
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
