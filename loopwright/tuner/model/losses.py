"""Losses that a model is trained with, and its quality on unseen rows.

A loss gives the first and second derivative by each prediction, as XGBoost asks of an objective. A
censored row (see `SampleOutcome`) is satisfied by any prediction at or below its score, and a
failure is censored below all that ran.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loopwright.records import rank_correlation as spearman
from loopwright.tuner.model.cost_model import Floats, SampleOutcome, Samples

#: Options of ``loss_type``.
LOSS_TYPES = ("reg", "rank", "rank-binary")

#: Distance of a failure below the slowest that ran, in powers of two.
_FAILURE = 1.0
#: Partners of each row in a ranking loss; all pairs would be too many from some hundred rows on.
_PARTNERS = 12
#: Share of the rows that ``rank-binary`` calls good.
_GOOD = 0.25


class SquaredError:
    """Half the squared error, one-sided where ``upper``: there the truth is at most the target."""

    def __init__(self, target: Floats, upper: npt.NDArray[np.bool_], weight: Floats) -> None:
        self._target, self._upper, self._weight = target, upper, weight

    def gradient(self, margin: Floats) -> tuple[Floats, Floats]:
        error = self._error(margin)
        return self._weight * error, np.maximum(self._weight, 1e-6)

    def value(self, margin: Floats) -> float:
        return float(np.sqrt(np.average(self._error(margin) ** 2, weights=self._weight)))

    def _error(self, margin: Floats) -> Floats:
        error = margin - self._target
        return np.where(self._upper, np.maximum(error, 0.0), error)


class PairwiseLoss:
    """RankNet's loss (Burges et al., ICML 2005): the logistic loss of the differences of pairs."""

    def __init__(
        self,
        count: int,
        better: npt.NDArray[np.int64],
        worse: npt.NDArray[np.int64],
        weight: Floats,
    ) -> None:
        self._count, self.better, self.worse, self.weight = count, better, worse, weight

    def gradient(self, margin: Floats) -> tuple[Floats, Floats]:
        wrong = 1 / (1 + np.exp(np.clip(margin[self.better] - margin[self.worse], -40, 40)))
        pull = wrong * self.weight
        curve = wrong * (1 - wrong) * self.weight
        n, better, worse = self._count, self.better, self.worse
        first = np.bincount(worse, pull, n) - np.bincount(better, pull, n)
        second = np.bincount(worse, curve, n) + np.bincount(better, curve, n)
        return first.astype(np.float64), np.maximum(second, 1e-6).astype(np.float64)

    def value(self, margin: Floats) -> float:
        if not len(self.better):
            return 0.0
        losses = np.logaddexp(0, margin[self.worse] - margin[self.better])
        return float(np.average(losses, weights=self.weight))


#: A loss over fixed rows: gradients as XGBoost takes them, the second above zero, and its value.
Loss = SquaredError | PairwiseLoss


def centred(samples: Samples) -> tuple[Floats, npt.NDArray[np.bool_], Floats]:
    """Targets and offsets to train on, which can be compared across tasks.

    ``(target, upper, offset)``, each ``(n,)``: scores less the mean of their task's measured ones,
    failures one power of two below the slowest of their task; whether the truth is at or below;
    offsets less their own mean in each task.
    """
    target, offset = samples.score.copy(), samples.batch.offset.copy()
    failed = samples.outcome == SampleOutcome.FAILED
    for task in np.unique(samples.task):
        rows = samples.task == task
        ran = rows & ~failed
        if not ran.any():
            target[rows] = -_FAILURE
            offset[rows] -= offset[rows].mean()
            continue
        target[rows & failed] = target[ran].min() - _FAILURE
        target[rows] -= target[ran].mean()
        offset[rows] -= offset[ran].mean()
    return target, samples.outcome != SampleOutcome.EXACT, offset


def make_loss(
    loss_type: str,
    target: Floats,
    upper: npt.NDArray[np.bool_],
    task: npt.NDArray[np.int64],
    seed: int = 0,
    weight: Floats | None = None,
) -> Loss:
    """The loss of rows as `centred` gives them; a pair weighs the product of its rows' weights."""
    weight = np.ones(len(target)) if weight is None else weight
    if loss_type == "reg":
        return SquaredError(target, upper, weight)
    better, worse = _pairs(task, seed)
    if loss_type == "rank-binary":
        good = _good(target, upper, task)
        swap = good[worse] & ~good[better]
        kept = good[better] != good[worse]
    else:
        swap = target[worse] > target[better]
        kept = target[better] != target[worse]
    better, worse = np.where(swap, worse, better), np.where(swap, better, worse)
    # The faster one of two is not known when its score is no more than a limit.
    kept &= ~upper[better]
    better, worse = better[kept], worse[kept]
    pairs = 2.0 / _PARTNERS * weight[better] * weight[worse]
    return PairwiseLoss(len(target), better, worse, pairs)


def _pairs(
    task: npt.NDArray[np.int64], seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Every pair of a task, or, when it has many rows, each row with some partners."""
    rng = np.random.default_rng(seed)
    first, second = [], []
    for number in np.unique(task):
        rows = np.flatnonzero(task == number)
        if len(rows) <= 2 * _PARTNERS + 1:
            a, b = np.triu_indices(len(rows), 1)
        else:
            shifts = 1 + rng.permutation(len(rows) - 1)[:_PARTNERS]
            order = rng.permutation(len(rows))
            a = np.repeat(order, len(shifts))
            b = order[(np.arange(len(rows))[:, None] + shifts).ravel() % len(rows)]
        first.append(rows[a])
        second.append(rows[b])
    return np.concatenate([[], *first]).astype(np.int64), np.concatenate([[], *second]).astype(
        np.int64
    )


def _good(
    target: Floats, upper: npt.NDArray[np.bool_], task: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    good = np.zeros(len(target), np.bool_)
    for number in np.unique(task):
        rows = np.flatnonzero((task == number) & ~upper)
        best = rows[np.argsort(-target[rows], kind="stable")]
        good[best[: max(1, round(_GOOD * len(rows)))]] = True
    return good


#: Share of the measurements that is called the top.
TOP = 0.25


@dataclass(frozen=True)
class ModelQuality:
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
) -> ModelQuality:
    return ModelQuality(
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
    return spearman(predicted, measured), _kendall(predicted, measured)


def _kendall(a: Floats, b: Floats) -> float:
    """Kendall's tau-b: agreeing pairs less disagreeing ones, over the mean of those without ties.
    SciPy has both coefficients, too, and takes a second to import."""
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
