"""Cost models see candidates as a `Batch` and learn from `Samples`.

Scores are binary logarithms of speed; only differences within one task mean anything, since a model
may add any constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from loopwright.errors import TuneError

Floats = npt.NDArray[np.float64]


class SampleOutcome(IntEnum):
    #: It was measured.
    EXACT = 0
    #: Racing dropped it: it is no faster than about this.
    CENSORED = 1
    #: It failed: its score is ignored, and it counts as slower than all that ran.
    FAILED = 2


@dataclass(frozen=True)
class Batch:
    #: float32 ``(n, m)``; NaN where a feature is unknown, never infinite.
    features: npt.NDArray[np.float32]
    #: float64 ``(n,)``, finite: the prediction that the learned model starts from (that of the
    #: analytical model, of a model of other shapes); zeros without one.
    offset: Floats
    #: bool ``(n,)``, True where no features could be extracted.
    failed: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        if np.isinf(self.features).any():
            row, column = np.argwhere(np.isinf(self.features))[0]
            raise TuneError(f"feature {column} of candidate {row} is infinite; give NaN or a limit")
        if not np.isfinite(self.offset).all():
            raise TuneError(
                f"the offset of candidate {np.argmin(np.isfinite(self.offset))} is not finite"
            )

    def __len__(self) -> int:
        return len(self.features)

    def take(self, which: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Batch:
        return Batch(self.features[which], self.offset[which], self.failed[which])

    def with_offset(self, offset: Floats) -> Batch:
        return Batch(self.features, offset, self.failed)

    @staticmethod
    def plain(features: npt.ArrayLike) -> Batch:
        values = np.asarray(features, np.float32)
        return Batch(values, np.zeros(len(values)), np.zeros(len(values), np.bool_))


@dataclass(frozen=True)
class Samples:
    batch: Batch
    #: float64 ``(n,)``, log2 of the speed in any unit that is the same within a task.
    score: Floats
    #: int ``(n,)`` of `SampleOutcome`.
    outcome: npt.NDArray[np.int64]
    #: int ``(n,)``; scores are compared within equal numbers only.
    task: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        lengths = {len(self.batch), len(self.score), len(self.outcome), len(self.task)}
        if len(lengths) != 1:
            raise TuneError(
                f"{len(self.batch)} candidates with {len(self.score)} scores, "
                f"{len(self.outcome)} outcomes and {len(self.task)} tasks"
            )
        wrong = (self.outcome != SampleOutcome.FAILED) & ~np.isfinite(self.score)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise TuneError(
                f"the score of candidate {row} is {self.score[row]}; a cost model learns from "
                "finite numbers: mark what failed as FAILED"
            )

    def __len__(self) -> int:
        return len(self.score)

    def take(self, which: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Samples:
        return Samples(
            self.batch.take(which), self.score[which], self.outcome[which], self.task[which]
        )


def concatenated(parts: Sequence[Batch]) -> Batch:
    return Batch(
        np.concatenate([p.features for p in parts]),
        np.concatenate([p.offset for p in parts]),
        np.concatenate([p.failed for p in parts]),
    )


def joined(parts: Sequence[Samples]) -> Samples:
    return Samples(
        concatenated([p.batch for p in parts]),
        np.concatenate([p.score for p in parts]),
        np.concatenate([p.outcome for p in parts]),
        np.concatenate([p.task for p in parts]),
    )


def failed_last(scores: Floats, failed: npt.NDArray[np.bool_]) -> Floats:
    """Scores in which candidates without features are one below all others."""
    if not failed.any():
        return scores
    lowest = scores[~failed].min() if not failed.all() else 0.0
    return np.where(failed, lowest - 1.0, scores)
