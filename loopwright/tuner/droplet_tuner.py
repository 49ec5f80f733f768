"""Coordinate descent, for `DropletTuner` and the end of other tuners; told results rebuild it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from loopwright.errors import SpaceError, UsageError
from loopwright.task import digits_of, indices_of
from loopwright.tuner.base import Tuner
from loopwright.tuner.model.candidates import CandidateBatches
from loopwright.tuner.options import TunerOptions, at_least, option, optional, share, yes_or_no
from loopwright.tuner.range_tuners import fresh_points, no_fresh_point
from loopwright.tuner.run.state import point, speed_of

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity, ConfigSpace, Task


#: A choice without an order has all others as its neighbours, where they are at most this many.
_FEW = 16
#: Allowed chance of taking noise for a gain.
PVALUE = 0.05


def is_faster(times: Sequence[float], than: Sequence[float], pvalue: float) -> bool:
    """Whether samples, in seconds, are faster than others by Welch's one-sided t-test.

    ``pvalue`` is the allowed chance of a wrong yes. Where the noise is unknown (a single sample, or
    no spread at all) the means decide.
    """
    if not times or not than or np.mean(times) >= np.mean(than):
        return False
    if min(len(times), len(than)) < 2 or np.ptp(times) == np.ptp(than) == 0:
        return True
    from scipy import stats

    test = stats.ttest_ind(times, than, equal_var=False, alternative="less")
    return bool(test.pvalue < pvalue)


class Lines:
    def __init__(self, space: ConfigSpace) -> None:
        self._dims = space.dims
        self._near = [knob.neighbours() for knob in space.knobs.values()]
        self._known: dict[tuple[int, int], list[list[int]]] = {}

    def rings(self, digits: Sequence[int]) -> list[list[list[tuple[int, int]]]]:
        """For each knob its choices one step away, two steps away, ... as (knob, position)."""
        return [
            [[(knob, choice) for choice in ring] for ring in self._rings(knob, digit)]
            for knob, digit in enumerate(digits)
        ]

    def _rings(self, knob: int, start: int) -> list[list[int]]:
        remembered = self._known.get((knob, start))
        if remembered is not None:
            return remembered
        rings, seen = [[start]], {start}
        while rings[-1]:
            outer = {to for at in rings[-1] for to in self._steps(knob, at)} - seen
            seen |= outer
            rings.append(sorted(outer))
        self._known[knob, start] = rings[1:-1]
        return rings[1:-1]

    def _steps(self, knob: int, at: int) -> Sequence[int]:
        count = self._dims[knob]
        if self._near[knob][at]:
            return self._near[knob][at]
        if count <= _FEW:
            return [other for other in range(count) if other != at]
        return [other for other in (at - 1, at + 1) if 0 <= other < count]


class Descent:
    def __init__(self, space: ConfigSpace, pvalue: float) -> None:
        self._space, self._pvalue = space, pvalue
        self._lines = Lines(space)
        self.restart()

    def restart(self) -> None:
        #: Index that it has come to; None before a result was valid.
        self.centre: int | None = None
        self._times: tuple[float, ...] = ()
        self._along = -1

    def learn(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Go to the fastest result that is faster than the centre beyond doubt."""
        usable = [(config, result) for config, result in results if result.usable]
        better = [
            (config, result)
            for config, result in usable
            if speed_of(result) > 0
            and (self.centre is None or is_faster(result.times, self._times, self._pvalue))
        ]
        if not better:
            return
        config, result = min(better, key=lambda pair: float(np.mean(pair[1].times)))
        index = point(config)
        # The knob that was changed is the first to be changed again.
        self._along = -1
        if self.centre is not None:
            before, after = digits_of(self._space, [self.centre, index])
            changed = np.flatnonzero(before != after)
            self._along = int(changed[0]) if len(changed) == 1 else -1
        self.centre, self._times = index, result.times

    def next(
        self, rng: np.random.Generator, visited: Set[int], admits: Callable[[int], bool]
    ) -> Iterator[int]:
        return iter(()) if self.centre is None else self.around(self.centre, rng, visited, admits)

    def around(
        self, index: int, rng: np.random.Generator, visited: Set[int], admits: Callable[[int], bool]
    ) -> Iterator[int]:
        """Yield fresh points near an index, those of the knob that brought the last gain first.

        Behind those one small step away, so that a round is full, come those two steps away, and so
        on; nothing where no neighbour is fresh.
        """
        digits = digits_of(self._space, [index])[0]
        rings = self._lines.rings(digits.tolist())
        for distance in range(max(map(len, rings), default=0)):
            ring = [step for knob in rings if distance < len(knob) for step in knob[distance]]
            order = [ring[i] for i in rng.permutation(len(ring)).tolist()]
            order.sort(key=lambda step: step[0] != self._along)
            any_fresh = False
            steps = np.array(order, np.int64).reshape(-1, 2)
            rows = np.repeat(digits[None], len(steps), axis=0)
            rows[np.arange(len(steps)), steps[:, 0]] = steps[:, 1]
            for candidate in indices_of(self._space, rows):
                if candidate not in visited and admits(candidate):
                    any_fresh = True
                    yield candidate
            if not distance and not any_fresh:
                return

    def exhausted(self, visited: Set[int], admits: Callable[[int], bool]) -> bool:
        rng = np.random.default_rng(0)
        return self.centre is not None and not any(True for _ in self.next(rng, visited, admits))


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
        self._descent.learn(results)
        if self._may_restart and self._descent.exhausted(self.visited, self.admits):
            self._restarts += 1
            self._descent.restart()

    @property
    def _may_restart(self) -> bool:
        allowed = self.settings.restarts
        return allowed is None or self._restarts < allowed

    def propose(self, n: int) -> Iterator[int]:
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
        if self._restarts:
            return
        starts = list(self.settings.start)
        if not starts and self.settings.analytical:
            candidates = CandidateBatches(self.task, "itervar", analytical=True)
            drafted = indices_of(self.space, candidates.starting_points(_DRAFT, self.rng))
            starts += itertools.islice(filter(self.admits, drafted), _STARTS)
        with suppress(SpaceError):  # a space without one valid point has no default
            starts.append(self.space.default_index)
        yield from filter(self.admits, starts)
        for index in starts[:1]:
            yield from self._descent.around(index, self.rng, self.visited, self.admits)
