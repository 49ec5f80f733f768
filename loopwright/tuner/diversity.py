"""Choice of a batch that is good and not all of one kind."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loopwright.task.sampling import Digits


def diverse(
    digits: Digits, scores: npt.NDArray[np.float64], count: int, knob_weight: float = 1.0
) -> list[int]:
    """Pick points greedily by score and by the share of their knob values that no pick has yet.

    AutoTVM's ``submodular_pick``: the sum of scores and of knob values covered is submodular, so
    the greedy pick is within ``1 - 1/e`` of the best one. Points come best first; scores are scaled
    to 0..1, beside which ``knob_weight`` is the weight of a point all of whose knob values are new.
    """
    span = float(np.ptp(scores)) if len(scores) else 0.0
    value = (scores - scores.min()) / span if span else np.ones(len(scores))
    fresh = np.ones(digits.shape, bool)
    left = np.ones(len(digits), bool)
    picks: list[int] = []
    for _ in range(min(count, len(digits))):
        news = fresh.mean(axis=1) if digits.shape[1] else 0.0
        gain = np.where(left, value + knob_weight * news, -np.inf)
        pick = int(np.argmax(gain))
        picks.append(pick)
        left[pick] = False
        fresh &= digits != digits[pick]
    return picks


def in_turn(predictions: npt.NDArray[np.float64], count: int, first: int = 0) -> list[int]:
    """Rows that several models pick in turn, each the best one left by its column of predictions.

    With models that were trained on resampled rows this is Thompson sampling of a batch (Kandasamy
    et al., AISTATS 2018): a row is picked as often as it is plausible that it is the best.
    """
    models = predictions.shape[1]
    orders = [iter(np.argsort(-column, kind="stable").tolist()) for column in predictions.T]
    picked: dict[int, None] = {}
    while len(picked) < min(count, len(predictions)):
        order = orders[(first + len(picked)) % models]
        picked[next(row for row in order if row not in picked)] = None
    return list(picked)
