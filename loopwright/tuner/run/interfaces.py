"""Interfaces of tuners and callbacks that the tuning loop needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

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
