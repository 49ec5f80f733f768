"""Interfaces of the tuning loop: tuners, callbacks, and `Monitor`, which hears of every step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from loopwright.tuner.run.state import RunState, Trial, flop_of, speed_of
from loopwright.tuner.run.summary import Summary

if TYPE_CHECKING:
    from loopwright.measure import MeasureInput, MeasureResult
    from loopwright.records import Expression, Record
    from loopwright.task import ConfigEntity, ConfigSpace, Task
    from loopwright.tuner.run.journal import Journal
    from loopwright.tuner.run.seeds import Seeds


class TunerLike(Protocol):
    """Proposes configurations and hears of results; members as of `loopwright.tuner.Tuner`."""

    task: Task
    space: ConfigSpace
    seed: int
    round: int
    visited: set[int]
    error_threshold: int
    why_empty: str
    pretrained: list[tuple[MeasureInput, MeasureResult] | Record]
    seeds: Seeds
    elsewhere: list[tuple[ConfigEntity, MeasureResult]]
    relatives: list[tuple[Record, MeasureResult]]
    expressions: dict[str, list[Expression]]
    journal: Journal | None
    best_flops: float
    ttl: int | None
    on_phase: Callable[[str], object]

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    def reset(self) -> None: ...
    def begin_round(self, number: int, seed: int | None = None) -> None: ...
    def exclude(self, indices: Iterable[int]) -> None: ...
    def ask(self, n: int) -> list[ConfigEntity]: ...
    def tell(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None: ...
    def set_best(
        self, config: ConfigEntity, result: MeasureResult, flops: float, trial: int
    ) -> None: ...


#: Called as ``f(tuner, inputs, results)`` once a round, after the round was recorded and told.
Callback = Callable[[TunerLike, "Sequence[MeasureInput]", "Sequence[MeasureResult]"], object]


class Monitor:
    """A callback that is also told of the start, of each trial and of the end of a run.

    By itself it collects the speed and the time of each trial, as AutoTVM's ``Monitor`` does. A
    subclass overrides the methods of the steps that it watches.

    Example:
        >>> class Loud(lw.tuner.Monitor):
        ...     def trial(self, state, trial):
        ...         print("trial", trial.number)
        ...
        >>> print(isinstance(Loud(), lw.tuner.Monitor))
        True
    """

    #: True when it shows how a run ends; where no callback does, ``tune`` prints one line.
    shows_result: bool = False

    @functools.cached_property
    def scores(self) -> list[float]:
        return []

    @functools.cached_property
    def timestamps(self) -> list[float]:
        return []

    def __call__(
        self, tuner: TunerLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """Keep the speed and the time of the trials of a round of this run, without those that the
        log held."""
        for item, result in zip(inputs, results, strict=True):
            self.scores.append(flop_of(item.task) * speed_of(result))
            self.timestamps.append(result.timestamp)

    def trial_scores(self) -> npt.NDArray[np.float64]:
        """Speed of each trial by its median time, FLOP/s ``(trials,)``; 0.0 for one that failed,
        and where operations cannot be counted."""
        return np.array(self.scores, dtype=np.float64)

    def trial_timestamps(self) -> npt.NDArray[np.float64]:
        """Unix time in seconds at which each trial ended."""
        return np.array(self.timestamps, dtype=np.float64)

    def reset(self) -> None:
        self.scores.clear()
        self.timestamps.clear()

    def started(self, tuner: TunerLike, state: RunState) -> None:
        """Called when the log is read and measuring begins; ``state`` stays current."""

    def trial(self, state: RunState, trial: Trial) -> None: ...

    def note(self, text: str) -> None:
        """Called with a line that the user should know."""

    def phase(self, text: str, quiet: bool) -> None:
        """Called when the run has entered or left a step that may take long, such as ``"fitting the
        cost model"``; empty for one without a name.

        It is called on the thread of the run, before ``started`` too, many times a second: be
        quick. ``quiet`` means that nothing is timed until the next call, so that drawing disturbs
        nothing.
        """

    def playoff(self, state: RunState, count: int) -> None:
        """Called before the best ``count`` configurations are measured again, interleaved."""

    def beside(self) -> Mapping[str, Callable[[], float | None]]:
        """Functions, by name, that the playoff shall sample in turns with the kernels: seconds per
        call, or None."""
        return {}

    def finished(self, state: RunState, summary: Summary) -> None:
        """Called when the run is over, be it by Ctrl-C; not when it ends by an error."""

    def close(self) -> None:
        """Called last, however the run ended: end threads, give the terminal back."""
