"""Callbacks: whatever watches a run while it goes on.

A callback is any ``f(tuner, inputs, results)``; it is called once a round, after the round was
recorded and told. A `Monitor` also hears of the start, of every trial and of the end.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TextIO

import numpy as np
import numpy.typing as npt

from loopwright.errors import UsageError
from loopwright.tuner.run.interfaces import Callback, TunerLike
from loopwright.tuner.run.notebook_line import NotebookLine, in_notebook
from loopwright.tuner.run.state import RunState, Trial, flop_of, speed_of
from loopwright.tuner.run.summary import Summary

if TYPE_CHECKING:
    from loopwright.measure import MeasureInput, MeasureResult

_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class Monitor:
    """A callback that is also told of the start, of each trial and of the end of a run.

    By itself it collects the speed and the time of each trial, as AutoTVM's ``Monitor`` does. A
    subclass overrides what it wants to hear of.

    Example::

        monitor = Monitor()
        tuner.tune(n_trial=64, callbacks=[monitor])
        monitor.trial_scores().max() / 1e9  # GFLOP/s of the fastest trial
    """

    @functools.cached_property
    def scores(self) -> list[float]:
        """Speed of each trial of the runs so far, in FLOP/s; 0.0 for one that failed."""
        return []

    @functools.cached_property
    def timestamps(self) -> list[float]:
        """Unix time at which each trial ended."""
        return []

    def __call__(
        self, tuner: TunerLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """A round is recorded and told: keep the speed and the time of its trials.

        Trials that a log held before the run are none of its rounds.
        """
        for item, result in zip(inputs, results, strict=True):
            self.scores.append(flop_of(item.task) * speed_of(result))
            self.timestamps.append(result.timestamp)

    def trial_scores(self) -> npt.NDArray[np.float64]:
        """Speed of each trial in FLOP/s, in the order of measuring; 0.0 for one that failed.

        The speed follows from the median time of a call. It is 0.0 too where the operations of the
        task cannot be counted. Shape ``(trials,)``.
        """
        return np.array(self.scores, dtype=np.float64)

    def trial_timestamps(self) -> npt.NDArray[np.float64]:
        """Unix time in seconds at which each trial ended, in the order of measuring."""
        return np.array(self.timestamps, dtype=np.float64)

    def reset(self) -> None:
        """Forget the trials so far."""
        self.scores.clear()
        self.timestamps.clear()

    def started(self, tuner: TunerLike, state: RunState) -> None:
        """The log is read and measuring begins; ``state`` is kept up to date from here on."""

    def trial(self, state: RunState, trial: Trial) -> None:
        """One trial is measured and recorded."""

    def note(self, text: str) -> None:
        """Something that the user should know, in one line."""

    def playoff(self, state: RunState, count: int) -> None:
        """The best ``count`` configurations are now measured again, interleaved."""

    def beside(self) -> Mapping[str, Callable[[], float | None]]:
        """What the playoff shall sample beside the kernels, by name.

        Each is called in turn with them and returns seconds per call, or None where it has none.
        """
        return {}

    def finished(self, state: RunState, summary: Summary) -> None:
        """The run is over, be it by Ctrl-C; not called when it ends by an error."""


class LogToFile(Monitor):
    """Names the log of a run; see `log_to_file`."""

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
    """What `log_to_database` needs: AutoTVM's databases have it."""

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


