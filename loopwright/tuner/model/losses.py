"""Losses that a model is trained with: of scores, or of the order of two candidates.

A loss gives the gradient and the second derivative of each row for a vector of predictions, as
XGBoost asks of an objective. All know three kinds of rows (see `Outcome`): a censored one is
satisfied by any prediction at or below its score, and a failure is censored below all that ran.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from loopwright.tuner.model.cost_model import Floats, Outcome, Samples

#: Options of ``loss_type``.
LOSS_TYPES = ("reg", "rank", "rank-binary")

#: Distance of a failure below the slowest that ran, in powers of two.
_FAILURE = 1.0
#: Partners of each row in a ranking loss; all pairs would be too many from some hundred rows on.
_PARTNERS = 12
#: Share of the rows that ``rank-binary`` calls good.
_GOOD = 0.25


class Loss(ABC):
    """A loss over fixed rows."""

    @abstractmethod
    def gradient(self, margin: Floats) -> tuple[Floats, Floats]:
        """First and second derivative of each row, ``(n,)`` both, the second above zero."""

    @abstractmethod
    def value(self, margin: Floats) -> float: ...


class SquaredError(Loss):
    """Half the squared error, one-sided where ``upper``: there the truth is at most the target."""

    def __init__(self, target: Floats, upper: npt.NDArray[np.bool_], weight: Floats) -> None:
        self._target, self._upper, self._weight = target, upper, weight

    def gradient(self, margin: Floats) -> tuple[Floats, Floats]:
        """``margin - target``, and 1; zero where a censored row is satisfied."""
        error = self._error(margin)
        return self._weight * error, np.maximum(self._weight, 1e-6)

    def value(self, margin: Floats) -> float:
        """Root of the weighted mean square."""
        return float(np.sqrt(np.average(self._error(margin) ** 2, weights=self._weight)))

    def _error(self, margin: Floats) -> Floats:
        error = margin - self._target
        return np.where(self._upper, np.maximum(error, 0.0), error)


class PairwiseLoss(Loss):
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
        """Pull the rows of each pair apart by the chance that the model swaps them."""
        wrong = 1 / (1 + np.exp(np.clip(margin[self.better] - margin[self.worse], -40, 40)))
        pull = wrong * self.weight
        curve = wrong * (1 - wrong) * self.weight
        n, better, worse = self._count, self.better, self.worse
        first = np.bincount(worse, pull, n) - np.bincount(better, pull, n)
        second = np.bincount(worse, curve, n) + np.bincount(better, curve, n)
        return first.astype(np.float64), np.maximum(second, 1e-6).astype(np.float64)

    def value(self, margin: Floats) -> float:
        """Weighted mean of the logistic losses; 0 without pairs."""
        if not len(self.better):
            return 0.0
        losses = np.logaddexp(0, margin[self.worse] - margin[self.better])
        return float(np.average(losses, weights=self.weight))


def centred(samples: Samples) -> tuple[Floats, npt.NDArray[np.bool_], Floats]:
    """Targets and offsets to train on, which can be compared across tasks.

    ``(target, upper, offset)``, each ``(n,)``: scores less the mean of their task's measured ones,
    failures one power of two below the slowest of their task; whether the truth is at or below;
    offsets less their own mean in each task.
    """
    target, offset = samples.score.copy(), samples.batch.offset.copy()
    failed = samples.outcome == Outcome.FAILED
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
    return target, samples.outcome != Outcome.EXACT, offset


def make_loss(
    loss_type: str,
    target: Floats,
    upper: npt.NDArray[np.bool_],
    task: npt.NDArray[np.int64],
    seed: int = 0,
    weight: Floats | None = None,
) -> Loss:
    """The loss of a ``loss_type`` over rows as `centred` gives them.

    Rows of different tasks are never compared; a pair weighs the product of its rows' weights.
    """
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
