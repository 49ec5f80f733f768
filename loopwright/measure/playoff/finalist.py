"""One configuration during a playoff, and its chance to win."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loopwright.measure.building import Build
from loopwright.measure.playoff.result import FinalistResult
from loopwright.measure.result import MeasureError
from loopwright.records import Checked
from loopwright.runtime import Artifact

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity

#: A finalist leaves the first part when it was slower than the leader by this factor in each round
#: so far, of which there were at least so many.
LOSING, LOSES_AFTER = 1.1, 3


class Finalist:
    """One configuration in the playoff.

    Its slot is where the runner keeps its code. Slot 0 belongs to ordinary trials: filling it
    empties the others.
    """

    def __init__(self, slot: int, config: ConfigEntity) -> None:
        self.slot, self.config = slot, config
        self.build: Build | None = None
        # Another finalist whose code is equal to the byte; it is measured for both.
        self.twin: Finalist | None = None
        # Seconds of its first run.
        self.first = 0.0
        # Number of the runner process that holds its code.
        self.launched = -1
        # Seconds per call, one for each round: of the first part, of the second, of the latest
        # round (empty where it failed).
        self.times: list[float] = []
        self.judged: list[float] = []
        self.latest: list[float] = []
        # Whether it left the first part before its end. Its times are then of fewer rounds, perhaps
        # of faster minutes of the machine, so that it wins against none that stayed.
        self.left = False
        self.error: MeasureError | None = None
        self.checked = Checked.NO
        self.check_reason = ""
        self.max_error: float | None = None

    @property
    def artifact(self) -> Artifact:
        assert self.build is not None
        artifact = self.build.compiled
        assert not isinstance(artifact, MeasureError)
        return artifact

    @property
    def order(self) -> tuple[bool, bool, bool, float]:
        """Sort key of finalists, the best first."""
        result = self.result()
        unchecked, median = result.order
        return result.error is not None, unchecked, (self.twin or self).left, median

    def result(self) -> FinalistResult:
        """Result of the first part where there was one."""
        of = self.twin or self
        error = self.error or of.error
        return FinalistResult(
            self.config,
            () if error else tuple(of.times or of.judged),
            error,
            of.checked,
            of.check_reason,
            of.max_error,
        )


def may_win(players: Sequence[Finalist]) -> list[Finalist]:
    """Players that were not clearly slower than the leader in every round, without the failed ones.

    All have a sample of each round, except those that failed.
    """
    playing = [f for f in players if f.error is None]
    if not playing:
        return []
    leader = min(playing, key=lambda f: statistics.median(f.times))
    return [
        f
        for f in playing
        if any(own <= LOSING * best for own, best in zip(f.times, leader.times, strict=True))
    ]