class ProgressBar(Monitor):
    """A line of progress on standard error; see `progress_bar`."""

    def __init__(
        self, total: int, prefix: str = "", si_prefix: str = "G", file: TextIO | None = None
    ) -> None:
        if si_prefix not in _PREFIXES:
            raise UsageError(
                f"si_prefix {si_prefix!r} is not one of {', '.join(map(repr, _PREFIXES))}"
            )
        self.total, self.prefix, self.si_prefix = total, prefix, si_prefix
        self._file = file
        self._shown = 0.0
        self._width = 0
        self._notebook: NotebookLine | None = None
        self._notes: list[str] = []

    def started(self, tuner: TunerLike, state: RunState) -> None:
        """Say how many trials the log holds."""
        self._shown = time.monotonic()
        self._notebook = NotebookLine() if self._file is None and in_notebook() else None
        self._notes = []
        if state.from_log:
            self.note(f"{state.from_log} trials are in the log already")

    def note(self, text: str) -> None:
        """Print the line."""
        self._notes.append(text)
        if self._notebook is not None:
            return  # it stands above the next line of progress
        self._end_line()
        print(f"{self._head()}{text}", file=self._stream, flush=True)

    def trial(self, state: RunState, trial: Trial) -> None:
        """Refresh the line: on a terminal ten times a second, elsewhere every ten seconds."""
        if time.monotonic() - self._shown > self._pause:
            self._show(state, trial)

    def playoff(self, state: RunState, count: int) -> None:
        """Close the line of progress."""
        if state.trials:
            self._show(state, state.trials[-1])
        self._end_line()

    def finished(self, state: RunState, summary: Summary) -> None:
        """Print the summary."""
        if self._notebook is not None:
            self._draw("\n".join(summary.lines()))
            return
        self._end_line()
        for line in summary.lines():
            print(f"{self._head()}{line}", file=self._stream, flush=True)

    @property
    def _pause(self) -> float:
        """Seconds between two lines."""
        if self._notebook is not None:
            return 1.0
        return 0.1 if self._stream.isatty() else 10.0

    def _draw(self, text: str) -> None:
        """Draw in the notebook, below what was noted."""
        assert self._notebook is not None
        lines = [*self._notes, text]
        self._notebook.show("\n".join(f"{self._head()}{line}" for line in lines))

    @property
    def _stream(self) -> TextIO:
        return self._file or sys.stderr

    def _head(self) -> str:
        return f"{self.prefix} " if self.prefix else ""

    def _speed(self, seconds: float | None, flop: int) -> str:
        unit = f"{self.si_prefix}FLOP/s"
        if seconds is None:
            return f"- {unit}"
        return f"{flop / seconds / _PREFIXES[self.si_prefix]:.2f} {unit}"

    def _show(self, state: RunState, trial: Trial) -> None:
        self._shown = time.monotonic()
        eta = "" if state.eta is None else f" | ETA {clock(state.eta)}"
        failed = f" | {state.failed} failed" if state.failed else ""
        text = (
            f"current {self._speed(trial.result.median, state.flop)} | best "
            f"{self._speed(state.best_seconds, state.flop)} | {state.valid}/{self.total} | "
            f"{clock(state.budget.elapsed)}{eta}{failed}"
        )
        if self._notebook is not None:
            self._draw(text)
            return
        text = f"{self._head()}{text}"
        tty = self._stream.isatty()
        start = "\r" if tty else ""
        # Blanks, not control codes, wipe what a longer line left behind.
        padded = text.ljust(self._width) if tty else text
        print(f"{start}{padded}", end="" if tty else "\n", file=self._stream, flush=True)
        self._width = len(text) if tty else 0

    def _end_line(self) -> None:
        if self._width:
            print(file=self._stream, flush=True)
        self._width = 0


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> ProgressBar:
    """Show current and best speed, trials, time, ETA and failures, and the summary at the end.

    On a terminal, and in a notebook, one line is refreshed; elsewhere plain lines are printed, one
    every ten seconds.

    Args:
        total: trials that the run is to reach, for the display.
        prefix: put before each line, such as ``"[Task 1/3]"``.
        si_prefix: unit of the speed: "", "k", "M", "G" (default) or "T" FLOP/s.
    """
    return ProgressBar(total, prefix, si_prefix)


class EarlyStop(Exception):
    """Raised by a callback to end the run after this round, cleanly; the text says why."""


def stop_at(gflops: float) -> Callback:
    """Return a callback that ends the run once the best reaches this speed in GFLOP/s."""

    def check(tuner: TunerLike, inputs: object, results: object) -> None:
        if tuner.best_flops >= gflops * 1e9:
            raise EarlyStop(f"the best reached {gflops:g} GFLOP/s")

    return check


def clock(seconds: float) -> str:
    """A duration as ``42s``, ``3m05s`` or ``2h07m``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
