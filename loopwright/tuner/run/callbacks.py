"""Callbacks, which watch a run while it goes on, and the messages of a run to Python's ``logging``.

Each trial is a line at DEBUG on the logger ``autotvm``, in the form that AutoTVM gives it; start,
rounds and end of a run are at INFO on ``loopwright.tuner``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from loopwright.errors import UsageError
from loopwright.tuner.run.interfaces import Callback, Monitor, TunerLike
from loopwright.tuner.run.progress import ProgressBar
from loopwright.tuner.run.state import RunState, Trial

if TYPE_CHECKING:
    from loopwright.measure import MeasureInput, MeasureResult


__all__ = [
    "Database", "EarlyStop", "LogToFile", "Monitor", "ProgressBar", "log_to_database",
    "log_to_file", "progress_bar", "stop_at",
]  # fmt: skip


class LogToFile(Monitor):
    """Names the log of a run; see `log_to_file`.

    Example:
        >>> from loopwright.tuner.run.callbacks import LogToFile
        >>> print(LogToFile("matmul.jsonl").path)
        matmul.jsonl
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)


def log_to_file(path: str | os.PathLike[str], protocol: str = "json") -> LogToFile:
    """Write each measurement to a log, and resume from what the log holds already.

    The tuning loop appends each record as soon as it is measured, before the tuner hears of it, and
    syncs the file to disk after every round. Measurements of this task that the log holds (same
    target, threads, hardware, space and compiler) count as done. AutoTVM's protocol ``"pickle"``,
    and what is no path, are refused as `UsageError`.

    Example:
        >>> print(lw.callback.log_to_file("matmul.jsonl").path)
        matmul.jsonl
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(
            f"log_to_file takes the path of a log, not a {type(path).__name__}: it is locked and "
            "read as well as written; pass its name"
        )
    if protocol != "json":
        raise UsageError(f'log_to_file: protocol={protocol!r} is not there; logs are "json"')
    return LogToFile(path)


class Database(Protocol):
    """A database that `log_to_database` can write to, such as those of AutoTVM."""

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None: ...


def log_to_database(db: Database) -> Callback:
    """Return a callback that gives each measurement of a round to a database with ``save(inp, res,
    extend)``, such as those of `loopwright.autotvm.database`.

    It is no log: a run that is cut off cannot be resumed from it, as it can from that of
    `log_to_file`.

    Raises:
        UsageError: it has no ``save``.
    """
    if not callable(getattr(db, "save", None)):
        raise UsageError(
            "log_to_database takes a database with save(inp, res, extend); to write a file, use "
            f"log_to_file; got {db!r:.60}"
        )

    def store(
        tuner: TunerLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        for inp, res in zip(inputs, results, strict=True):
            db.save(inp, res, extend=True)

    return store


class EarlyStop(Exception):
    """Raised by a callback to end the run after this round, cleanly; the text says why.

    Example:
        >>> try:
        ...     raise lw.tuner.EarlyStop("it is late")
        ... except lw.tuner.EarlyStop as stop:
        ...     print(stop)
        ...
        it is late
    """


def progress_bar(total: int | None = None, prefix: str = "", si_prefix: str = "G") -> ProgressBar:
    """Show the progress of a run on standard error, and its summary at the end.

    On a terminal that is one line, drawn anew in place: trials, best and current speed, time, the
    time that is left, failures, and the step that goes on. Elsewhere a line is printed every ten
    seconds.

    Args:
        total: trials to show where ``tune`` is given no ``n_trial``; for the display only.
        prefix: put before each line, such as ``"[Task 1/3]"``.
        si_prefix: unit of the speed: "", "k", "M", "G" or "T" FLOP/s; else a `UsageError`.
    """
    return ProgressBar(total, prefix, si_prefix)


def stop_at(gflops: float) -> Callback:
    """Return a callback that ends the run once the best reaches this speed in GFLOP/s."""

    def check(tuner: TunerLike, inputs: object, results: object) -> None:
        if tuner.best_flops >= gflops * 1e9:
            raise EarlyStop(f"the best reached {gflops:g} GFLOP/s")

    return check


_trials = logging.getLogger("autotvm")


def log_trial(state: RunState, trial: Trial) -> None:
    """Log number, speed and best in GFLOP/s (0.00 for a failure, as in AutoTVM, and where
    operations cannot be counted), result, configuration."""
    if not _trials.isEnabledFor(logging.DEBUG):
        return
    current = state.gflops(trial.result.median) if trial.valid else None
    best = state.gflops(state.best_seconds)
    _trials.debug(
        "No: %d\tGFLOPS: %.2f/%.2f\tresult: %s\t%s",
        *(trial.number + 1, current or 0.0, best or 0.0, _shown(trial.result), trial.config),
    )


def _shown(result: MeasureResult) -> str:
    """A result in AutoTVM's form, in which the error of a failure takes the place of its times."""
    costs = result.times if result.error is None else (str(result.error),)
    return (
        f"MeasureResult(costs={costs}, error_no=MeasureErrorNo.{result.error_no.name}, "
        f"all_cost={result.all_cost:.6g}, timestamp={result.timestamp!r})"
    )
