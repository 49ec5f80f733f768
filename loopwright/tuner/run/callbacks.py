"""Callbacks: whatever watches a run while it goes on.

A callback is any ``f(tuner, inputs, results)``; it is called once a round, after the round was
recorded and told. A `Monitor` also hears of the start, of every trial and of the end.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from loopwright.errors import UsageError
from loopwright.tuner.run.interfaces import Callback, TunerLike
from loopwright.tuner.run.state import RunState, Trial
from loopwright.tuner.run.summary import Summary

if TYPE_CHECKING:
    from loopwright.measure import MeasureInput, MeasureResult

_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class Monitor:
    """A callback that is also told of the start, of each trial and of the end of a run.

    Example:
        >>> class Loud(lw.tuner.Monitor):
        ...     def trial(self, state, trial):
        ...         print("trial", trial.number)
        ...
        >>> print(isinstance(Loud(), lw.tuner.Monitor))
        True
    """

    def __call__(
        self, tuner: TunerLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """A round is recorded and told."""

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
    """Names the log of a run; see `log_to_file`.

    Example:
        >>> from loopwright.tuner.run.callbacks import LogToFile
        >>> print(LogToFile("matmul.jsonl").path)
        matmul.jsonl
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)


def log_to_file(path: str | os.PathLike[str]) -> LogToFile:
    """Write each measurement to a log, and resume from what the log holds already.

    The tuning loop itself appends each record as soon as it is measured, before the tuner hears of
    it, and syncs the file to disk after every round. Measurements of this task that the log holds
    (same target, threads, hardware, space and compiler) count as done.

    Args:
        path: the log, JSON lines; created when it does not exist.

    Example:
        >>> print(lw.callback.log_to_file("matmul.jsonl").path)
        matmul.jsonl
    """
    return LogToFile(path)


class ProgressBar(Monitor):
    """A line of progress on standard error; see `progress_bar`.

    Example:
        >>> from loopwright.tuner.run.callbacks import ProgressBar
        >>> print(isinstance(ProgressBar(200), lw.tuner.Monitor))
        True
    """

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

    def started(self, tuner: TunerLike, state: RunState) -> None:
        """Say how many trials the log holds."""
        self._shown = time.monotonic()
        if state.from_log:
            print(
                f"{self._head()}{state.from_log} trials are in the log already", file=self._stream
            )

    def note(self, text: str) -> None:
        """Print the line."""
        self._end_line()
        print(f"{self._head()}{text}", file=self._stream, flush=True)

    def trial(self, state: RunState, trial: Trial) -> None:
        """Refresh the line: on a terminal ten times a second, elsewhere every ten seconds."""
        if time.monotonic() - self._shown > (0.1 if self._stream.isatty() else 10.0):
            self._show(state, trial)

    def playoff(self, state: RunState, count: int) -> None:
        """Close the line of progress."""
        if state.trials:
            self._show(state, state.trials[-1])
        self._end_line()

    def finished(self, state: RunState, summary: Summary) -> None:
        """Print the summary."""
        self._end_line()
        for line in summary.lines():
            print(f"{self._head()}{line}", file=self._stream, flush=True)

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
            f"{self._head()}current {self._speed(trial.result.median, state.flop)} | best "
            f"{self._speed(state.best_seconds, state.flop)} | {state.valid}/{self.total} | "
            f"{clock(state.budget.elapsed)}{eta}{failed}"
        )
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

    On a terminal one line is refreshed; elsewhere plain lines are printed, one every ten seconds.

    Args:
        total: trials that the run is to reach, for the display.
        prefix: put before each line, such as ``"[Task 1/3]"``.
        si_prefix: unit of the speed: "", "k", "M", "G" (default) or "T" FLOP/s.

    Example:
        >>> task = lw.create_task("reduce", (64, 64), "llvm")
        >>> bar = lw.callback.progress_bar(20, prefix="reduce")
        >>> print(isinstance(bar, lw.tuner.Monitor))
        True
    """
    return ProgressBar(total, prefix, si_prefix)


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


def clock(seconds: float) -> str:
    """A duration as ``42s``, ``3m05s`` or ``2h07m``.

    Example:
        >>> from loopwright.tuner.run.callbacks import clock
        >>> print(clock(42), clock(185), clock(7620))
        42s 3m05s 2h07m
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
