"""Search guided by a learned cost model: boosted trees rank, evolution proposes, measuring teaches.

Every round the model is trained anew on all that was measured, and points that it likes are bred.
It and models of the same results with other weights pick the next round from them in turn, so that
what is in doubt is tried too; a few random points go beside. The model is a function of what
was told and is trained when it is first asked, so that a log can be told again at no cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from loopwright.errors import UsageError, did_you_mean
from loopwright.task.vectors import Digits, ValidMemo, digits_of, distinct, indices_of
from loopwright.tuner.base import Tuner
from loopwright.tuner.diversity import diverse, in_turn
from loopwright.tuner.evolution import Annealing, Everything, Evolution, Pool
from loopwright.tuner.model.candidates import Candidates, Known
from loopwright.tuner.model.cost_model import Outcome
from loopwright.tuner.model.quality import ModelReport, judge
from loopwright.tuner.model.transfer_model import History
from loopwright.tuner.model.xgb_model import XGBCostModel
from loopwright.tuner.mutation import Mutation
from loopwright.tuner.options import at_least, share, yes_or_no
from loopwright.tuner.random_tuner import fresh_points, no_fresh_point

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity, Task

#: Options of ``optimizer``.
OPTIMIZERS: dict[str, type[Evolution] | type[Annealing]] = {
    "evolution": Evolution,
    "sa": Annealing,
}
#: Up to so many points a space is scored whole instead of searched.
_SMALL = 4096
#: Results that ran before the model is asked; until then the analytical model and chance propose.
_FIRST = 8
#: Chance of a trial to be a neighbour of the fastest, and how many are tried for each.
_NEARBY, _TRIES = 0.125, 8
#: Models that pick the points of a round in turn.
_OPINIONS = 4
#: Points that the analytical model drafts for a search.
_DRAFTED = 256
#: Blocks of random points in which something with features is looked for.
_BLOCKS = 8


class XGBTuner(Tuner):
    """Proposes what a learned cost model likes best.

    Args:
        task: the task to tune.
        plan_size: trials of a round, after which the model is trained again. 16 learns faster than
            AutoTVM's 64.
        feature_type: what the model sees of a candidate: ``"itervar"`` (loops, buffers, caches and
            vectors of its schedule), ``"knob"`` (the values of its knobs) or ``"curve"`` (reuse
            curves of its buffers).
        loss_type: ``"reg"``, ``"rank"`` or ``"rank-binary"``; see `XGBCostModel`.
        num_threads: threads that train the model; None for 1. Proposals do not depend on it.
        optimizer: ``"evolution"``, ``"sa"``, or an `Evolution` or `Annealing` with its settings.
        diversity_filter_ratio: pick each round out of this many times as many good points so that
            their knob values differ, a number of at least 1; None lets four models, three of them
            trained with random weights of the results, pick their best in turn.
        log_interval: accepted for AutoTVM's sake; progress has its own pace.
        seed: of every random choice.
        epsilon: chance of each trial to be a random point, 0 to 1.
        analytical: whether an analytical model of the machine orders half of the first round, is
            the offset of the learned one, and drafts the points that it searches first.

    Attributes:
        model: the cost model.
        history: what was measured elsewhere and taught, after the first ``ask``.
        model_reports: a `ModelReport` of each round that the model predicted before it was
            measured.

    Raises:
        UsageError: an option is not among those allowed; the message names them.
    """

    name: ClassVar[str] = "xgb"

    def __init__(
        self,
        task: Task,
        plan_size: int = 16,
        feature_type: str = "itervar",
        loss_type: str = "reg",
        num_threads: int | None = None,
        optimizer: str | Evolution | Annealing = "evolution",
        diversity_filter_ratio: float | None = None,
        log_interval: int = 50,
        *,
        seed: int = 0,
        epsilon: float = 0.05,
        analytical: bool = True,
    ) -> None:
        self.plan_size = at_least("plan_size", plan_size, 1)
        self.diversity_filter_ratio = _ratio(diversity_filter_ratio)
        self.epsilon = share("epsilon", epsilon)
        self._optimizer = _optimizer(optimizer)
        analytical = yes_or_no("analytical", analytical)
        self._candidates = Candidates(task, feature_type, analytical)
        threads = None if num_threads is None else at_least("num_threads", num_threads, 1)
        self.model = XGBCostModel(self._candidates.names, loss_type, threads, opinions=_OPINIONS)
        self._mutation = Mutation(task.config_space)
        self._valid = ValidMemo(task.config_space)
        self.history = History()
        self._inherited = (0, 0, 0)
        super().__init__(task, seed=seed)

    def reset(self) -> None:
        """Forget every proposal and result; what ``load_history`` gave is kept."""
        super().reset()
        self._known = Known()
        self._trained_on = -1
        self.model_reports: list[ModelReport] = []

    def learn(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Keep one round of results; the next ``ask`` trains on them. A model that is up to date
        is first judged by them."""
        if self._current and self.model.ready:
            self._judge(results)
        self._known.add(results)

    def propose(self, n: int) -> Iterator[int]:
        """Yield what the model likes best, some random points, and in the end all that is left."""
        self._train()
        greedy = n - int(self.rng.binomial(n, self.epsilon))
        if self.model.ready:
            nearby = self._nearby(int(self.rng.binomial(greedy, _NEARBY)))
            yield from nearby
            yield from self._liked(greedy - len(nearby))
        elif self._candidates.has_offset:
            yield from self._liked((n + 1) // 2)
        yield from self._random(n)
        self.why_empty = no_fresh_point((0, self.space.range_length))

    @property
    def options(self) -> dict[str, Any]:
        """The constructor's options, as the header of a log keeps them."""
        return {
            "plan_size": self.plan_size,
            "feature_type": self._candidates.feature_type,
            "loss_type": self.model.loss_type,
            "optimizer": repr(self._optimizer),
            "diversity_filter_ratio": self.diversity_filter_ratio,
            "epsilon": self.epsilon,
            "analytical": self._candidates.analytical,
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What the model was worth, in one line; nothing before it was judged."""
        lines = list(self.history.notes)
        judged = [r for r in self.model_reports if r.spearman == r.spearman]
        if not judged:
            return tuple(lines)
        last = judged[-8:]
        spearman = float(np.median([r.spearman for r in last]))
        recall = float(np.mean([r.recall for r in last]))
        lines.append(
            f"model:   rank correlation {spearman:.2f} and {recall:.0%} of the top quarter found, "
            f"in the last {len(last)} of {len(judged)} rounds, on what it had not seen"
        )
        return tuple(lines)

    # -- the model ----------------------------------------------------------------------------

    @property
    def _current(self) -> bool:
        return self._trained_on == len(self._known)

    def _train(self) -> None:
        if self._current:
            return
        self._trained_on = len(self._known)
        self._inherit()
        if self._known.ran >= _FIRST:
            self.model.fit(self._known.samples(self._candidates, len(self._known)))

    def _inherit(self) -> None:
        """Train the elder on what was measured elsewhere, once for what there is of it."""
        there = (len(self.pretrained), len(self.elsewhere), len(self.relatives))
        if there == self._inherited:
            return
        self._inherited = there
        history = self.history = History()
        history.add(self.task, self.elsewhere)
        history.add_given(self.task, self.pretrained)
        history.add_records(self.task, self.relatives)
        self._candidates.elder = None
        samples = history.samples(self._candidates)
        if samples is None:
            return
        elder = XGBCostModel(self._candidates.names, self.model.loss_type, self.model.num_threads)
        elder.fit(samples)
        self._candidates.elder = elder if elder.ready else None

    def _judge(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Note what the model is worth on results that it has not seen."""
        new = Known()
        new.add(results)
        if not new.ran:
            return
        samples = new.samples(self._candidates, len(self._known))
        ran = samples.outcome != Outcome.FAILED
        self.model_reports.append(
            judge(
                self.model.predict(samples.batch)[ran],
                samples.score[ran],
                round=self.round,
                trained_on=len(self._known),
                trees=self.model.rounds,
            )
        )

    def _score(self, digits: Digits) -> npt.NDArray[np.float64]:
        return self.model.opinions(self._candidates.batch(digits, len(self._known)))

    # -- the search ---------------------------------------------------------------------------

    def _liked(self, count: int) -> list[int]:
        """Up to ``count`` fresh points that the model likes best."""
        if count < 1:
            return []
        pool = Pool(self.space, self._score, self._valid, self.visited)
        small = self.space.range_length <= _SMALL
        search: Evolution | Annealing | Everything = Everything() if small else self._optimizer
        if self._candidates.slow:
            search = self._optimizer.small()
        drafted = self._candidates.drafted(_DRAFTED, self.rng)
        search.search(pool, self._mutation, self._seeds(), drafted, self.rng)
        ratio = self.diversity_filter_ratio
        if ratio is None:
            found = pool.best()
            first = int(self.rng.integers(found.opinions.shape[1]))
            return [found.indices[i] for i in in_turn(found.opinions, count, first)]
        found = pool.best(int(count * ratio))
        return [found.indices[i] for i in diverse(found.digits, found.scores, count)]

    def _nearby(self, count: int) -> list[int]:
        """Up to ``count`` fresh points one mutation from the fastest, whatever the model thinks.

        A model of trees knows no doubt about a knob that never varied among what it has seen, so
        that it may repeat the only value that it knows without end.
        """
        seeds = self._seeds()
        if not count or not len(seeds):
            return []
        # Half the steps start from the fastest, a quarter from the second, and so on.
        ranks = np.minimum(self.rng.geometric(0.5, size=_TRIES * count), len(seeds)) - 1
        indices = indices_of(self.space, self._mutation.mutate(seeds[ranks], self.rng))
        fresh = [indices[i] for i in distinct(indices, self.visited).tolist()]
        return list(itertools.islice(filter(self.space.is_valid, fresh), count))

    def _seeds(self) -> Digits:
        """Digits of what ran, fastest first."""
        return digits_of(self.space, self._known.fastest())

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


def _optimizer(given: str | Evolution | Annealing) -> Evolution | Annealing:
    if isinstance(given, (Evolution, Annealing)):
        return given
    if given not in tuple(OPTIMIZERS):
        raise UsageError(
            f"unknown optimizer {given!r}{did_you_mean(str(given), OPTIMIZERS)}; "
            f"use one of {', '.join(OPTIMIZERS)}"
        )
    return OPTIMIZERS[given]()


def _ratio(value: float | None) -> float | None:
    wrong = isinstance(value, bool) or not isinstance(value, (int, float, type(None)))
    if wrong or (value is not None and not 1 <= value < float("inf")):
        raise UsageError(
            f"diversity_filter_ratio must be None or a number of at least 1, got {value!r}"
        )
    return value
