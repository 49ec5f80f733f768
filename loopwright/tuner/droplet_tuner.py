"""Coordinate descent as a tuner: few trials to the bottom of the valley that it starts in."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from loopwright.errors import SpaceError, UsageError
from loopwright.task.sampling import indices_of
from loopwright.tuner.base import Tuner
from loopwright.tuner.descent import PVALUE, Descent
from loopwright.tuner.model.candidates import Candidates
from loopwright.tuner.options import (
    TunerOptions,
    at_least,
    option,
    optional,
    share,
    yes_or_no,
)
from loopwright.tuner.random_tuner import fresh_points, no_fresh_point

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity, Task

#: Points that the analytical model looks through for the start, as a multiple of a quarter.
_DRAFT = 256
#: Number of these that are measured.
_STARTS = 8
_DEFAULT_RESTARTS: int | None = 0


def _indices(name: str, value: Sequence[int]) -> tuple[int, ...]:
    listed = isinstance(value, (tuple, list))
    if not listed or any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in value):
        raise UsageError(f"{name} must be indices of the space, such as (12, 345), got {value!r}")
    return tuple(value)


@dataclass(frozen=True)
class DropletOptions(TunerOptions):
    """Options of `DropletTuner`."""

    start: tuple[int, ...] = option(
        (),
        "indices of the points of which the fastest is where the descent starts. Default: what the "
        "analytical model prefers.",
        _indices,
    )
    pvalue: float = option(
        PVALUE,
        "chance that is allowed of going to a neighbour that is no faster, 0 to 1 (Welch's t-test "
        "of the samples).",
        share,
    )
    plan_size: int = option(16, "trials of a round.", at_least(1))
    restarts: int | None = option(
        _DEFAULT_RESTARTS,
        "how often it starts anew, from the fastest of some random points, when no neighbour is "
        "faster; None: until nothing is left.",
        optional(at_least(0)),
    )
    analytical: bool = option(
        True,
        "whether it starts from points that an analytical model of the machine prefers, where no "
        "``start`` is given.",
        yes_or_no,
        keyword_only=True,
    )


class DropletTuner(Tuner):
    """Goes from a point to a neighbour that is faster beyond doubt, until there is none.

    The droplet search of Canesche et al. (The Droplet Search Algorithm for Kernel Scheduling, ACM
    TACO 2024): coordinate descent whose steps are decided by a t-test of the measured samples, so
    that noise moves it nowhere. A neighbour differs in one knob, by one small step (see
    `loopwright.task.Knob.neighbours`). A round tries the neighbours of the best, those of the knob
    that brought the last gain first, and is filled up with what lies behind them. When all
    neighbours are measured and none is faster, the run ends, as exhausted.

    Told the log of another tuner it goes on from the best of that; so it is a good end of a run of
    any tuner (`XGBTuner` has it as its option ``post_optimization``).

    Args:
        task: the task to tune.
        seed: of the order in which neighbours are tried, and of random starts.

    Raises:
        UsageError: an option is outside of its range.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> tuner = lw.tuner.DropletTuner(task, start=(100,), seed=0)
        >>> configs = tuner.ask(8)
        >>> print(configs[0].index, len({config.index for config in configs}))
        100 8
    """

    name: ClassVar[str] = "droplet"
    Options: ClassVar[type[TunerOptions]] = DropletOptions
    settings: DropletOptions

    def __init__(self, task: Task, *positional: object, seed: int = 0, **named: object) -> None:
        super().__init__(task, *positional, seed=seed, **named)
        self.plan_size = self.settings.plan_size
        size = self.space.range_length
        outside = [index for index in self.settings.start if index >= size]
        if outside:
            raise UsageError(f"start: {outside[0]} is outside of the space's {size} points")

    def reset(self) -> None:
        super().reset()
        self._descent = Descent(self.space, self.settings.pvalue)
        self._restarts = 0

    def learn(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Take in one round: go to a faster point, or start anew where no neighbour is faster."""
        self._descent.learn(results)
        if self._may_restart and self._descent.exhausted(self.visited, self.admits):
            self._restarts += 1
            self._descent.restart()

    @property
    def _may_restart(self) -> bool:
        allowed = self.settings.restarts
        return allowed is None or self._restarts < allowed

    def propose(self, n: int) -> Iterator[int]:
        """Yield neighbours of the best; before there is one, points to start from."""
        centre = self._descent.centre
        if centre is None:
            yield from self._first()
        yield from self._descent.next(self.rng, self.visited, self.admits)
        if centre is None or self._may_restart:
            yield from fresh_points(self, n)
        self.why_empty = (
            no_fresh_point((0, self.space.range_length))
            if centre is None or self._may_restart
            else f"no neighbour of configuration {centre} is faster; more restarts search elsewhere"
        )

    def _first(self) -> Iterator[int]:
        """Points where the first descent starts, and neighbours of the first of these."""
        if self._restarts:
            return
        starts = [*self.settings.start, *itertools.islice(self._drafted(), _STARTS)]
        with suppress(SpaceError):  # a space without one valid point has no default
            starts.append(self.space.default_index)
        yield from filter(self.admits, starts)
        for index in starts[:1]:
            yield from self._descent.around(index, self.rng, self.visited, self.admits)

    def _drafted(self) -> Iterator[int]:
        """Points that the analytical model prefers, where it is asked."""
        if self.settings.start or not self.settings.analytical:
            return
        candidates = Candidates(self.task, "itervar", analytical=True)
        yield from filter(
            self.admits, indices_of(self.space, candidates.starting_points(_DRAFT, self.rng))
        )
