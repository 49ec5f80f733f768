"""What the tuning loop needs of a measurer: the seam for devices of other kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from loopwright.measure.playoff.result import PlayoffPlan, PlayoffResult
from loopwright.measure.result import MeasureInput, MeasureResult

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


class MeasurerLike(Protocol):
    """Measures candidates: `Measurer` on this machine, `Replay` from a file, or one of your own."""

    @property
    def timing(self) -> Mapping[str, float]:
        """Seconds by phase and counts of events so far; may be empty."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: float | None = None
    ) -> Iterator[MeasureResult]:
        """Yield one result per input, in order.

        Args:
            inputs: what to measure.
            incumbent: best time so far in seconds per call.
        """

    def playoff(self, candidates: Sequence[ConfigEntity], plan: PlayoffPlan) -> PlayoffResult:
        """Check and measure the fastest candidates again, interleaved with the default.

        Args:
            candidates: the fastest first; of equal programs, and where one is wrong, the next one
                takes the place.
            plan: how many take part, beside what, and how long.
        """

    def measure_again(self, configs: Sequence[ConfigEntity], windows: int) -> list[MeasureResult]:
        """Measure configurations once more, without a race; one result each, in order.

        Args:
            configs: what to measure.
            windows: samples of each.
        """


@runtime_checkable
class KnowsCode(Protocol):
    """A measurer that runs no object code of which it knows the times."""

    def know(self, results: Mapping[str, MeasureResult]) -> None:
        """Give these results to candidates that are compiled to the same code.

        Args:
            results: by `MeasureResult.code`; each says in ``times_of`` which record it is from.
        """


@runtime_checkable
class TellsPhases(Protocol):
    """A measurer that says what it does at the moment."""

    def on_phase(self, listen: Callable[[str], object]) -> None:
        """Call ``listen`` with the name of each phase that begins, such as ``"build"``, and with
        that of the one around it, or the empty name, where one ends."""


@runtime_checkable
class SharesPrograms(Protocol):
    """A measurer whose results name their programs, and which measures no program twice."""

    def measure_new(
        self,
        inputs: Sequence[MeasureInput],
        incumbent: float | None,
        known: Mapping[str, MeasureResult],
    ) -> Iterator[MeasureResult]:
        """Yield one result per input, in order.

        Args:
            inputs: what to measure.
            incumbent: best time so far in seconds per call.
            known: results of programs that were measured before, by `MeasureResult.program`. A
                candidate of such a program gets a copy whose ``same_as`` is the program.
        """
