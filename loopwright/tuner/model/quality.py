"""Quality of a cost model on measurements that it had not seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loopwright.tuner.model.cost_model import Floats

#: Share of the measurements that is called the top.
TOP = 0.25


@dataclass(frozen=True)
class ModelReport:
    """Quality of a model in one round: its predictions, made before the round was measured."""

    round: int
    #: Rows that the model had learned from, those of other shapes included.
    trained_on: int
    #: Measurements that it is judged by: those of the round that ran.
    unseen: int
    #: Spearman's rank correlation of predicted and measured speed, from -1 to 1; NaN when there are
    #: fewer than three, or one of both does not vary.
    spearman: float
    #: Kendall's tau-b of the same.
    kendall: float
    #: Share of the fastest quarter of ``unseen`` in the model's fastest quarter; 0.25 is chance.
    recall: float
    #: Rounds of boosting that the model has.
    trees: int

    def __str__(self) -> str:
        return (
            f"round {self.round}: rank correlation {self.spearman:.2f} (Spearman), "
            f"{self.kendall:.2f} (Kendall), {self.recall:.0%} of the top found, on {self.unseen} "
            f"unseen ({self.trees} trees of {self.trained_on} rows)"
        )


def judge(
    predicted: Floats, measured: Floats, *, round: int, trained_on: int, trees: int
) -> ModelReport:
    """Compare predictions with measurements, both ``(n,)`` and higher for faster."""
    return ModelReport(
        round,
        trained_on,
        len(measured),
        *rank_correlation(predicted, measured),
        recall_of_top(predicted, measured),
        trees,
    )


def rank_correlation(predicted: Floats, measured: Floats) -> tuple[float, float]:
    """Spearman's and Kendall's rank correlation; NaN where they are not defined."""
    if len(measured) < 3 or not np.ptp(predicted) or not np.ptp(measured):
        return float("nan"), float("nan")
    spearman = np.corrcoef(_ranks(predicted), _ranks(measured))[0, 1]
    return float(spearman), _kendall(predicted, measured)


def _ranks(values: Floats) -> Floats:
    """Ranks of values, ascending; equal ones have the middle of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(middles[place.reshape(-1)], np.float64)


def _kendall(a: Floats, b: Floats) -> float:
    """Kendall's tau-b: agreeing pairs less disagreeing ones, over the mean of those without ties.

    SciPy has both coefficients too, and takes a second to import.
    """
    signs_a, signs_b = (np.sign(x[:, None] - x) for x in (a, b))
    together = float(np.vdot(signs_a, signs_b))
    return together / math.sqrt(np.count_nonzero(signs_a) * np.count_nonzero(signs_b))


def recall_of_top(predicted: Floats, measured: Floats, top: float = TOP) -> float:
    """Share of the measured top that is in the predicted top of equal size; NaN without any."""
    if not len(measured):
        return float("nan")
    count = max(1, round(top * len(measured)))
    return len(_first(predicted, count) & _first(measured, count)) / count


def _first(values: Floats, count: int) -> set[int]:
    order: npt.NDArray[np.intp] = np.argsort(-values, kind="stable")
    return set(order[:count].tolist())
