"""Callbacks of `tune_tasks`, which watch several tasks while they are tuned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loopwright.presenting import harmless
from loopwright.tuner.run.budget import clock
from loopwright.tuner.run.interfaces import TunerLike
from loopwright.tuner.run.output.phases import Ticker
from loopwright.tuner.run.output.progress import Part, line_with_bar
from loopwright.tuner.run.output.summary import speed
from loopwright.tuner.tasks.summary import TasksSummary

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from loopwright.measure import MeasureInput, MeasureResult


#: Seconds between two drawings of what goes on.
_DRAW_S = 0.2


class TasksMonitor:
    """A callback of `tune_tasks` that hears of every round of any task."""

    def __call__(
        self, tuner: TunerLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """Called when a round of one task is recorded and told."""

    def started(self, summary: TasksSummary) -> None:
        """Called when the log is read and measuring begins."""

    def round(self, summary: TasksSummary, latest: int) -> None:
        """Called when a round of the task at position ``latest`` was measured."""

    def note(self, text: str) -> None:
        """Called with a line that the user should know."""

    def phase(self, text: str, quiet: bool) -> None:
        """Called when a task has entered or left a step that may take long; see `Monitor.phase`."""

    def finished(self, summary: TasksSummary) -> None:
        """Called at the end, be it by Ctrl-C; not when it ends by an error."""

    def close(self) -> None:
        """Called last, however it ended: end threads, give the terminal back."""


class TaskTable(TasksMonitor):
    """Shows the table; see `task_table`."""

    def __init__(self, console: Console | None = None, line_s: float = 10.0) -> None:
        from rich.console import Console

        self.console = console or Console(highlight=False, stderr=True)
        self.line_s = line_s
        self._live: Live | None = None
        self._shown = time.monotonic()
        self._begun = self._shown
        self._summary: TasksSummary | None = None
        self._phase = ""
        self._ticker = Ticker(self._show_if_due)

    def started(self, summary: TasksSummary) -> None:
        self._summary = summary
        if summary.from_log:
            self._print(f"resuming: the log has {summary.from_log} trials, which count")

    def phase(self, text: str, quiet: bool) -> None:
        """Draw anew where it is time, now and while the phase lasts if nothing is timed in it."""
        self._begin()
        self._ticker.quiet(False)
        self._phase = text or self._phase
        if text and self._live is not None:
            self._show_if_due()
        self._ticker.quiet(quiet)

    def round(self, summary: TasksSummary, latest: int) -> None:
        """Draw the table; without a terminal, print a line if the last one is old enough."""
        self._summary = summary
        if self._live is not None:
            self._draw()
        elif summary.latency and time.monotonic() - self._shown >= self.line_s:
            self._shown = time.monotonic()
            row = summary.rows[latest]
            self._print(
                f"trial {self._count(summary)}: {speed(summary.latency, None)} in total; "
                f"now {row.task}, {row.trials} trials"
            )

    def note(self, text: str) -> None:
        self._print(text)

    def finished(self, summary: TasksSummary) -> None:
        self.close()
        for line in summary.lines():
            self._print(line)  # may hold the text of an error from a log

    def close(self) -> None:
        self._ticker.close()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _begin(self) -> None:
        """Take the terminal, if there is one and it is not taken already."""
        console = self.console
        if self._live is None and console.is_terminal and not console.is_dumb_terminal:
            from rich.live import Live

            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()

    def _show_if_due(self) -> None:
        if self._live is not None and time.monotonic() - self._shown >= _DRAW_S:
            self._draw()

    def _draw(self) -> None:
        """Draw the table, and below it the progress of the run and the step that goes on."""
        from rich.console import Group
        from rich.text import Text

        assert self._live is not None
        self._shown = time.monotonic()
        summary, share = self._summary, None
        parts = [Part(2, clock(self._shown - self._begun)), Part(3, self._phase, shortens=True)]
        if summary is not None:
            eta = "" if summary.eta is None else f"ETA {clock(summary.eta)}"
            parts = [Part(0, f"trials {self._count(summary)}"), Part(1, eta), *parts]
            share = min(1.0, summary.trials / summary.total) if summary.total else None
        line = line_with_bar(parts, share, self.console.width)
        table = Text() if summary is None else summary.table()
        self._live.update(Group(table, line), refresh=True)

    def _count(self, summary: TasksSummary) -> str:
        return str(summary.trials) + (f"/{summary.total}" if summary.total else "")

    def _print(self, text: str) -> None:
        self.console.print(harmless(text), markup=False, soft_wrap=True)


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
