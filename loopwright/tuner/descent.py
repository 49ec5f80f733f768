"""Coordinate descent: from a point to the neighbour that is faster beyond doubt, until none is.

The search of `loopwright.tuner.DropletTuner`, kept apart from it so that another tuner can end with
it. Everything here is rebuilt from results that are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np

from loopwright.task.sampling import Digits, digits_of, indices_of
from loopwright.tuner.run.state import point, speed_of

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity, ConfigSpace

#: A choice without an order has all others as its neighbours, where they are at most this many.
_FEW = 16
#: Allowed chance of taking noise for a gain.
PVALUE = 0.05


def is_faster(times: Sequence[float], than: Sequence[float], pvalue: float) -> bool:
    """Whether samples, in seconds, are faster than others by Welch's one-sided t-test.

    ``pvalue`` is the allowed chance of a wrong yes. Where one side has a single sample nothing is
    known of its noise, and the means decide; likewise where no sample differs from its mean.
    """
    if not times or not than or np.mean(times) >= np.mean(than):
        return False
    if min(len(times), len(than)) < 2 or np.ptp(times) == np.ptp(than) == 0:
        return True
    from scipy import stats

    test = stats.ttest_ind(times, than, equal_var=False, alternative="less")
    return bool(test.pvalue < pvalue)


class Lines:
    """Points that differ from one in a single knob, by the number of small steps to them."""

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
        found = self._known.get((knob, start))
        if found is not None:
            return found
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
    """A descent from the fastest of the first results that it is told."""

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
        """Go to the fastest result that is faster than the centre beyond doubt; failures, and
        results that a race dropped, are passed over."""
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
        self._go(point(config), result.times)

    def _go(self, index: int, times: tuple[float, ...]) -> None:
        """Make a point the centre; the knob that was changed is the first to be changed again."""
        self._along = -1
        if self.centre is not None:
            before, after = digits_of(self._space, [self.centre, index])
            changed = np.flatnonzero(before != after)
            self._along = int(changed[0]) if len(changed) == 1 else -1
        self.centre, self._times = index, times

    def next(
        self, rng: np.random.Generator, visited: Set[int], admits: Callable[[int], bool]
    ) -> Iterator[int]:
        """Yield fresh neighbours of the centre, then points behind them; nothing without the
        former."""
        if self.centre is None:
            return
        yield from self.around(self.centre, rng, visited, admits)

    def around(
        self,
        index: int,
        rng: np.random.Generator,
        visited: Set[int],
        admits: Callable[[int], bool],
    ) -> Iterator[int]:
        """Yield the points that `next` yields, for any centre.

        First come the points one small step away, those of the knob that brought the last gain
        before all others; behind them, so that a round is full, those two steps away, and so on.
        """
        digits = digits_of(self._space, [index])[0]
        rings = self._lines.rings(digits.tolist())
        for distance in range(max(map(len, rings), default=0)):
            ring = [step for knob in rings if distance < len(knob) for step in knob[distance]]
            order = [ring[i] for i in rng.permutation(len(ring)).tolist()]
            order.sort(key=lambda step: step[0] != self._along)
            found = False
            for candidate in indices_of(self._space, _changed(digits, order)):
                if candidate not in visited and admits(candidate):
                    found = True
                    yield candidate
            if not distance and not found:
                return

    def exhausted(self, visited: Set[int], admits: Callable[[int], bool]) -> bool:
        rng = np.random.default_rng(0)
        return self.centre is not None and not any(True for _ in self.next(rng, visited, admits))


def _changed(digits: Digits, steps: Sequence[tuple[int, int]]) -> Digits:
    """A row for each step: the digits with that step taken."""
    rows = np.repeat(digits[None], len(steps), axis=0)
    for row, (knob, choice) in zip(rows, steps, strict=True):
        row[knob] = choice
    return rows
