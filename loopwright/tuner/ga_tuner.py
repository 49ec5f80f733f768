"""Genetic search: good configurations are crossed, and their children mutated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from loopwright.task.vectors import digits_of, distinct, indices_of
from loopwright.tuner.base import Tuner
from loopwright.tuner.options import at_least, share
from loopwright.tuner.random_tuner import fresh_points, no_fresh_point
from loopwright.tuner.run.state import point, speed_of

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity, Task

#: Share of a generation that may become parents.
_KEPT = 0.25
#: Times that children are made again because all were known or refused, before chance takes over.
_LITTERS = 8


class GATuner(Tuner):
    """Breeds configurations: roulette by speed, one-point crossover, mutation knob by knob.

    The first ``pop_size`` points are random. From then on parents are drawn, each with a chance
    that grows with its speed, from the fastest quarter of the last ``pop_size`` results (truncation
    selection: Muehlenbein and Schlierkamp-Voosen, Evolutionary Computation 1, 1993) and the
    ``elite_num`` fastest ever. Two parents make a child that takes the first knobs of one and the
    others of the second, and each of whose knobs is then drawn anew with ``mutation_prob``. Unlike
    AutoTVM's tuner of this name it proposes no point a second time: a child that is known is
    mutated further, and where breeding finds nothing new, what is left of the space is drawn and
    then listed.

    Args:
        task: the task to tune.
        pop_size: size of a generation, at least 2. AutoTVM's scripts pass 100; 16 learns faster.
        elite_num: how many of the fastest are always among the parents, 0 or more.
        mutation_prob: chance of each knob to be drawn anew, from 0 to 1.
        seed: of every draw.

    Raises:
        UsageError: an option is outside of its range.
    """

    name: ClassVar[str] = "ga"

    def __init__(
        self,
        task: Task,
        pop_size: int = 16,
        elite_num: int = 3,
        mutation_prob: float = 0.1,
        *,
        seed: int = 0,
    ) -> None:
        self.pop_size = at_least("pop_size", pop_size, 2)
        self.elite_num = at_least("elite_num", elite_num, 0)
        self.mutation_prob = share("mutation_prob", mutation_prob)
        super().__init__(task, seed=seed)

    def reset(self) -> None:
        """Forget every proposal and result."""
        super().reset()
        self._told: list[int] = []
        self._speeds: list[float] = []

    def learn(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Take in one round of results: they are the parents of the next."""
        for config, result in results:
            self._told.append(point(config))
            self._speeds.append(speed_of(result))

    def propose(self, n: int) -> Iterator[int]:
        """Yield children that were never proposed; random points before there are parents."""
        if len(self._told) >= self.pop_size:
            yield from self._children(n)
        yield from fresh_points(self, n)
        self.why_empty = no_fresh_point((0, self.space.range_length))

    def _children(self, n: int) -> Iterator[int]:
        parents, chances = self._parents()
        if not chances.any():
            return
        dims = np.array(self.space.dims, np.int64)
        for litter in range(_LITTERS):
            first, second = self.rng.choice(len(parents), size=(2, 2 * n), p=chances)
            cut = self.rng.integers(0, len(dims) + 1, size=(2 * n, 1))
            children = np.where(np.arange(len(dims)) < cut, parents[first], parents[second])
            # A litter of known children means that the parents are alike: mutate more.
            rate = min(1.0, self.mutation_prob * 1.5**litter)
            mutate = self.rng.random(children.shape) < rate
            drawn = self.rng.integers(0, dims, size=children.shape)
            indices = indices_of(self.space, np.where(mutate, drawn, children))
            for position in distinct(indices, self.visited).tolist():
                if self.space.is_valid(indices[position]):
                    yield indices[position]

    def _parents(self) -> tuple[np.ndarray, np.ndarray]:
        """Digits of the parents, and the chance of each to be drawn."""
        speeds = np.array(self._speeds)
        ranked = np.argsort(-speeds, kind="stable")
        recent = ranked[ranked >= len(speeds) - self.pop_size]
        kept = recent[: max(1, int(_KEPT * self.pop_size))]
        which = np.union1d(kept, ranked[: self.elite_num])
        chances = speeds[which]
        total = chances.sum()
        digits = digits_of(self.space, [self._told[i] for i in which.tolist()])
        return digits, chances / total if total else chances

    @property
    def options(self) -> dict[str, Any]:
        """The constructor's options."""
        return {
            "pop_size": self.pop_size,
            "elite_num": self.elite_num,
            "mutation_prob": self.mutation_prob,
        }
