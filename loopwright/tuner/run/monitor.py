"""`Monitor`: a callback that hears of every step of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from loopwright.tuner.run.interfaces import TunerLike
from loopwright.tuner.run.state import RunState, Trial
from loopwright.tuner.run.summary import Summary

if TYPE_CHECKING:
    from loopwright.measure import MeasureInput, MeasureResult


class Monitor:
    """A callback that is also told of the start, of each trial and of the end of a run."""

    #: True when it shows how a run ends; where no callback does, ``tune`` prints one line.
    shows_result: bool = False

    def __call__(
        self, tuner: TunerLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """A round is recorded and told."""

    def started(self, tuner: TunerLike, state: RunState) -> None:
        """The log is read and measuring begins; ``state`` is kept up to date from here on."""

    def trial(self, state: RunState, trial: Trial) -> None:
        """One trial is measured and recorded."""

    def note(self, text: str) -> None:
        """Something that the user should know, in one line."""

    def phase(self, text: str, quiet: bool) -> None:
        """The run has entered or left a step that may take long.

        Called on the thread of the run, before ``started`` too, many times a second: be quick.

        Args:
            text: what goes on now, such as ``"fitting the cost model"``; empty for nothing that
                has a name.
            quiet: nothing is timed until the next call, so that drawing disturbs nothing.
        """

    def playoff(self, state: RunState, count: int) -> None:
        """The best ``count`` configurations are now measured again, interleaved."""

    def beside(self) -> Mapping[str, Callable[[], float | None]]:
        """What the playoff shall sample beside the kernels, by name.

        Each is called in turn with them and returns seconds per call, or None where it has none.
        """
        return {}

    def finished(self, state: RunState, summary: Summary) -> None:
        """The run is over, be it by Ctrl-C; not called when it ends by an error."""

    def close(self) -> None:
        """Nothing follows, however the run ended: end threads, give the terminal back."""
