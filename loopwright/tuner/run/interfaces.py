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


class TunerLike(Protocol):
    """Proposes configurations and hears of results: `loopwright.tuner.Tuner` is one.

    The attributes are described there.
    """

    task: Task
    space: ConfigSpace
    seed: int
    round: int
    visited: set[int]
    error_threshold: int
    why_empty: str
    pretrained: list[tuple[MeasureInput, MeasureResult] | Record]
    elsewhere: list[tuple[ConfigEntity, MeasureResult]]
    relatives: list[tuple[Record, MeasureResult]]
    expressions: dict[str, list[Expression]]
    journal: Journal | None
    best_flops: float
    ttl: int | None
    on_phase: Callable[[str], object]

    @property
    def name(self) -> str:
        """The name by which the command line and the log know it."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that the header of a log holds beside name and seed, as JSON values."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines that the summary of a run shall show about it."""

    def reset(self) -> None:
        """Forget every proposal and result."""

    def begin_round(self, number: int, seed: int | None = None) -> None:
        """Set the round that the next ``ask`` belongs to."""

    def exclude(self, indices: Iterable[int]) -> None:
        """Never propose these indices."""

    def ask(self, n: int) -> list[ConfigEntity]:
        """Return up to ``n`` configurations not proposed before."""

    def tell(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Take in one whole round of results in trial order."""

    def set_best(
        self, config: ConfigEntity, result: MeasureResult, flops: float, trial: int
    ) -> None:
        """Note the best configuration so far."""


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
        """Speed of each trial of the runs so far, in FLOP/s; 0.0 for one that failed."""
        return []

    @functools.cached_property
    def timestamps(self) -> list[float]:
        """Unix time at which each trial ended."""
        return []

    def __call__(
        self, tuner: TunerLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """Keep the speed and the time of the trials of a round that was recorded and told.

        Trials that a log held before the run are none of its rounds.
        """
        for item, result in zip(inputs, results, strict=True):
            self.scores.append(flop_of(item.task) * speed_of(result))
            self.timestamps.append(result.timestamp)

    def trial_scores(self) -> npt.NDArray[np.float64]:
        """Speed of each trial in FLOP/s, in the order of measuring; 0.0 for one that failed.

        The speed follows from the median time of a call. It is 0.0 too where the operations of the
        task cannot be counted. Shape ``(trials,)``.
        """
        return np.array(self.scores, dtype=np.float64)

    def trial_timestamps(self) -> npt.NDArray[np.float64]:
        """Unix time in seconds at which each trial ended, in the order of measuring."""
        return np.array(self.timestamps, dtype=np.float64)

    def reset(self) -> None:
        """Forget the trials so far."""
        self.scores.clear()
        self.timestamps.clear()

    def started(self, tuner: TunerLike, state: RunState) -> None:
        """Called when the log is read and measuring begins; ``state`` is current from then on."""

    def trial(self, state: RunState, trial: Trial) -> None:
        """Called when a trial is measured and recorded."""

    def note(self, text: str) -> None:
        """Called with a line that the user should know."""

    def phase(self, text: str, quiet: bool) -> None:
        """Called when the run has entered or left a step that may take long.

        It is called on the thread of the run, before ``started`` too, many times a second: be
        quick.

        Args:
            text: the step, such as ``"fitting the cost model"``; empty for one without a name.
            quiet: nothing is timed until the next call, so that drawing disturbs nothing.
        """

    def playoff(self, state: RunState, count: int) -> None:
        """Called before the best ``count`` configurations are measured again, interleaved."""

    def beside(self) -> Mapping[str, Callable[[], float | None]]:
        """Functions, by name, that the playoff shall sample beside the kernels.

        Each is called in turn with them and returns seconds per call, or None where it has none.
        """
        return {}

    def finished(self, state: RunState, summary: Summary) -> None:
        """Called when the run is over, be it by Ctrl-C; not when it ends by an error."""

    def close(self) -> None:
        """Called last, however the run ended: end threads, give the terminal back."""
