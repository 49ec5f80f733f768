"""`Replay`: a fully measured space as a device, so that tuners are compared without measuring.

It replaces builder and runner, ``tuner.tune(measure_option=Replay(path))``, and gives the recorded
samples, failures and verdicts of the race each time, in no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright.errors import UsageError
from loopwright.measure.options import DROP_RATIO, WINDOWS
from loopwright.measure.playoff.result import PlayoffPlan, PlayoffResult, played
from loopwright.measure.result import MeasureInput, MeasureResult, would_lead
from loopwright.measure.space_file import MeasuredSpace, Point, load_space

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


class Replay:
    """A measurer that returns recorded results.

    Args:
        source: a file that `MeasuredSpace.save` wrote, or the result of `load_space`.
        racing: drop a candidate whose first sample is more than twice the incumbent, as
            `LocalRunner` does; the result is then marked and holds that sample alone.

    Attributes:
        recorded: all points with their samples.

    Raises:
        RecordError: the file is missing or damaged.

    Example:
        >>> task = lw.create_task("reduce", (64, 64), "llvm")
        >>> from loopwright.measure import MeasuredSpace, Replay
        >>> from loopwright.measure.space_file import Point
        >>> def replay(task):
        ...     space = task.config_space
        ...     times = {i: Point((1e-3 * (1 + i),) * 3) for i in range(len(space))}
        ...     return Replay(MeasuredSpace(
        ...         task.key, task.name, task.args, task.target.canonical, space.space_hash, times
        ...     ))
        ...
        >>> (result,) = replay(task).measure([lw.MeasureInput(task, task.config(4))])
        >>> print(result.times[0])
        0.005
    """

    def __init__(self, source: str | Path | MeasuredSpace, *, racing: bool = True) -> None:
        self.recorded = source if isinstance(source, MeasuredSpace) else load_space(source)
        self.racing = racing
        self.timing: dict[str, float | int] = {}

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: float | None = None
    ) -> Iterator[MeasureResult]:
        """Yield the recorded result of each input, in order.

        Args:
            inputs: points of the recorded space.
            incumbent: best time so far in seconds per call; it decides which candidates are
                dropped. Better results of this batch take its place.

        Raises:
            UsageError: an input is of another task or space, or was never measured.
        """
        for item in inputs:
            if self.recorded.task not in (item.task.key, item.task.alias):
                raise UsageError(
                    f"this replay holds {self.recorded.task}; it was asked for {item.task.key}"
                )
        return self._results([self._point(item.config) for item in inputs], incumbent)

    def playoff(self, candidates: Sequence[ConfigEntity], plan: PlayoffPlan) -> PlayoffResult:
        """The recorded interleaved samples of finalists; for others, their ordinary samples.

        Nothing is checked, and nothing is sampled beside them.

        Args:
            candidates: points of the recorded space, the fastest first.
            plan: number of participants; the default has all its recorded samples.

        Raises:
            UsageError: a point was never measured.
        """
        return played(candidates, plan, self._final_times)

    def measure_again(
        self, configs: Sequence[ConfigEntity], windows: int = WINDOWS
    ) -> list[MeasureResult]:
        """The recorded result of each configuration: recorded times do not drift."""
        points = [self._point(config) for config in configs]
        return [MeasureResult(times=point.times, error=point.error) for point in points]

    def _final_times(self, config: ConfigEntity) -> Sequence[float]:
        point = self._point(config)
        assert config.index is not None
        return self.recorded.finals.get(config.index) or point.times

    def _results(self, points: Sequence[Point], incumbent: float | None) -> Iterator[MeasureResult]:
        for point in points:
            result = self._result(point, incumbent)
            if would_lead(incumbent, result):  # what a space file holds was measured and judged
                incumbent = result.median
            yield result

    def _result(self, point: Point, incumbent: float | None) -> MeasureResult:
        if point.error is not None:
            return MeasureResult(error=point.error)
        if self.racing and incumbent is not None and point.times[0] > DROP_RATIO * incumbent:
            return MeasureResult(times=point.times[:1], dropped=True)
        return MeasureResult(times=point.times)

    def _point(self, config: ConfigEntity) -> Point:
        recorded = self.recorded
        if config.space.space_hash != recorded.space:
            raise UsageError(
                f"this replay holds the space {recorded.space} of {recorded.op}; it was asked for "
                f"a point of {config.space.space_hash}: the template or its knobs have changed"
            )
        if config.index is None or config.index not in recorded.points:
            raise UsageError(f"point {config.index} of {recorded.op} was never measured: {config}")
        return recorded.points[config.index]
