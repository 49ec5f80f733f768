"""One round of a run: what it measures, and what of that is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loopwright.measure import MeasureResult
from loopwright.tuner.run.state import Trial, point

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


@dataclass
class Round:
    """The configurations of one round in order, and which of them are measured.

    Attributes:
        number: the round.
        seed: the seed that proposed it.
        first: trial number of its first configuration.
        configs: what it measures.
        done: the trials so far by index, those of the log included.
        fresh: the trials of this run.
    """

    number: int
    seed: int | None
    first: int
    configs: list[ConfigEntity]
    done: dict[int, Trial] = field(default_factory=dict)
    fresh: list[Trial] = field(default_factory=list)

    def todo(self) -> list[tuple[int, ConfigEntity]]:
        """Trial numbers and configurations that are not measured yet."""
        return [
            (self.first + i, c) for i, c in enumerate(self.configs) if point(c) not in self.done
        ]

    def results(self) -> list[tuple[ConfigEntity, MeasureResult]]:
        """``(config, result)`` of its trials so far, in the order of trial numbers."""
        trials = [self.done[i] for i in map(point, self.configs) if i in self.done]
        return [(t.config, t.result) for t in trials]
