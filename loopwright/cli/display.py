"""The live display of ``loopwright tune``; plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from loopwright import tuner as tuning
from loopwright.cli.console import harmless, harmless_lines

#: Seconds between two lines where there is no terminal.
_LINE_S = 10.0


class Display(tuning.Monitor):
    """Trials, current and best speed, share of the peak and NumPy, both in GFLOP/s, ETA and
    failures. It is never drawn while a kernel is timed, since that would disturb it.
    """

    shows_result = True

    def __init__(
        self,
        console: Console,
        peak: float | None,
        numpy: float | None,
        refresh_s: float = 0.2,
        sampled: Mapping[str, Callable[[], float | None]] | None = None,
    ) -> None:
        self.console, self.peak, self.numpy, self.refresh_s = console, peak, numpy, refresh_s
        self.sampled, self.noted = dict(sampled or {}), list[str]()
        self._live: Live | None = None
        self._state: tuning.RunState | None = None
        self._latest: tuning.Trial | None = None
        self._drawn, self._phase = time.monotonic(), ""
        self._ticker = tuning.Ticker(self._draw_if_due)

    def started(self, tuner: tuning.TunerLike, state: tuning.RunState) -> None:
        self._state = state
        if state.from_log or state.failed:
            one = state.from_log == 1
            count = f"{state.from_log} trial{'' if one else 's'}, which count{'s' if one else ''}"
            failed = f"{state.failed} failed trial{'s' * (state.failed != 1)}, not tried again"
            parts = [count] * bool(state.from_log) + [failed] * bool(state.failed)
            self._print(f"resuming: the log has {', and '.join(parts)}")

    def note(self, text: str) -> None:
        self.noted.append(text)
        self._print(text)

    def trial(self, state: tuning.RunState, trial: tuning.Trial) -> None:
        self._state, self._latest = state, trial
        self._draw_if_due()

    def phase(self, text: str, quiet: bool) -> None:
        """Draw anew if it is time, now and, if nothing is timed, while the phase lasts."""
        console = self.console
        if self._live is None and console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._ticker.quiet(False)
        self._phase = text or self._phase
        if text and self._live is not None:
            self._draw_if_due()
        self._ticker.quiet(quiet)

    def playoff(self, state: tuning.RunState, count: int) -> None:
        many = f"measuring {count} finalists again, in turns"
        self._print("measuring the winner again" if count == 1 else many)

    def beside(self) -> Mapping[str, Callable[[], float | None]]:
        return self.sampled

    def finished(self, state: tuning.RunState, summary: tuning.Summary) -> None:
        self.close()

    def close(self) -> None:
        self._ticker.close()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, text: str) -> None:
        self.console.print(Text(harmless_lines(text)), soft_wrap=True)

    def _draw_if_due(self) -> None:
        wait = self.refresh_s if self._live is not None else _LINE_S
        if time.monotonic() - self._drawn < wait:
            return
        self._drawn = time.monotonic()
        if self._live is None:
            self._print(self._line())
        else:
            self._live.update(self._panel(), refresh=True)

    def _line(self) -> str:
        state = self._state
        if state is None:
            return self._phase
        total = "" if state.total is None else f"/{state.total}"
        eta = "" if state.eta is None else f", ETA {tuning.clock(state.eta)}"
        failed = f", {state.failed} failed" if state.failed else ""
        phase = f", {self._phase}" if self._phase else ""
        best, elapsed = self._speed(state, state.best_seconds), tuning.clock(state.budget.elapsed)
        speeds = f"best {best}, current {self._current(state)}"
        return f"trial {state.valid}{total}: {speeds}, {elapsed}{eta}{failed}{phase}"

    def _current(self, state: tuning.RunState) -> str:
        if self._latest is None:
            return "-"
        result = self._latest.result
        if result.error is not None:
            return result.error.kind
        return self._speed(state, result.median) + (" (dropped)" if result.dropped else "")

    def _panel(self) -> RenderableType:
        state = self._state
        if state is None:
            return Text(self._phase, no_wrap=True, overflow="ellipsis")
        grid = Table.grid(padding=(0, 2))
        default = None if state.default is None else state.seconds(state.default)
        rows = {
            "best": self._speed(state, state.best_seconds),
            "current": self._current(state),
            "default": self._speed(state, default),
        }
        if self.numpy is not None:
            rows["NumPy"] = self._figure(self.numpy)
        if state.failures:
            failures = state.failures.items()
            rows["failed"] = ", ".join(f"{f.count} x {kind}" for kind, f in failures)
        for name, text in {**rows, "now": self._phase}.items():
            style = "bold" if name == "best" else ""
            cell = Text(harmless(text), style=style, no_wrap=True, overflow="ellipsis")
            grid.add_row(Text(name), cell)
        budget, done, total = state.budget, state.valid, state.total
        count = f"trials   {done}" if total is None else f"trials   {done}/{total}"
        share = done / total if total else 0.0  # no trial is left where all fail
        if budget.timeout is not None:
            share = max(share, budget.elapsed / budget.timeout)
        eta = "" if state.eta is None else f"ETA {tuning.clock(state.eta)}"
        parts = [
            tuning.Part(0, count),
            tuning.Part(2, tuning.clock(budget.elapsed)),
            tuning.Part(1, eta),
        ]
        return Group(tuning.line_with_bar(parts, min(1.0, share), self.console.width), grid)

    def _speed(self, state: tuning.RunState, seconds: float | None) -> str:
        if seconds is None:
            return "-"
        gflops = state.gflops(seconds)
        return f"{seconds * 1e3:.4g} ms" if gflops is None else self._figure(gflops)

    def _figure(self, gflops: float) -> str:
        # One above the peak says that the peak was disturbed; the playoff measures both again.
        is_share = self.peak is not None and gflops <= self.peak
        share = f" ({gflops / self.peak:.0%} of the peak)" if self.peak and is_share else ""
        return f"{gflops:.1f} GFLOP/s{share}"
