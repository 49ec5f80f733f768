"""Callbacks of `tune_tasks`: whatever watches several tasks while they are tuned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loopwright.tuner.run.interfaces import TunerLike
from loopwright.tuner.run.summary import speed
from loopwright.tuner.tasks.summary import TasksSummary

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from loopwright.measure import MeasureInput, MeasureResult


class TasksMonitor:
    """A callback of `tune_tasks` that hears of every round of any task."""

    def __call__(
        self, tuner: TunerLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """A round of one task is recorded and told."""

    def started(self, summary: TasksSummary) -> None:
        """The log is read and measuring begins."""

    def round(self, summary: TasksSummary, latest: int) -> None:
        """A round of the task at position ``latest`` was measured."""

    def note(self, text: str) -> None:
        """Something that the user should know, in one line."""

    def finished(self, summary: TasksSummary) -> None:
        """The end, be it by Ctrl-C; not called when it ends by an error."""


class TaskTable(TasksMonitor):
    """Shows the table; see `task_table`."""

    def __init__(self, console: Console | None = None, line_s: float = 10.0) -> None:
        from rich.console import Console

        self.console = console or Console(highlight=False, stderr=True)
        self.line_s = line_s
        self._live: Live | None = None
        self._shown = 0.0

    def started(self, summary: TasksSummary) -> None:
        """Say what the log holds, and begin to draw."""
        self._shown = time.monotonic()
        if summary.from_log:
            self._print(f"resuming: the log has {summary.from_log} trials, which count")
        if self.console.is_terminal:
            from rich.live import Live

            # Drawn between rounds only: a drawing thread would disturb what is being timed.
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()

    def round(self, summary: TasksSummary, latest: int) -> None:
        """Draw the table; without a terminal, print a line if the last one is old enough."""
        if self._live is not None:
            self._live.update(summary.table(), refresh=True)
        elif summary.latency and time.monotonic() - self._shown >= self.line_s:
            self._shown = time.monotonic()
            row = summary.rows[latest]
            self._print(
                f"trial {summary.trials}: {speed(summary.latency, None)} in total; now {row.task}, "
                f"{row.trials} trials"
            )

    def note(self, text: str) -> None:
        """Print the line."""
        self._print(text)

    def finished(self, summary: TasksSummary) -> None:
        """Print table and sum."""
        self.close()
        for line in summary.lines():
            self._print(line)

    def close(self) -> None:
        """Stop drawing."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)


def task_table(console: Console | None = None, line_s: float = 10.0) -> TaskTable:
    """Show one table of all tasks: trials, best, weighted latency; for `tune_tasks`.

    On a terminal it is redrawn after every round; elsewhere a line is printed now and then, and the
    table at the end.

    Args:
        console: a ``rich`` console; None for one on standard error.
        line_s: seconds between two lines where there is no terminal, at least.

    Example:
        >>> table = lw.tuner.task_table(line_s=60)
        >>> print(isinstance(table, lw.tuner.TasksMonitor))
        True
    """
    return TaskTable(console, line_s)
