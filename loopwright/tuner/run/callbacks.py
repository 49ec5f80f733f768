"""Callbacks, which watch a run while it goes on.

A callback is any ``f(tuner, inputs, results)``; it is called once a round, after the round was
recorded and told. A `Monitor` also hears of the start, of every trial and of the end.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from loopwright.errors import UsageError
from loopwright.tuner.run.interfaces import Callback, TunerLike
from loopwright.tuner.run.monitor import Monitor
from loopwright.tuner.run.output.progress import ProgressBar

if TYPE_CHECKING:
    from loopwright.measure import MeasureInput, MeasureResult

__all__ = [
    "Database",
    "EarlyStop",
    "LogToFile",
    "Monitor",
    "ProgressBar",
    "log_to_database",
    "log_to_file",
    "progress_bar",
    "stop_at",
]


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

    The tuning loop itself appends each record as soon as it is measured, before the tuner hears of
    it, and syncs the file to disk after every round. Measurements of this task that the log holds
    (same target, threads, hardware, space and compiler) count as done.

    Args:
        path: the log, JSON lines; created when it does not exist.
        protocol: ``"json"``; AutoTVM's ``"pickle"`` is refused.

    Raises:
        UsageError: ``path`` is no path, or another protocol.

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

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        """Keep a result under its input; with ``extend`` beside those that are there already."""


def log_to_database(db: Database) -> Callback:
    """Return a callback that gives each measurement of a round to a database.

    Unlike `log_to_file` it is no log: a run that is cut off cannot be resumed from it.

    Args:
        db: anything with ``save(inp, res, extend)``, such as `loopwright.autotvm.database`'s.

    Raises:
        UsageError: it has no ``save``.

    Example:
        >>> from loopwright import autotvm
        >>> db = autotvm.database.DummyDatabase()
        >>> store = autotvm.callback.log_to_database(db)
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
        >>> def enough(tuner, inputs, results):
        ...     raise lw.tuner.EarlyStop("it is late")
        ...
        >>> try:
        ...     enough(None, [], [])
        ... except lw.tuner.EarlyStop as stop:
        ...     print(stop)
        ...
        it is late
    """


def progress_bar(total: int | None = None, prefix: str = "", si_prefix: str = "G") -> ProgressBar:
    """Show the progress of a run on standard error, and its summary at the end.

    On a terminal that is one line, as wide as the terminal, which is drawn anew in place: trials,
    best and current speed, time, the time that is left, failures, and what goes on where that
    takes longer than a moment. Elsewhere plain lines are printed, one every ten seconds.

    Args:
        total: trials to show where ``tune`` is given no ``n_trial``; for the display only.
        prefix: put before each line, such as ``"[Task 1/3]"``.
        si_prefix: unit of the speed: "", "k", "M", "G" (default) or "T" FLOP/s.

    Raises:
        UsageError: the unit is another one.

    Example:
        >>> bar = lw.callback.progress_bar(200, prefix="matmul")
        >>> print(isinstance(bar, lw.tuner.Monitor))
        True
    """
    return ProgressBar(total, prefix, si_prefix)


def stop_at(gflops: float) -> Callback:
    """Return a callback that ends the run once the best reaches this speed in GFLOP/s.

    Example:
        >>> from types import SimpleNamespace
        >>> stop = lw.callback.stop_at(gflops=100)
        >>> stop(SimpleNamespace(best_flops=50e9), [], [])
        >>> try:
        ...     stop(SimpleNamespace(best_flops=200e9), [], [])
        ... except lw.tuner.EarlyStop as reason:
        ...     print(reason)
        ...
        the best reached 100 GFLOP/s
    """

    def check(tuner: TunerLike, inputs: object, results: object) -> None:
        if tuner.best_flops >= gflops * 1e9:
            raise EarlyStop(f"the best reached {gflops:g} GFLOP/s")

    return check
