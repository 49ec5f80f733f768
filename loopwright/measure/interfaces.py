"""What the tuning loop needs of a measurer: the seam for devices of other kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

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

    def playoff(
        self, configs: Sequence[ConfigEntity], rounds: int = 5
    ) -> list[tuple[ConfigEntity, list[float]]]:
        """Measure finalists again, interleaved.

        Args:
            configs: the finalists.
            rounds: samples of each.

        Returns:
            ``(config, seconds per call of each round)``, lowest median first; without times where
            it failed.
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

        Args:
            inputs: what to measure.
            incumbent: best time so far in seconds per call.
            known: results of programs that were measured before, by `MeasureResult.program`. A
                candidate of such a program gets a copy whose ``same_as`` is the program.
        """
