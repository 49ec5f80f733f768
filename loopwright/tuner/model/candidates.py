"""Candidates of one task as its cost model sees them: their features, and what is known of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loopwright.cost.cpu.analytical import AnalyticalModel
from loopwright.cost.features import Extractor
from loopwright.task.vectors import Digits, digits_of, random_digits
from loopwright.tuner.model.cost_model import Batch, CostModel, Outcome, Samples, all_of
from loopwright.tuner.run.state import point, speed_of

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity, Task


#: Points for which the template is probed; it is slow when it ran for nine in ten of them.
_PROBES = 64
#: Random points that are drafted from, as a multiple of those that are kept.
_DRAFT = 4
#: Results after which what another model says weighs half as much; below 5 % it is left out.
_HALF = 64
_LEFT_OUT = 0.05


class Candidates:
    """Makes batches of the points of a task.

    Args:
        task: the task.
        feature_type: see `Extractor`.
        analytical: whether batches have the prediction of the analytical model as their offset.

    Attributes:
        names: names of the features.
        elder: a model trained on other measurements, whose word is part of the offset; its weight
            halves every 64 results (AutoTVM's discount of transferred models).
    """

    def __init__(self, task: Task, feature_type: str, analytical: bool) -> None:
        self.task, self.feature_type = task, feature_type
        self._extractor = Extractor(task, feature_type)
        self.names: tuple[str, ...] = tuple(self._extractor.names)
        self._analytical = AnalyticalModel(task) if analytical else None
        self.elder: CostModel | None = None
        self._known_slow: bool | None = None

    def of(self, task: Task) -> Candidates:
        """The same kind of batches for another task, without an elder."""
        return Candidates(task, self.feature_type, self.analytical)

    @property
    def analytical(self) -> bool:
        """True when the analytical model has a say."""
        return self._analytical is not None

    @property
    def has_offset(self) -> bool:
        """True when something is said of candidates before any was measured."""
        return self._analytical is not None or self.elder is not None

    @property
    def slow(self) -> bool:
        """True when features cost milliseconds a candidate, because the template branches on what
        its knobs choose and has to run for nearly every one.

        A fresh extractor is asked for the same few points in every process, so that the answer,
        on which proposals depend, is the same everywhere.
        """
        if self._known_slow is None:
            probe = Extractor(self.task, self.feature_type)
            rng = np.random.default_rng(0)
            probe.rows(random_digits(self.task.config_space, _PROBES, rng))
            self._known_slow = probe.derived > 0.9 * _PROBES
        return self._known_slow

    def batch(self, digits: Digits, told: int) -> Batch:
        """Features and offsets of points when ``told`` results are known.

        Args:
            digits: int64 ``(n, knobs)``.
            told: how many results of this task the model has learned from.
        """
        return self.inherited(self.plain(digits), told)

    def plain(self, digits: Digits) -> Batch:
        """The same with the word of the analytical model alone as offset."""
        rows = self._extractor.rows(digits)
        offset = np.zeros(len(digits))
        if self._analytical is not None:
            offset = np.asarray(self._analytical.predict(digits), np.float64)
        return Batch(rows.values, offset, rows.failed)

    def drafted(self, count: int, rng: np.random.Generator) -> Digits:
        """Points that the analytical model likes: the best of many random ones (Pruner, ASPLOS
        2025, drafts so what a learned model verifies). None without it, or where it is slow."""
        space = self.task.config_space
        if self._analytical is None or self.slow:
            return np.empty((0, len(space.dims)), np.int64)
        digits = random_digits(space, _DRAFT * count, rng)
        order = np.argsort(-self._analytical.predict(digits), kind="stable")
        return digits[order[:count]]

    def inherited(self, plain: Batch, told: int) -> Batch:
        """A plain batch with what the elder says of it, as far as that still counts."""
        weight = 2.0 ** (-told / _HALF)
        if self.elder is None or weight < _LEFT_OUT:
            return plain
        word = self.elder.predict(plain.with_offset(np.zeros(len(plain))))
        return plain.with_offset(plain.offset + weight * word)

    def failed(self, digits: Digits) -> npt.NDArray[np.bool_]:
        """Which points have no features: their template refuses them."""
        return np.asarray(self._extractor.rows(digits).failed)


class Known:
    """What was measured of a task, in the order in which it was told."""

    def __init__(self) -> None:
        self.indices: list[int] = []
        self._outcomes: list[int] = []
        self._scores: list[float] = []
        #: Features of the first of them; a shortcut, since they are functions of the indices.
        self._batches: list[Batch] = []

    def __len__(self) -> int:
        return len(self.indices)

    def add(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Take in results."""
        for config, result in results:
            outcome, score = judged(result)
            self.indices.append(point(config))
            self._outcomes.append(outcome)
            self._scores.append(score)

    @property
    def ran(self) -> int:
        """How many did not fail."""
        return sum(outcome != Outcome.FAILED for outcome in self._outcomes)

    def fastest(self) -> list[int]:
        """Indices of what ran, fastest first."""
        order = np.argsort(-np.array(self._scores, np.float64), kind="stable").tolist()
        return [self.indices[i] for i in order if self._outcomes[i] != Outcome.FAILED]

    def samples(self, candidates: Candidates, told: int) -> Samples:
        """All of it, to learn from; ``told`` as for `Candidates.batch`."""
        done = sum(map(len, self._batches))
        if done < len(self):
            digits = digits_of(candidates.task.config_space, self.indices[done:])
            self._batches.append(candidates.plain(digits))
        return Samples(
            candidates.inherited(all_of(self._batches), told),
            np.array(self._scores, np.float64),
            np.array(self._outcomes, np.int64),
            np.zeros(len(self), np.int64),
        )


def judged(result: MeasureResult) -> tuple[Outcome, float]:
    """What a result says, and log2 of its speed (0.0 for a failure)."""
    speed = speed_of(result)
    if speed == 0:
        return Outcome.FAILED, 0.0
    return (Outcome.CENSORED if result.dropped else Outcome.EXACT), math.log2(speed)
