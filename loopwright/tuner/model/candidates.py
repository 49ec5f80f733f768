"""Candidates of one task as its cost model sees them: their features, and their measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loopwright.cost import AnalyticalModel, Extractor, FeatureRows
from loopwright.errors import UsageError
from loopwright.task import Digits, Scheduler, SpaceUnion, digits_of, random_digits
from loopwright.tuner.model.cost_model import Batch, SampleOutcome, Samples, concatenated
from loopwright.tuner.run.state import point, speed_of

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity
    from loopwright.tuner.model.xgb_model import XGBCostModel


#: Number of points for which the template is probed; it is slow when it ran for nine in ten.
_PROBES = 64
#: Random points among which the analytical model chooses, as a multiple of those that are kept.
_CHOICE = 4
#: Results after which the transfer model's prediction weighs half as much, and the weight below
#: which it is left out.
_HALF_LIFE, _NEGLIGIBLE = 64, 0.05
#: Largest number of results that a model learns from: a hundred thousand would take minutes.
_MOST = 4096


class CandidateBatches:
    def __init__(self, task: Scheduler, feature_type: str, analytical: bool) -> None:
        self.task, self.feature_type = task, feature_type
        self._extractor = Extractor(task, feature_type)
        self.names: tuple[str, ...] = tuple(self._extractor.names)
        self._analytical = AnalyticalModel(task) if analytical else None
        #: A model trained on other measurements, whose prediction is part of the offset; its weight
        #: halves every 64 results (AutoTVM's discount of transferred models).
        self.transfer_model: XGBCostModel | None = None
        self._slow: bool | None = None

    @property
    def analytical(self) -> bool:
        return self._analytical is not None

    @property
    def has_offset(self) -> bool:
        return self._analytical is not None or self.transfer_model is not None

    @property
    def slow(self) -> bool:
        """True when features cost milliseconds a candidate, because the template branches on its
        knobs and has to run for nearly every one."""
        # A fresh extractor is asked for the same few points in every process, since proposals
        # depend on the answer; it stays, having more to derive than the one before.
        if self._slow is None:
            self._extractor = probe = Extractor(self.task, self.feature_type)
            rng = np.random.default_rng(0)
            probe.rows(random_digits(self.task.config_space, _PROBES, rng))
            self._slow = probe.derived > 0.9 * _PROBES
        return self._slow

    def batch(self, digits: Digits, measured: int) -> Batch:
        return self.with_transfer(self.without_transfer(digits), measured)

    def without_transfer(self, digits: Digits) -> Batch:
        rows = self._extractor.rows(digits)
        offset = np.zeros(len(digits))
        if self._analytical is not None:
            offset = np.asarray(self._analytical.predict(digits), np.float64)
        return Batch(rows.values, offset, rows.failed)

    def starting_points(self, count: int, rng: np.random.Generator) -> Digits:
        """The best of many random points by the analytical model, as the start of a search (the
        draft of Pruner, ASPLOS 2025); none without that model, or where it is slow."""
        space = self.task.config_space
        if self._analytical is None or self.slow:
            return np.empty((0, len(space.dims)), np.int64)
        digits = random_digits(space, _CHOICE * count, rng)
        order = np.argsort(-self._analytical.predict(digits), kind="stable")
        return digits[order[:count]]

    def with_transfer(self, batch: Batch, measured: int) -> Batch:
        return batch if self.transfer_model is None else faded(batch, self.transfer_model, measured)

    def failed(self, digits: Digits) -> npt.NDArray[np.bool_]:
        return np.asarray(self._extractor.rows(digits).failed)


def faded(batch: Batch, transfer_model: XGBCostModel, measured: int) -> Batch:
    """Mix a transfer model's prediction into an offset, less of it the more was measured."""
    weight = 2.0 ** (-measured / _HALF_LIFE)
    if weight < _NEGLIGIBLE:
        return batch
    prediction = transfer_model.predict(batch.with_offset(np.zeros(len(batch))))
    return batch.with_offset(batch.offset + weight * prediction)


