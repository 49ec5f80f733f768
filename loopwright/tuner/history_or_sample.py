"""``ApplyHistoryBestOrSample``: the best record, or where there is none, one found on the spot."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from loopwright.errors import LoopwrightError, TaskError, UsageError
from loopwright.history import ApplyHistoryBest, Source
from loopwright.lowering import lower
from loopwright.measure import MeasureOption, MeasurerLike
from loopwright.records import load
from loopwright.task import ConfigEntity, Scheduled, Task
from loopwright.tuner.range_tuners import RandomTuner
from loopwright.tuner.run.callbacks import log_to_file

#: Random configurations that are tried until one can be lowered.
_TRIES = 64


class ApplyHistoryBestOrSample(ApplyHistoryBest):
    """As ``apply_history_best``; a task without a fitting record gets a sampled configuration.

    Ansor's context of this name. Without measuring, that is a random one that can be lowered, for
    tests of a space; with ``num_measure`` the best of a short random search, the default
    configuration among its trials.

    Args:
        records: as of ``apply_history_best``; None for no log.
        num_measure: trials of the search for each such task; 0: nothing is measured.
        any_hardware: accept records of other hardware, too.

    Example:
        >>> from loopwright.tuner import ApplyHistoryBestOrSample
        >>> with ApplyHistoryBestOrSample("matmul.jsonl"), lw.Target("llvm"):
        ...     s, args = lw.ops.matmul(32, 32, 32)
        ...
        >>> print([t.name for t in args])
        ['A', 'B', 'C']
    """

    def __init__(
        self,
        records: Source | Iterable[Any] | None = None,
        *,
        num_measure: int = 0,
        seed: int = 0,
        measure_option: MeasureOption | MeasurerLike | None = None,
        any_hardware: bool = False,
    ) -> None:
        super().__init__(records, any_hardware=any_hardware)
        if num_measure < 0:
            raise UsageError(f"num_measure is {num_measure}; it must be at least 0")
        self._num_measure = num_measure
        self._seed = seed
        self._measure_option = measure_option

    def apply(self, task: Task) -> Scheduled | None:
        """The schedule of the best record, or of a sampled configuration; a `TaskError` where none
        of these can be lowered, a `TuneError` where nothing could be measured."""
        self._find(task)
        return super().apply(task)

    def config_for(self, task: Task) -> ConfigEntity | None:
        self._find(task)
        return super().config_for(task)

    def _find(self, task: Task) -> None:
        if super().config_for(task) is not None:
            return
        if self._num_measure:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "sampled.jsonl"
                RandomTuner(task, seed=self._seed).tune(
                    n_trial=self._num_measure,
                    measure_option=self._measure_option,
                    callbacks=[log_to_file(path)],
                )
                self.load(load(path))
            return
        for index in task.config_space.sample_ints(_TRIES, self._seed):
            config = task.config_space.get(index)
            try:
                lower(*task.instantiate(config))
            except LoopwrightError:  # not every point of a space is a program
                continue
            self.update(task.target, task, config)
            return
        raise TaskError(f"{task}: none of {_TRIES} random configurations can be lowered")
