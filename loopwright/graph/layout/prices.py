"""Prices of kernels: by the best record, by a measurement of the default, or by a model."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopwright.cost.analytical import cycles
from loopwright.graph.kernel_tasks import KernelTask, fastest
from loopwright.history import ApplyHistoryBest, apply_history_best
from loopwright.history.contexts import Source
from loopwright.task.dispatch import fallback
from loopwright.tuner import log_to_file, tune_tasks

if TYPE_CHECKING:
    from loopwright.graph.layout.kernels import Kernels

#: Total cost of some kernels; infinite where one of them cannot be built.
Price = Callable[["Kernels"], float]


def modelled(kernels: Kernels) -> float:
    """The cycles of the defaults of some kernels by the analytical model."""
    return sum(count * _cycles(candidates[0]) for candidates, count in kernels)


def _cycles(one: KernelTask) -> float:
    schedule, _ = fallback(one.task)
    return cycles(schedule.state, one.task.target)


class Measured:
    """Prices in seconds, by records."""

    def __init__(
        self, history: Source | Any, log: str | os.PathLike[str] | None, **options: Any
    ) -> None:
        # measurements are appended to the log (None: forgotten), which is a history, too
        self._log, self._options = log, options
        self._sources: list[ApplyHistoryBest] = []
        self.know(history)
        if log is not None and Path(log).exists():
            self.know(os.fspath(log))

    def know(self, history: Source | Any) -> None:
        """Add further records; None: none."""
        if history is not None:
            self._sources.append(_records(history))

    def measure(self, every: Iterable[Kernels]) -> None:
        """Measure the defaults of kernels without a record, each once."""
        missing = {
            candidates[0].task.key: candidates[0].task
            for kernels in every
            for candidates, _ in kernels
            if self._seconds(candidates) is None
        }
        if not missing:
            return
        if self._log is not None:
            self._run(list(missing.values()), os.fspath(self._log))
            return
        with tempfile.TemporaryDirectory() as folder:
            self._run(list(missing.values()), str(Path(folder, "layouts.jsonl")))

    def _run(self, tasks: Sequence[Any], log: str) -> None:
        options = {"tuner": "grid", "n_trial": len(tasks), **self._options}
        callbacks = [log_to_file(log), *options.pop("callbacks", ())]
        tune_tasks(tasks, callbacks=callbacks, **options)
        self._sources.append(apply_history_best(log))

    def __call__(self, kernels: Kernels) -> float:
        found = [(self._seconds(candidates), count) for candidates, count in kernels]
        return sum(math.inf if s is None else s * count for s, count in found)

    def _seconds(self, candidates: Sequence[KernelTask]) -> float | None:
        """The seconds of the fastest measured implementation of a kernel; None without any."""
        times = [
            source.choose(fastest(candidates, source).task)[0].expected for source in self._sources
        ]
        return min((t for t in times if t is not None), default=None)


def _records(history: Source | Any) -> ApplyHistoryBest:
    return history if isinstance(history, ApplyHistoryBest) else apply_history_best(history)
