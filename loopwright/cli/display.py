"""The live display of ``loopwright tune``; plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loopwright.cli.harmless import harmless, harmless_lines
from loopwright.tuner import Monitor, RunState, Summary, Trial, TunerLike
from loopwright.tuner.run.callbacks import clock

#: Seconds between two lines where there is no terminal.
_LINE_S = 10.0


class Display(Monitor):
    """Trials, current and best speed, share of the peak, NumPy, ETA and failures.

    Refreshed between trials only: a drawing thread would disturb what is being timed.

    Args:
        console: where to draw.
        peak: measured FMA peak in GFLOP/s, or None.
        numpy: NumPy's speed in GFLOP/s, or None.
        refresh_s: seconds between two refreshes on a terminal, at least.
        sampled: what the playoff shall sample beside the kernels, by name.
    """

    def __init__(
        self,
        console: Console,
        peak: float | None,
        numpy: float | None,
        refresh_s: float = 0.2,
        sampled: Mapping[str, Callable[[], float | None]] | None = None,
    ) -> None:
        self.console, self.peak, self.numpy = console, peak, numpy
        self.refresh_s = refresh_s
        self.sampled = dict(sampled or {})
        self._live: Live | None = None
        self._drawn = 0.0

    def started(self, tuner: TunerLike, state: RunState) -> None:
        """Begin to draw."""
        self._drawn = time.monotonic()
        if state.from_log or state.failed:
            failed = f", as do {state.failed} failed ones" if state.failed else ""
            self._print(f"resuming: the log has {state.from_log} trials, which count{failed}")
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()

    def note(self, text: str) -> None:
        """Print a line above the display."""
        self._print(text)

    def trial(self, state: RunState, trial: Trial) -> None:
        """Draw anew, if the last time is long enough ago."""
        wait = self.refresh_s if self._live is not None else _LINE_S
        if time.monotonic() - self._drawn >= wait:
            self._draw(state, trial)

    def playoff(self, state: RunState, count: int) -> None:
        """Say what happens now."""
        if count == 1:
            self._print("measuring the winner again")
        else:
            self._print(f"measuring {count} finalists again, in turns")

    def beside(self) -> Mapping[str, Callable[[], float | None]]:
        """What was given."""
        return self.sampled

    def finished(self, state: RunState, summary: Summary) -> None:
        """Stop drawing; the verb prints the summary."""
        self.close()

    def close(self) -> None:
        """Stop drawing."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, text: str) -> None:
        self.console.print(Text(harmless_lines(text)), soft_wrap=True)

    def _draw(self, state: RunState, trial: Trial) -> None:
        self._drawn = time.monotonic()
        if self._live is None:
            self._print(self._line(state, trial))
        else:
            self._live.update(self._panel(state, trial), refresh=True)

    def _line(self, state: RunState, trial: Trial) -> str:
        total = "" if state.budget.n_trial is None else f"/{state.budget.n_trial}"
        eta = "" if state.eta is None else f", ETA {clock(state.eta)}"
        failed = f", {state.failed} failed" if state.failed else ""
        return (
            f"trial {state.valid}{total}: best {self._speed(state, state.best_seconds)}, "
            f"current {self._speed(state, trial.result.median)}, "
            f"{clock(state.budget.elapsed)}{eta}{failed}"
        )

    def _panel(self, state: RunState, trial: Trial) -> Group:
        grid = Table.grid(padding=(0, 2))
        default = None if state.default is None else state.seconds(state.default)
        error = trial.result.error
        now = error.kind if error is not None else self._speed(state, trial.result.median)
        rows = [
            ("best", self._speed(state, state.best_seconds)),
            ("current", now + (" (dropped)" if trial.result.dropped else "")),
            ("default", self._speed(state, default)),
        ]
        if self.numpy is not None:
            rows.append(("NumPy", self._figure(self.numpy)))
        if state.failures:
            shown = ", ".join(f"{f.count} x {kind}" for kind, f in state.failures.items())
            rows.append(("failed", shown))
        for name, text in rows:
            grid.add_row(Text(name), Text(harmless(text), style="bold" if name == "best" else ""))
        return Group(self._bar(state), grid)

    def _bar(self, state: RunState) -> Table:
        budget = state.budget
        done, total = state.valid, budget.n_trial
        text = f"{done}" if total is None else f"{done}/{total}"
        share = 0.0 if total is None else done / total
        if budget.timeout is not None:
            share = max(share, budget.elapsed / budget.timeout)
        eta = "" if state.eta is None else f"  ETA {clock(state.eta)}"
        line = Table.grid(padding=(0, 2))
        line.add_row(
            Text("trials"),
            ProgressBar(total=1.0, completed=min(1.0, share), width=30),
            Text(f"{text}  {clock(budget.elapsed)}{eta}"),
        )
        return line

    def _speed(self, state: RunState, seconds: float | None) -> str:
        if seconds is None:
            return "-"
        gflops = state.gflops(seconds)
        return f"{seconds * 1e3:.4g} ms" if gflops is None else self._figure(gflops)

    def _figure(self, gflops: float) -> str:
        # One above the peak says that the peak was disturbed; the playoff measures both again.
        known = self.peak is not None and gflops <= self.peak
        share = f" ({gflops / self.peak:.0%} of the peak)" if self.peak and known else ""
        return f"{gflops:.1f} GFLOP/s{share}"