class Measurements:
    """Results of a task, in the order in which the tuner was told of them.

    A model learns from up to 4096 of them: from more the fastest half of that many, the latest
    quarter, and for the rest some drawn from all others, the same in every process.
    """

    def __init__(self) -> None:
        self.indices: list[int] = []
        self._outcomes: list[int] = []
        self._scores: list[float] = []
        # Features of the results that were learned from, and their rows by position: a cache, since
        # they are functions of the indices.
        self._batches: list[Batch] = []
        self._rows: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.indices)

    def add(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Take in results; a program that several configurations make counts once."""
        for config, result in results:
            if result.same_as:
                continue
            outcome, score = score_of(result)
            self.indices.append(point(config))
            self._outcomes.append(outcome)
            self._scores.append(score)

    def first(self, count: int) -> Measurements:
        if count >= len(self):
            return self
        part = Measurements()
        part.indices = self.indices[:count]
        part._outcomes, part._scores = self._outcomes[:count], self._scores[:count]
        part._batches, part._rows = self._batches, self._rows
        return part

    @property
    def ran(self) -> int:
        return sum(outcome != SampleOutcome.FAILED for outcome in self._outcomes)

    def fastest(self) -> list[int]:
        order = np.argsort(-np.array(self._scores, np.float64), kind="stable").tolist()
        return [self.indices[i] for i in order if self._outcomes[i] != SampleOutcome.FAILED]

    def samples(self, candidates: CandidateBatches, measured: int) -> Samples:
        chosen = self.chosen()
        new = [position for position in chosen.tolist() if position not in self._rows]
        if new:
            digits = digits_of(candidates.task.config_space, [self.indices[n] for n in new])
            self._batches.append(candidates.without_transfer(digits))
            self._rows.update((n, row) for row, n in enumerate(new, len(self._rows)))
        rows = np.array([self._rows[position] for position in chosen.tolist()], np.intp)
        return Samples(
            candidates.with_transfer(concatenated(self._batches).take(rows), measured),
            np.array(self._scores, np.float64)[chosen],
            np.array(self._outcomes, np.int64)[chosen],
            np.zeros(len(chosen), np.int64),
        )

    def chosen(self) -> npt.NDArray[np.intp]:
        count = len(self)
        if count <= _MOST:
            return np.arange(count)
        scores = np.array(self._scores, np.float64)
        scores[np.array(self._outcomes) != SampleOutcome.EXACT] = -np.inf
        # The first of the numbers drawn do not depend on how many are drawn.
        luck = np.random.default_rng(0).random(count)
        luck[np.argsort(-scores, kind="stable")[: _MOST // 2]] = -1.0
        luck[count - _MOST // 4 :] = -1.0
        return np.sort(np.argsort(luck, kind="stable")[:_MOST])


def score_of(result: MeasureResult) -> tuple[SampleOutcome, float]:
    """The outcome of a measurement, and log2 of its calls per second (0.0 for a failure)."""
    speed = speed_of(result)
    if speed == 0:
        return SampleOutcome.FAILED, 0.0
    return (SampleOutcome.CENSORED if result.dropped else SampleOutcome.EXACT), math.log2(speed)


def part_of(task: Scheduler, index: int) -> tuple[Scheduler, int]:
    """The structure that a point is of, and its index there; a task of one space is its own."""
    space = task.config_space
    if not isinstance(space, SpaceUnion):
        return task, index
    number, local = space.place(index)
    return space.parts[number], local


def rows_of(task: Scheduler, indices: Sequence[int], feature_type: str) -> FeatureRows:
    """Features of one or more points; those of knobs are refused for several structures."""
    members: dict[int, tuple[Scheduler, list[int], list[int]]] = {}
    for row, index in enumerate(indices):
        part, local = part_of(task, index)
        _, rows, locals_ = members.setdefault(id(part), (part, [], []))
        rows.append(row)
        locals_.append(local)
    if feature_type == "knob" and len(members) > 1:
        raise UsageError(
            f"features of knobs: the records are of {len(members)} structures, each with knobs of "
            "its own; ask for the features 'itervar' or 'curve'"
        )
    features = [
        (rows, Extractor(part, feature_type).rows(digits_of(part.config_space, locals_)))
        for part, rows, locals_ in members.values()
    ]
    order = np.argsort(np.concatenate([rows for rows, _ in features]))
    return FeatureRows(
        np.concatenate([own.values for _, own in features])[order],
        np.concatenate([own.failed for _, own in features])[order],
    )
