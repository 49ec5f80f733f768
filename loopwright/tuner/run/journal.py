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

#: Number of the best of another compiler or machine that are measured again.
REMEASURED = 8
#: Phase of records of trials that were measured again since the machine had changed.
DRIFT = "drift"


class Journal:
    """Trials of one task, kept in memory."""

    path: str | None = None

    def __init__(self, task: Task) -> None:
        self.task = task
        #: In the order in which they were measured, none twice.
        self.trials: list[Trial] = []
        #: Further measurements of trials, by index, in the order in which they were made, each with
        #: its place in its playoff, if it is of one.
        self.later: list[tuple[int, MeasureResult, Place | None]] = []
        #: Measurements that a drift of the machine made necessary, by the round that they are of.
        self.drift: dict[int, list[tuple[ConfigEntity, MeasureResult]]] = {}
        #: Comparison of the winner of a playoff with the default, by its index.
        self.verdicts: dict[int, Verdict] = {}
        #: Configurations that were among the best elsewhere, see `remeasured`.
        self.remeasure: list[ConfigEntity] = []
        #: Results of other versions of the compiler by the hash of their object code, for a
        #: measurer that runs no code twice.
        self.by_code: dict[str, MeasureResult] = {}
        #: Results that may train a model and never count.
        self.elsewhere: list[tuple[ConfigEntity, MeasureResult]] = []
        #: Records of other shapes of the template, measured on this hardware, that the log held
        #: before the first record of this task; they may train a model. Later ones are left out, so
        #: that a run that is taken up again learns from the same ones.
        self.relatives: list[tuple[Record, MeasureResult]] = []
        #: Tensor expressions of relatives by their hash.
        self.expressions: dict[str, list[Expression]] = {}
        #: Lines about findings in the log.
        self.notes: list[str] = []
        self._seen: set[int] = set()

    def rounds(self) -> list[tuple[int, list[Trial]]]:
        """The trials by round, ascending, each round in the order of its trial numbers."""
        rounds: dict[int, list[Trial]] = {}
        for trial in self.trials:
            rounds.setdefault(trial.round, []).append(trial)
        return [(r, sorted(rounds[r], key=lambda t: t.number)) for r in sorted(rounds)]

    def add(self, trial: Trial) -> None:
        """Keep one trial, unless its configuration is kept already."""
        index = trial.index
        if index in self._seen:
            return
        self._seen.add(index)
        self.trials.append(trial)

    def remeasured(self, number: int) -> list[ConfigEntity]:
        """Configurations among the best elsewhere to be measured by round ``number``: few, but many
        where the code of those few is the same, so that nothing is run."""
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
        """Keep a further measurement of a trial; ``phase`` is its reason.

        The winner of a playoff has a verdict against the default, which was kept before, or is this
        trial. The place is that in a playoff; None where it is of none.
        """
        self.later.append((trial.index, result, place))
        if phase == DRIFT:
            self.drift.setdefault(trial.round, []).append((trial.config, result))
        if verdict is not None:
            self.verdicts[trial.index] = verdict

    def header(self, data: Mapping[str, Json]) -> None:
        """Note the seed and options of the run that begins."""

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            self.close()
        except RecordError:
            # An error on its way out says more than that the log cannot be synced after it.
            if kind is None:
                raise
