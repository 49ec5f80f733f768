"""Search guided by a learned cost model: boosted trees rank, evolution proposes, measuring teaches.

Models trained with random weights of the same results pick the points of a round in turn, so that
points on which they disagree are tried, too. They depend on the results alone and are trained when
first needed, so that telling the results of a log again costs nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from loopwright.errors import UsageError, did_you_mean
from loopwright.task import Digits, ValidMemo, digits_of, distinct, indices_of, random_digits
from loopwright.tuner.base import Tuner
from loopwright.tuner.breeding import KnownPoints, own_rules
from loopwright.tuner.droplet_tuner import PVALUE, Descent
from loopwright.tuner.evolution import Annealing, Evolution, Pool, ansor
from loopwright.tuner.model.candidates import CandidateBatches, Measurements
from loopwright.tuner.model.cost_model import SampleOutcome
from loopwright.tuner.model.losses import ModelQuality, judge
from loopwright.tuner.model.transfer_model import History, Teacher
from loopwright.tuner.model.xgb_model import XGBCostModel
from loopwright.tuner.options import TunerOptions, at_least, option, optional, share, yes_or_no
from loopwright.tuner.range_tuners import fresh_points, no_fresh_point

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity, Task


#: Searches of a space for the points that the model prefers, and their names.
Optimizer = Evolution | Annealing
OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "evolution": Evolution,
    "sa": Annealing,
    "ansor": ansor,
}
_DEFAULT_OPTIMIZER: str | Optimizer = "evolution"


def _optimizer(name: str, value: str | Optimizer) -> str | Optimizer:
    if not isinstance(value, (Evolution, Annealing)) and value not in tuple(OPTIMIZERS):
        raise UsageError(
            f"unknown {name} {value!r}{did_you_mean(str(value), OPTIMIZERS)}; "
            f"use one of {', '.join(OPTIMIZERS)}"
        )
    return value


def _ratio(name: str, value: float | None) -> float | None:
    wrong = isinstance(value, bool) or not isinstance(value, (int, float, type(None)))
    if wrong or (value is not None and not 1 <= value < float("inf")):
        raise UsageError(f"{name} must be None or a number of at least 1, got {value!r}")
    return value


@dataclass(frozen=True)
class XGBOptions(TunerOptions):
    plan_size: int = option(
        16,
        "trials of a round, after which the model is trained again. 16 learns faster than "
        "AutoTVM's 64.",
        at_least(1),
    )
    feature_type: str = option(
        "itervar",
        "what the model sees of a candidate: 'itervar' (loops, buffers, caches and vectors of its "
        "schedule), 'knob' (the values of its knobs) or 'curve' (reuse curves of its buffers).",
    )
    loss_type: str = option("reg", "'reg', 'rank' or 'rank-binary'; see `XGBCostModel`.")
    num_threads: int | None = option(
        None,
        "threads that train the model; None for 1. Proposals do not depend on it.",
        optional(at_least(1)),
        recorded=False,
    )
    optimizer: str | Optimizer = option(  # noqa: RUF009 -- it makes a field, and no shared value
        _DEFAULT_OPTIMIZER,
        "'evolution', 'sa', 'ansor' (evolution with Ansor's sizes and mutations), or an "
        "`Evolution` or `Annealing` with its settings.",
        _optimizer,
    )
    diversity_filter_ratio: float | None = option(
        None,
        "pick each round out of this many times as many good points so that their knob values "
        "differ, a number of at least 1; None lets four models, three of them trained with random "
        "weights of the results, pick their best in turn.",
        _ratio,
    )
    log_interval: int = option(
        50, "accepted for AutoTVM's sake; progress has its own pace.", recorded=False, shown=False
    )
    epsilon: float = option(
        0.05, "chance of each trial to be a random point, 0 to 1.", share, keyword_only=True
    )
    analytical: bool = option(
        True,
        "whether an analytical model of the machine orders half of the first round, is the offset "
        "of the learned one, and proposes the points at which its search starts.",
        yes_or_no,
        keyword_only=True,
    )
    post_optimization: int | None = option(
        None,
        "number of the trial from which coordinate descent (that of `DropletTuner`) goes on from "
        "the best, until no neighbour of it is faster; then the model proposes again. None: never.",
        optional(at_least(0)),
        keyword_only=True,
    )

    adaptive_training: bool = option(
        True,
        "whether the model is trained again only once the results have grown by a fifth since the "
        "last time (Ansor's rule), instead of after every round.",
        yes_or_no,
        keyword_only=True,
    )

    @property
    def search(self) -> Optimizer:
        chosen = self.optimizer
        return OPTIMIZERS[chosen]() if isinstance(chosen, str) else chosen


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


#: Largest number of points of a space that is scored whole instead of searched.
_SMALL = 4096
#: Number of results that ran before the model is asked; until then the analytical model and chance
#: propose.
_FIRST = 8
#: Chance of a trial to be a neighbour of the fastest, and the number of tries for each.
_NEARBY, _TRIES = 0.125, 8
#: Number of models that pick the points of a round in turn.
_MODELS = 4
#: Number of points that the analytical model proposes as the start of a search.
_STARTS = 256
#: Factor by which the results must have grown before adaptive training.
_GROWTH = 1.2
#: Number of blocks of random points in which one with features is looked for.
_BLOCKS = 8


class XGBTuner(Tuner):
    """Proposes the points that a learned cost model prefers.

    Attributes:
        model: the cost model.
        teacher: has the model of measurements from elsewhere; tuners of structures share one.
        model_reports: a `ModelQuality` of each round that the model predicted before it was
            measured.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> tuner = lw.tuner.XGBTuner(task, seed=0)
        >>> print(len({config.index for config in tuner.ask(8)}))
        8
    """

    name: ClassVar[str] = "xgb"
    Options: ClassVar[type[TunerOptions]] = XGBOptions
    settings: XGBOptions

    def __init__(self, task: Task, *positional: object, seed: int = 0, **named: object) -> None:
        super().__init__(task, *positional, seed=seed, **named)
        settings = self.settings
        self.plan_size = settings.plan_size
        self._candidates = CandidateBatches(task, settings.feature_type, settings.analytical)
        self.model = XGBCostModel(
            self._candidates.names, settings.loss_type, settings.num_threads, ensemble=_MODELS
        )
        self.teacher = Teacher(self)
        self._moves = settings.search.moves(task.config_space)
        self._valid = ValidMemo(task.config_space)

    def reset(self) -> None:
        super().reset()
        self._results = Measurements()
        self._trained_on = -1
        self._due = 0
        self.model_reports: list[ModelQuality] = []
        self._descent = Descent(self.space, PVALUE)

    def learn(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Keep one round of results; the next ``ask`` trains on them, a model that is up to date is
        judged by them."""
        if self._current and self.model.ready:
            self._judge(results)
        self._results.add(results)
        # Of rounds that are told, not of those in which the model was asked: the same after a log.
        if not self.settings.adaptive_training or len(self._results) >= _GROWTH * self._due:
            self._due = len(self._results)
        self._descent.learn(results)

    def propose(self, n: int) -> Iterator[int]:
        """Yield what the model prefers, some random points, and in the end all that are left.

        With ``post_optimization`` the neighbours of the best come first, once it is their turn.
        """
        descends = self.settings.post_optimization
        if descends is not None and self.trials >= descends:
            yield from self._descent.next(self.rng, self.visited, self.admits)
        self._train()
        greedy = n - int(self.rng.binomial(n, self.settings.epsilon))
        if self.model.ready:
            nearby = self.nearby(int(self.rng.binomial(greedy, _NEARBY)))
            yield from nearby
            yield from self._liked(greedy - len(nearby))
        elif self._candidates.has_offset:
            yield from self._liked((n + 1) // 2)
        yield from self._random(n)
        self.why_empty = no_fresh_point((0, self.space.range_length))

    @property
    def options(self) -> dict[str, Any]:
        return {**super().options, "optimizer": repr(self.settings.search), **own_rules()}

    @property
    def notes(self) -> tuple[str, ...]:
        lines = [*super().notes, *self.history.notes]
        reports = [r for r in self.model_reports if r.spearman == r.spearman]
        if not reports:
            return tuple(lines)
        last = reports[-8:]
        spearman = float(np.median([r.spearman for r in last]))
        recall = float(np.mean([r.recall for r in last]))
        lines.append(
            f"model:   on what it had not seen, rank correlation {spearman:.2f} (1: the right "
            f"order, 0: chance), and {recall:.0%} of the fastest quarter found (last {len(last)} "
            f"of {len(reports)} rounds)"
        )
        return tuple(lines)

    @property
    def _current(self) -> bool:
        return self._trained_on == self._due

    def _train(self) -> None:
        if self._current:
            return
        self._trained_on = self._due
        self.on_phase("fitting the cost model")
        self._candidates.transfer_model = self.transfer_model
        measurements = self._results.first(self._due)
        if measurements.ran >= _FIRST:
            self.model.fit(measurements.samples(self._candidates, self._due))

    @property
    def history(self) -> History:
        return self.teacher.history

    @property
    def transfer_model(self) -> XGBCostModel | None:
        return self.teacher.taught(self._candidates, self.model.loss_type, self.model.num_threads)

    def most_promising(self) -> tuple[int, float] | None:
        """The point that the transfer model prefers before anything is measured, and the log2 of
        its speed beside that of others of the expression; None without that model."""
        self._candidates.transfer_model = self.transfer_model
        if self._candidates.transfer_model is None:
            return None
        rng = np.random.default_rng(self.seed)
        starts = self._candidates.starting_points(_STARTS, rng)
        digits = starts if len(starts) else random_digits(self.space, _STARTS, rng)
        indices = indices_of(self.space, digits)
        batch = self._candidates.batch(digits, 0)
        fits = self._fitting(indices) & ~batch.failed
        if not fits.any():
            return None
        best = int(np.argmax(np.where(fits, batch.offset, -np.inf)))
        return indices[best], float(batch.offset[best])

    def _judge(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        new = Measurements()
        new.add(results)
        if not new.ran:
            return
        samples = new.samples(self._candidates, self._due)
        ran = samples.outcome != SampleOutcome.FAILED
        self.model_reports.append(
            judge(
                self.model.predict(samples.batch)[ran],
                samples.score[ran],
                round=self.round,
                trained_on=self._due,
                trees=self.model.rounds,
            )
        )

    def score(self, digits: Digits) -> npt.NDArray[np.float64]:
        """Scores by every model of the ensemble, float64 ``(n, k)``; higher is faster."""
        return self.model.predict_ensemble(self._candidates.batch(digits, self._due))

    def _liked(self, count: int) -> list[int]:
        if count < 1:
            return []
        self.on_phase("scoring configurations")
        pool = Pool(self.space, self.score, self._fitting, self.visited)
        starts = self._candidates.starting_points(_STARTS, self.rng)
        slow, search = self._candidates.slow, self.settings.search
        if self.space.range_length <= _SMALL and not slow:
            pool.add(digits_of(self.space, range(self.space.range_length)))
        else:
            points = KnownPoints(self.space, self._seeds(), starts)
            (search.small() if slow else search).search(pool, self._moves, points, self.rng)
        ratio = self.settings.diversity_filter_ratio
        if ratio is None:
            best = pool.best()
            first = int(self.rng.integers(best.predictions.shape[1]))
            return [best.indices[i] for i in in_turn(best.predictions, count, first)]
        best = pool.best(int(count * ratio))
        return [best.indices[i] for i in diverse(best.digits, best.scores, count)]

    def _fitting(self, indices: Sequence[int]) -> npt.NDArray[np.bool_]:
        return self._valid(indices) & self.pruning(indices)

    def nearby(self, count: int) -> list[int]:
        """Up to ``count`` fresh points one mutation from the fastest, whatever the model predicts.

        Trees cannot tell that a knob never varied among the results they learned from, so that
        without this they might propose the only value they have seen for ever.
        """
        seeds = self._seeds()
        if not count or not len(seeds):
            return []
        # Half the steps start from the fastest, a quarter from the second, and so on.
        ranks = np.minimum(self.rng.geometric(0.5, size=_TRIES * count), len(seeds)) - 1
        indices = indices_of(self.space, self._moves.mutate(seeds[ranks], self.rng))
        fresh = [indices[i] for i in distinct(indices, self.visited).tolist()]
        return list(itertools.islice(filter(self.admits, fresh), count))

    def _seeds(self) -> Digits:
        return digits_of(self.space, self._results.fastest())

    def _random(self, n: int) -> Iterator[int]:
        """Random points; those without features, which the template refuses, come last."""
        held: list[int] = []
        points = fresh_points(self, n)
        for _ in range(_BLOCKS):
            block = list(itertools.islice(points, n))
            if not block:
                break
            failed = self._candidates.failed(digits_of(self.space, block))
            held += [index for index, bad in zip(block, failed, strict=True) if bad]
            yield from (index for index, bad in zip(block, failed, strict=True) if not bad)
        yield from held
        yield from points
