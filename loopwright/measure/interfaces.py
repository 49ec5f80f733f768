"""The interface between the tuning loop and a measurer, for devices of other kinds."""

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
            inputs: the candidates.
            incumbent: best time so far in seconds per call.
        """

    def playoff(self, candidates: Sequence[ConfigEntity], plan: PlayoffPlan) -> PlayoffResult:
        """Check and measure the fastest candidates again, interleaved with the default.

        Args:
            candidates: the fastest first; one that repeats a program, or is wrong, is replaced by
                the next.
            plan: number of participants, programs sampled beside them, and duration.
        """

    def measure_again(self, configs: Sequence[ConfigEntity], windows: int) -> list[MeasureResult]:
        """Measure configurations once more, without a race; one result each, in order.

        Args:
            configs: the configurations.
            windows: number of samples of each.
        """


@runtime_checkable
class KnowsCode(Protocol):
    """A measurer that does not run object code with known times."""

    def know(self, results: Mapping[str, MeasureResult]) -> None:
        """Use results, by `MeasureResult.code`, for candidates that are compiled to the same code.

        Each names in ``times_of`` the record that it is from.
        """


@runtime_checkable
class TellsPhases(Protocol):
    """A measurer that reports its current phase."""

    def on_phase(self, listen: Callable[[str], object]) -> None:
        """Call ``listen`` with the innermost running phase, such as ``"build"``, whenever that
        changes; with the empty name where none runs.
        """


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

        ``incumbent`` is the best time so far in seconds per call, ``known`` has results by
        `MeasureResult.program`: a candidate of such a program gets a copy whose ``same_as`` is the
        program.
        """
