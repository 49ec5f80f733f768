"""Searches of a space for the unmeasured points to which a model gives the best scores.

All fill a `Pool`, keep nothing between calls, and draw from the generator that they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loopwright.task import Digits, distinct, indices_of, random_digits
from loopwright.tuner import breeding as rules
from loopwright.tuner.breeding import Breeding, KnownPoints, Weights

if TYPE_CHECKING:
    from loopwright.task import ConfigSpace


#: Scores of points given by their digits, ``(n, knobs) -> (n,)``, or ``(n, k)`` of k models, the
#: first of which guides the search; higher is better, finite.
Score = Callable[[Digits], npt.NDArray[np.float64]]
#: Whether each point, given by its index, may be proposed.
Valid = Callable[[Sequence[int]], npt.NDArray[np.bool_]]


@dataclass
class SearchResult:
    indices: list[int]
    #: int64 ``(n, knobs)``.
    digits: Digits
    #: float64 ``(n,)``, descending.
    scores: npt.NDArray[np.float64]
    #: float64 ``(n, k)``, the score by each model.
    predictions: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.indices)


class Pool:
    """Scores points and remembers those that may be proposed; ``taken`` ones are parents only."""

    def __init__(self, space: ConfigSpace, score: Score, valid: Valid, taken: set[int]) -> None:
        self.space = space
        self._score, self._valid, self._taken = score, valid, taken
        self._indices: list[list[int]] = []
        self._digits: list[Digits] = []
        self._predictions: list[npt.NDArray[np.float64]] = []

    def add(self, digits: Digits) -> tuple[Digits, npt.NDArray[np.float64]]:
        indices = indices_of(self.space, digits)
        first = distinct(indices)
        kept = first[self._valid([indices[i] for i in first.tolist()])]
        digits = digits[kept]
        self._indices.append([indices[i] for i in kept.tolist()])
        self._digits.append(digits)
        if not len(digits):
            return digits, np.empty(0)
        self._predictions.append(self._score(digits).reshape(len(digits), -1))
        return digits, self._predictions[-1][:, 0]

    def best(self, count: int | None = None) -> SearchResult:
        indices = [index for block in self._indices for index in block]
        fresh = distinct(indices, self._taken)
        predictions = np.concatenate(self._predictions) if self._predictions else np.empty((0, 1))
        scores = predictions[fresh, 0]
        order = np.argsort(-scores, kind="stable")[:count]
        which = fresh[order]
        digits = np.concatenate([np.empty((0, len(self.space.dims)), np.int64), *self._digits])
        return SearchResult(
            [indices[i] for i in which.tolist()], digits[which], scores[order], predictions[which]
        )


@dataclass(frozen=True)
class Evolution:
    """Evolutionary search on knob vectors (auto_scheduler's and MetaSchedule's, with crossover).

    Random points and the best measured ones are bred for some ``generations``: parents are drawn by
    the rank of their scores, two of them are crossed knob by knob, and children are mutated by
    small moves.

    Attributes:
        population: points of a generation.
        generations: number of times that children are made.
        crossover: share of the children that have two parents.
        measured: share of the first generation that is taken from the best measured points.
        greed: steepness of the fall of a parent's chance with its rank: the best of ``n`` is
            ``exp(greed)`` times likelier than the last. None: by the speed that the model predicts.
        mutation: share of the children that are mutated; None: all but half of those that have two
            parents.
        mutations, crossings: weights of rules by name, such as ``{"small_steps": 1.0}``; None for
            those that are registered (`loopwright.tuner.mutations`, `loopwright.tuner.crossings`).

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> search = lw.tuner.Evolution(population=128, crossings={"one_point": 1.0})
        >>> print(len(lw.tuner.XGBTuner(task, optimizer=search, seed=0).ask(4)))
        4
    """

    population: int = 512
    generations: int = 4
    crossover: float = 0.3
    measured: float = 0.2
    greed: float | None = 6.0
    mutation: float | None = None
    mutations: Weights | None = None
    crossings: Weights | None = None

    def __post_init__(self) -> None:
        rules.mutations.chosen(self.mutations)
        rules.crossings.chosen(self.crossings)

    def moves(self, space: ConfigSpace) -> Breeding:
        shares = {**rules.populations.chosen(None), "measured": self.measured}
        return Breeding(space, self.mutations, self.crossings, shares)

    def small(self) -> Evolution:
        """The same for points that may cost milliseconds each."""
        return replace(self, population=min(self.population, 64), generations=3)

    def search(
        self, pool: Pool, moves: Breeding, starts: KnownPoints, rng: np.random.Generator
    ) -> None:
        first = moves.begin(starts, self.population, rng)
        fill = random_digits(pool.space, self.population - len(first), rng)
        digits, scores = pool.add(np.concatenate([first, fill]))
        for _ in range(self.generations):
            if not len(digits):
                digits, scores = pool.add(random_digits(pool.space, self.population, rng))
                continue
            children, their_scores = pool.add(self._children(digits, scores, moves, rng))
            digits = np.concatenate([digits, children])
            scores = np.concatenate([scores, their_scores])
            keep = np.argsort(-scores, kind="stable")
            keep = keep[distinct(indices_of(pool.space, digits[keep]))][: self.population]
            digits, scores = digits[keep], scores[keep]

    def _children(
        self,
        digits: Digits,
        scores: npt.NDArray[np.float64],
        moves: Breeding,
        rng: np.random.Generator,
    ) -> Digits:
        count = len(digits)
        chances = self._chances(scores)
        first, second = rng.choice(count, size=(2, self.population), p=chances / chances.sum())
        crossed = rng.random(self.population) < self.crossover
        both = moves.cross(digits[first], digits[second], rng)
        children = np.where(crossed[:, None], both, digits[first])
        luck = rng.random(self.population)
        # A crossed child is new already; half of them stay as they are.
        keep = crossed & (luck < 0.5) if self.mutation is None else luck >= self.mutation
        return np.where(keep[:, None], children, moves.mutate(children, rng))

    def _chances(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Chance of each point to be a parent, before they are made to sum to one."""
        if self.greed is None:
            speeds: npt.NDArray[np.float64] = np.exp2(np.maximum(scores - scores.max(), -60.0))
            return speeds
        rank = np.empty(len(scores))
        rank[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
        chances: npt.NDArray[np.float64] = np.exp(-self.greed * rank / len(scores))
        return chances


def ansor() -> Evolution:
    """The evolution of Ansor (Zheng et al., OSDI 2020), with its sizes and weights; the 5 % of
    random points are the tuner's option ``epsilon``."""
    return Evolution(
        population=2048,
        generations=4,
        crossover=0.0,
        measured=0.2,
        greed=None,
        mutation=0.85,
        mutations={"tile_size": 0.9, "annotation": 0.05, "placement": 0.05},
    )


@dataclass(frozen=True)
class Annealing:
    """Simulated annealing on the model (AutoTVM's ``sa``), all walkers at once.

    Attributes:
        walkers: points that walk side by side.
        steps: moves of each.
        hot: temperature at the start, in units of the scores' standard deviation; it falls to 0.
        patience: end after this many steps in which the best did not change.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> tuner = lw.tuner.XGBTuner(task, optimizer=lw.tuner.Annealing(walkers=64), seed=0)
        >>> print(len(tuner.ask(4)))
        4
    """

    walkers: int = 128
    steps: int = 60
    hot: float = 0.1
    patience: int = 30

    def moves(self, space: ConfigSpace) -> Breeding:
        return Breeding(space)

    def small(self) -> Annealing:
        return replace(self, walkers=min(self.walkers, 16), steps=min(self.steps, 12))

    def search(
        self, pool: Pool, moves: Breeding, starts: KnownPoints, rng: np.random.Generator
    ) -> None:
        """Fill ``pool``, a quarter of the walkers from measured points, a quarter from drafted
        ones, the others from anywhere."""
        some = self.walkers // 4
        anywhere = random_digits(pool.space, 4 * self.walkers, rng)
        start = np.concatenate([starts.measured[:some], starts.drafted[:some], anywhere])
        digits, scores = pool.add(start)
        digits, scores = digits[: self.walkers], scores[: self.walkers]
        if not len(digits):
            return
        scale = self.hot * (float(scores.std()) or 1.0)
        best, since = float(scores.max()), 0
        for step in range(self.steps):
            temperature = scale * (1 - step / self.steps)
            digits, scores = self._walk(pool, moves, digits, scores, temperature, rng)
            since = since + 1 if float(scores.max()) <= best else 0
            best = max(best, float(scores.max()))
            if since >= self.patience:
                return

    def _walk(
        self,
        pool: Pool,
        moves: Breeding,
        digits: Digits,
        scores: npt.NDArray[np.float64],
        temperature: float,
        rng: np.random.Generator,
    ) -> tuple[Digits, npt.NDArray[np.float64]]:
        steps = moves.mutate(digits, rng)
        valid, valid_scores = pool.add(steps)
        positions = {index: i for i, index in enumerate(indices_of(pool.space, valid))}
        luck = rng.random(len(digits))
        digits, scores = digits.copy(), scores.copy()
        for walker, index in enumerate(indices_of(pool.space, steps)):
            at = positions.get(index)
            if at is None:
                continue
            gain = valid_scores[at] - scores[walker]
            if gain >= 0 or luck[walker] < np.exp(gain / max(temperature, 1e-9)):
                digits[walker], scores[walker] = valid[at], valid_scores[at]
        return digits, scores
