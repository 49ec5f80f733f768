"""Genetic search: good configurations are crossed, and their children mutated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from loopwright.task import Digits, digits_of, distinct, indices_of
from loopwright.tuner.base import Tuner
from loopwright.tuner.options import TunerOptions, at_least, option, share
from loopwright.tuner.range_tuners import fresh_points, no_fresh_point
from loopwright.tuner.run.state import point, speed_of

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity


#: Share of a generation that may become parents.
_KEPT = 0.25
#: Number of times that children are made again because all were known or refused, before random
#: points are drawn instead.
_ATTEMPTS = 8


@dataclass(frozen=True)
class GAOptions(TunerOptions):
    pop_size: int = option(
        16,
        "size of a generation, at least 2. AutoTVM's scripts pass 100; 16 learns faster.",
        at_least(2),
    )
    elite_num: int = option(
        3, "how many of the fastest are always among the parents, 0 or more.", at_least(0)
    )
    mutation_prob: float = option(0.1, "chance of each knob to be drawn anew, from 0 to 1.", share)


class GATuner(Tuner):
    """Breeds configurations: roulette by speed, one-point crossover, mutation knob by knob.

    After ``pop_size`` random points, parents are drawn by their speed from the fastest quarter of
    the last ``pop_size`` results (truncation selection: Muehlenbein and Schlierkamp-Voosen,
    Evolutionary Computation 1, 1993) and the ``elite_num`` fastest ever. A child takes the first
    knobs of one parent and the others of the second; each is then drawn anew with
    ``mutation_prob``. Unlike AutoTVM's it proposes no point twice: a known child is mutated
    further, and where breeding finds nothing new, what is left of the space is drawn and then
    listed.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> tuner = lw.tuner.GATuner(task, pop_size=4, seed=0)
        >>> for _ in range(3):
        ...     configs = tuner.ask(4)
        ...     tuner.tell([(config, lw.MeasureResult(times=(1e-3,))) for config in configs])
        ...
        >>> print(len(tuner.visited))
        12
    """

    name: ClassVar[str] = "ga"
    Options: ClassVar[type[TunerOptions]] = GAOptions
    settings: GAOptions

    def reset(self) -> None:
        super().reset()
        self._indices: list[int] = []
        self._speeds: list[float] = []

    def learn(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        for config, result in results:
            self._indices.append(point(config))
            self._speeds.append(speed_of(result))

    def propose(self, n: int) -> Iterator[int]:
        if len(self._indices) >= self.settings.pop_size:
            yield from self._children(n)
        yield from fresh_points(self, n)
        self.why_empty = no_fresh_point((0, self.space.range_length))

    def _children(self, n: int) -> Iterator[int]:
        parents, chances = self.parents()
        if not chances.any():
            return
        dims = np.array(self.space.dims, np.int64)
        for attempt in range(_ATTEMPTS):
            first, second = self.rng.choice(len(parents), size=(2, 2 * n), p=chances)
            cut = self.rng.integers(0, len(dims) + 1, size=(2 * n, 1))
            children = np.where(np.arange(len(dims)) < cut, parents[first], parents[second])
            # Children that are all known mean that the parents are alike: mutate more.
            rate = min(1.0, self.settings.mutation_prob * 1.5**attempt)
            mutate = self.rng.random(children.shape) < rate
            drawn = self.rng.integers(0, dims, size=children.shape)
            indices = indices_of(self.space, np.where(mutate, drawn, children))
            fresh = (indices[i] for i in distinct(indices, self.visited).tolist())
            yield from filter(self.admits, fresh)

    def parents(self) -> tuple[Digits, npt.NDArray[np.float64]]:
        speeds = np.array(self._speeds)
        ranked = np.argsort(-speeds, kind="stable")
        recent = ranked[ranked >= len(speeds) - self.settings.pop_size]
        kept = recent[: max(1, int(_KEPT * self.settings.pop_size))]
        which = np.union1d(kept, ranked[: self.settings.elite_num])
        chances = speeds[which]
        total = chances.sum()
        digits = digits_of(self.space, [self._indices[i] for i in which.tolist()])
        return digits, chances / total if total else chances
