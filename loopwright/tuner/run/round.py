"""One round of a run: its configurations, and its trials so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loopwright.measure import MeasureResult
from loopwright.tuner.run.state import Trial, point

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


@dataclass
class Round:
    """The configurations of one round in order, and their trials."""

    number: int
    #: Seed of the tuner that proposed it.
    seed: int | None
    #: Trial number of its first configuration.
    first: int
    configs: list[ConfigEntity]
    #: Trials so far by index, those of the log included.
    done: dict[int, Trial] = field(default_factory=dict)
    #: Trials of this run.
    fresh: list[Trial] = field(default_factory=list)

    def todo(self) -> list[tuple[int, ConfigEntity]]:
        """Trial numbers and configurations that are not measured yet."""
        return [
            (self.first + i, c) for i, c in enumerate(self.configs) if point(c) not in self.done
        ]

    def results(self) -> list[tuple[ConfigEntity, MeasureResult]]:
        """Results of its trials so far, in the order of trial numbers."""
        trials = [self.done[i] for i in map(point, self.configs) if i in self.done]
        return [(t.config, t.result) for t in trials]
