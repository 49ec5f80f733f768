"""The result of tuning several tasks, also while it goes on: rows, their sum, and the table."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loopwright.presenting import harmless
from loopwright.records import NOT_COMPARED, Json, Verdict
from loopwright.tuner.run.budget import clock
from loopwright.tuner.run.interfaces import TunerLike
from loopwright.tuner.run.phases import Ticker
from loopwright.tuner.run.progress import Part, line_with_bar
from loopwright.tuner.run.state import Failure
from loopwright.tuner.run.summary import failure_lines, speed, speedup_of, time_line
from loopwright.tuner.tasks.scheduler import equal_together

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from loopwright.measure import MeasureInput, MeasureResult


_HEAD = ("task", "trials", "best", "GFLOP/s", "x default", "weight", "weighted", "")


@dataclass(frozen=True)
class TaskRow:
    """The result of tuning one task.

    Attributes:
        trials: valid trials, those of the log included.
        default_seconds: that of the default configuration, or None.
        weight: number of calls of the task, by which its time counts.
        stopped: reason why it gets no further trials, as in `Summary.stopped`; empty while it may.
        alternative: equal for tasks that compute the same in different ways; None: there are none.
    """

    task: str
    trials: int
    failures: Mapping[str, Failure]
    best_seconds: float | None
    default_seconds: float | None
    gflops: float | None
    weight: float
    stopped: str = ""
    reason: str = ""
    verdict: Verdict = NOT_COMPARED
    alternative: object = None

    @property
    def unverified(self) -> bool:
        """True where the best was not compared with the default."""
        return self.best_seconds is not None and not self.verdict.is_compared

    @property
    def default(self) -> float | None:
        """Seconds of the default, in the rounds of the playoff where there was one."""
        if not self.verdict.is_compared or self.best_seconds is None:
            return self.default_seconds
        return self.best_seconds * (self.speedup or 1.0)

    @property
    def expected(self) -> float | None:
        """Seconds of the best where it was compared with the default, else of the default."""
        return self.best_seconds if self.verdict.is_compared else self.default_seconds

    @property
    def weighted(self) -> float | None:
        """Weight times the best time, in seconds."""
        return None if self.best_seconds is None else self.weight * self.best_seconds

    @property
    def speedup(self) -> float | None:
        return speedup_of(self.verdict, self.best_seconds, self.default_seconds)

    @property
    def verdict_text(self) -> str:
        if self.best_seconds is None:
            return "nothing was measured"
        return self.verdict.text() + (": unverified" if self.unverified else "")

    def to_json(self) -> dict[str, Json]:
        return {
            "task": self.task,
            "trials": self.trials,
            "failures": {kind: failure.count for kind, failure in self.failures.items()},
            "best_seconds": self.best_seconds,
            "default_seconds": self.default_seconds,
            "gflops": self.gflops,
            "speedup": self.speedup,
            "weight": self.weight,
            "stopped": self.stopped,
            "reason": self.reason,
            "verdict": {**self.verdict.to_json(), "text": self.verdict.text()},
        }

    def cells(self) -> tuple[str, ...]:
        return (
            self.task,
            str(self.trials),
            _time(self.best_seconds),
            "-" if self.gflops is None else f"{self.gflops:.1f}",
            "-" if self.speedup is None else f"{self.speedup:.2f}",
            f"{self.weight:g}",
            _time(self.weighted),
            self.stopped,
        )


@dataclass(frozen=True)
class TasksSummary:
    """The result of tuning all tasks.

    Attributes:
        cost: the objective of the best times; by default the weighted sum of seconds.
        stopped: ``"n_trial"``, ``"timeout"``, ``"early_stopping"``, ``"tasks"`` (each task came to
            its own end) or ``"interrupted"``; empty while it goes on.
        measured: valid trials of this call.
        total: valid trials at which the call ends at the latest, or None.
        eta: seconds that it is still expected to take, or None.
        most_trials: valid trials that all spaces have room for, or None where that is not known.
    """

    rows: tuple[TaskRow, ...]
    cost: float
    measured: int
    from_log: int
    stopped: str
    reason: str
    wall_s: float
    log: str | None
    total: int | None = None
    eta: float | None = None
    most_trials: int | None = None
    timing: Mapping[str, float] = field(default_factory=dict)

    @property
    def trials(self) -> int:
        """Valid trials of all tasks, those of the log included."""
        return sum(row.trials for row in self.rows)

    @property
    def latency(self) -> float:
        """Weighted sum of the best times, in seconds, of the tasks that have one; of alternatives
        the fastest counts."""
        by_group = ([row.weighted for row in group if row.weighted] for group in self._groups)
        return sum(min(times) for times in by_group if times)

    @property
    def _groups(self) -> list[list[TaskRow]]:
        groups = equal_together([row.alternative for row in self.rows])
        return [[self.rows[i] for i in group] for group in groups]

    @property
    def _fastest(self) -> list[TaskRow]:
        return [min(group, key=lambda row: row.expected or math.inf) for group in self._groups]

    @property
    def expected(self) -> float | None:
        """Weighted sum of the times of what a model is built from: the best of the tasks that a
        playoff compared with their defaults, and the defaults of the others; of alternatives the
        fastest counts. None while one has neither."""
        times = [row.expected and row.weight * row.expected for row in self._fastest]
        return None if None in times else sum(t for t in times if t)

    @property
    def of_defaults(self) -> float | None:
        """The same of the defaults alone; of alternatives the first one is the default."""
        firsts = [next((r for r in group if r.default), group[0]) for group in self._groups]
        times = [row.default and row.weight * row.default for row in firsts]
        return None if None in times else sum(t for t in times if t)

    @property
    def unverified(self) -> int:
        """Number of tasks that count by their default, as no playoff compared their best with it;
        alternatives count once."""
        return sum(row.unverified for row in self._fastest)

    @property
    def is_gain(self) -> bool:
        """True when the best of some task is measurably faster than its default."""
        return any(row.verdict.is_gain for row in self.rows)

    def to_json(self) -> dict[str, Json]:
        """The summary for scripts: times in seconds, speeds in GFLOP/s, shares as numbers."""
        return {
            "tasks": [row.to_json() for row in self.rows],
            "cost": self.cost,
            "trials": self.trials,
            "measured": self.measured,
            "from_log": self.from_log,
            "stopped": self.stopped,
            "reason": self.reason,
            "expected_s": self.expected,
            "defaults_s": self.of_defaults,
            "unverified": self.unverified,
            "timing": dict(self.timing),
            "wall_s": self.wall_s,
            "log": self.log,
        }

    def lines(self) -> list[str]:
        cells = [_HEAD, *(row.cells() for row in self.rows), self._total()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        last = len(_HEAD) - 1
        padded = (
            [
                cell.ljust(width) if i in (0, last) else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            for row in cells
        )
        text = ["  ".join(row).rstrip() for row in padded]
        for row in self.rows:
            text += [f"{row.task}: {row.verdict_text}"] if self.stopped else []
            text += [f"{row.task}: {line}" for line in failure_lines(row.failures)]
        return [*text, *self.foot()]

    def _repr_html_(self) -> str:
        from loopwright.presenting import html_block, html_table, html_text

        rows = [(*row.cells(), row.verdict_text) for row in self.rows]
        failures = [f"{r.task}: {line}" for r in self.rows for line in failure_lines(r.failures)]
        table = html_table([*rows, self._total()], (*_HEAD, "verdict"))
        foot = html_text("\n".join([*failures, *self.foot()]))
        return html_block(f"{len(self.rows)} tasks", table, foot)

    def foot(self) -> list[str]:
        before = f", {self.from_log} of them from the log" if self.from_log else ""
        ended = [f"stopped: {self.reason}"] if self.reason else []
        text = [*ended, f"trials:  {self.trials} valid{before}"]
        return [*text, time_line(self.wall_s, self.timing)] if self.stopped else text

    def table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_footer=True)
        total = self._total()
        for i, name in enumerate(_HEAD):
            left = i in (0, len(_HEAD) - 1)
            table.add_column(name, Text(total[i]), justify="left" if left else "right")
        for row in self.rows:
            table.add_row(*map(Text, row.cells()))
        return table

    def _total(self) -> tuple[str, ...]:
        return ("total", str(self.trials), "", "", "", "", _time(self.latency), "")


def _time(seconds: float | None) -> str:
    return "-" if not seconds else speed(seconds, None)


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
    shows_result = True

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
        console = self.console
        if self._live is None and console.is_terminal and not console.is_dumb_terminal:
            from rich.live import Live

            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._ticker.quiet(False)
        self._phase = text or self._phase
        if text and self._live is not None:
            self._show_if_due()
        self._ticker.quiet(quiet)

    def round(self, summary: TasksSummary, latest: int) -> None:
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

    def _show_if_due(self) -> None:
        if self._live is not None and time.monotonic() - self._shown >= _DRAW_S:
            self._draw()

    def _draw(self) -> None:
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

    On a terminal it is redrawn after every round; elsewhere a line is printed every ``line_s``
    seconds at most, and the table at the end, on standard error without a ``console`` of rich.
    """
    return TaskTable(console, line_s)
