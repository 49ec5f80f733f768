"""The result of tuning several tasks, also while it goes on: a row for each task, and the sum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loopwright.records import Json, Verdict
from loopwright.records.verdict import NOT_COMPARED
from loopwright.tuner.run.output.summary import failure_lines, speed, time_line
from loopwright.tuner.run.state import Failure

if TYPE_CHECKING:
    from rich.table import Table

_HEAD = ("task", "trials", "best", "GFLOP/s", "x default", "weight", "weighted", "")


@dataclass(frozen=True)
class TaskRow:
    """The result of tuning one task.

    Attributes:
        task: as it is shown, such as ``matmul(64, 64, 64)``.
        trials: valid trials, those of the log included.
        failures: by kind.
        best_seconds: the best median time per call, or None.
        default_seconds: that of the default configuration, or None.
        gflops: speed of the best in GFLOP/s, or None.
        weight: number of calls of the task, by which its time counts.
        stopped: reason why it gets no further trials, as in `Summary.stopped`; empty while it may.
        reason: the same in a sentence.
        verdict: comparison of the best with the default.
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
        """Factor by which the best is faster than the default, by the verdict if there is one."""
        if self.verdict.nothing_faster:
            return 1.0
        if self.verdict.is_compared:
            return 1.0 + self.verdict.gain
        if self.best_seconds is None or self.default_seconds is None:
            return None
        return self.default_seconds / self.best_seconds

    @property
    def verdict_text(self) -> str:
        """The verdict in words."""
        if self.best_seconds is None:
            return "nothing was measured"
        return self.verdict.text() + (": unverified" if self.unverified else "")

    def to_json(self) -> dict[str, Json]:
        """The row for scripts."""
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
        """Its columns in the table."""
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
        rows: one for each task, in the order in which they were given.
        cost: the objective of the best times; by default the weighted sum of seconds.
        measured: valid trials of this call.
        from_log: valid trials that the log held before.
        stopped: ``"n_trial"``, ``"timeout"``, ``"early_stopping"``, ``"tasks"`` (each task came to
            its own end) or ``"interrupted"``; empty while it goes on.
        reason: the same in a sentence.
        wall_s: seconds of this call.
        log: path of the log, or None.
        total: valid trials at which the call ends at the latest, or None.
        eta: seconds that it is still expected to take, or None.
        most_trials: valid trials that all spaces have room for, or None where that is not known.
        timing: seconds by the step that took them, of all tasks together.
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
        known = ([row.weighted for row in group if row.weighted] for group in self._groups)
        return sum(min(times) for times in known if times)

    @property
    def _groups(self) -> list[list[TaskRow]]:
        """The rows, those of alternatives together."""
        found: dict[object, list[TaskRow]] = {}
        for number, row in enumerate(self.rows):
            group = (number if row.alternative is None else None, row.alternative)
            found.setdefault(group, []).append(row)
        return [*found.values()]

    @property
    def _fastest(self) -> list[TaskRow]:
        """The row of each group that is expected to be the fastest."""
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
        """Table and sum as lines of plain text."""
        cells = [_HEAD, *(row.cells() for row in self.rows), self._total()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        text = [_aligned(row, widths) for row in cells]
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
        """Lines on the end and on the number of trials."""
        before = f", {self.from_log} of them from the log" if self.from_log else ""
        ended = [f"stopped: {self.reason}"] if self.reason else []
        text = [*ended, f"trials:  {self.trials} valid{before}"]
        return [*text, time_line(self.wall_s, self.timing)] if self.stopped else text

    def table(self) -> Table:
        """The table for a terminal."""
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


def _aligned(cells: tuple[str, ...], widths: list[int]) -> str:
    parts = [
        cell.ljust(width) if i in (0, len(cells) - 1) else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(parts).rstrip()
