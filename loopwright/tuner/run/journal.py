"""The memory of a run: every trial of one task, in rounds.

The loop writes here first and tells the tuner after. A journal hands the rounds back in order, so
that telling them again brings a fresh tuner to where the last one stood. `Journal` keeps them in
memory, ``log_journal.py`` on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from loopwright.errors import RecordError
from loopwright.measure import MeasureResult
from loopwright.records import Expression, Json, Record, Verdict
from loopwright.records.playoffs import Place
from loopwright.tuner.run.state import Trial, point

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity, Task

#: How many of the best that were measured with another compiler or machine are measured again.
REMEASURED = 8
#: Phase of records of what was measured again since the machine had changed.
DRIFT = "drift"


class Journal:
    """Trials of one task, kept in memory.

    Attributes:
        path: the log, or None.
        trials: in the order in which they were measured, none twice.
        later: further measurements of trials, by index, in the order in which they were made, each
            with what its playoff says of it, if it is of one.
        drift: those that a drift of the machine made necessary, by the round that they belong to.
        verdicts: how the winner of a playoff compares with the default, by its index.
        remeasure: configurations that were among the best elsewhere, see `remeasured`.
        by_code: results of other versions of the compiler by the hash of their object code, for a
            measurer that runs no code twice.
        elsewhere: ``(config, result)`` pairs that may train a model and never count.
        relatives: records of other shapes of the template, measured on this hardware, that the log
            held before the first record of this task; they may train a model. Later ones are left
            out, so that a run that is taken up again learns from the same ones.
        expressions: tensor expressions of relatives by their hash.
        notes: lines about what was found in the log.
    """

    path: str | None = None

    def __init__(self, task: Task) -> None:
        self.task = task
        self.trials: list[Trial] = []
        self.later: list[tuple[int, MeasureResult, Place | None]] = []
        self.drift: dict[int, list[tuple[ConfigEntity, MeasureResult]]] = {}
        self.verdicts: dict[int, Verdict] = {}
        self.remeasure: list[ConfigEntity] = []
        self.by_code: dict[str, MeasureResult] = {}
        self.elsewhere: list[tuple[ConfigEntity, MeasureResult]] = []
        self.relatives: list[tuple[Record, MeasureResult]] = []
        self.expressions: dict[str, list[Expression]] = {}
        self.notes: list[str] = []
        self._seen: set[int] = set()

    def rounds(self) -> list[tuple[int, list[Trial]]]:
        """The trials by round, ascending, each round in the order of its trial numbers."""
        rounds: dict[int, list[Trial]] = {}
        for trial in self.trials:
            rounds.setdefault(trial.round, []).append(trial)
        return [(r, sorted(rounds[r], key=lambda t: t.number)) for r in sorted(rounds)]

    def add(self, trial: Trial) -> None:
        """Keep one trial; a configuration that is kept already is passed over."""
        index = trial.index
        if index in self._seen:
            return
        self._seen.add(index)
        self.trials.append(trial)

    def remeasured(self, number: int) -> list[ConfigEntity]:
        """Configurations that were among the best elsewhere and deserve a trial by round
        ``number``: few, but many where the code of those few is the same, so that nothing is run.
        """
        first = self.remeasure[:REMEASURED]
        known = {t.index for t in self.trials if t.result.times_of and t.round < number}
        return self.remeasure if all(point(c) in known for c in first) else first

    def add_again(
        self,
        trial: Trial,
        result: MeasureResult,
        phase: str,
        verdict: Verdict | None = None,
        default: int | None = None,
        place: Place | None = None,
    ) -> None:
        """Keep a further measurement of a trial.

        Args:
            trial: the trial.
            result: times, or how it failed.
            phase: of the record: what it was measured again for.
            verdict: how it compares with the default, where it is the winner of a playoff.
            default: index of the default, which was kept before, or is this trial.
            place: what its playoff says of it; None where it is of none.
        """
        self.later.append((trial.index, result, place))
        if phase == DRIFT:
            self.drift.setdefault(trial.round, []).append((trial.config, result))
        if verdict is not None:
            self.verdicts[trial.index] = verdict

    def header(self, data: Mapping[str, Json]) -> None:
        """Note the seed and options of the run that begins."""

    def sync(self) -> None:
        """Make sure that what was added survives a power failure."""

    def close(self) -> None:
        """Release the file."""

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            self.close()
        except RecordError:
            # An error on its way out says more than that the log cannot be synced after it.
            if kind is None:
                raise
