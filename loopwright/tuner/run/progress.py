"""`ProgressBar`: one line on the progress of a run, on a terminal of any width."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from loopwright.errors import UsageError
from loopwright.presenting import harmless
from loopwright.tuner.run.budget import clock
from loopwright.tuner.run.interfaces import Monitor, TunerLike
from loopwright.tuner.run.phases import Ticker
from loopwright.tuner.run.state import RunState, Trial
from loopwright.tuner.run.summary import Summary

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython is not loaded to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def shows_progress(verbose: bool | None, callbacks: Iterable[object]) -> bool:
    """Whether a run that is not asked for a display has one: by default on a terminal and in a
    notebook, unless a callback is one."""
    if not (verbose is None or isinstance(verbose, int)):
        raise UsageError(f"verbose is True, False or None, got {verbose!r:.40}")
    if any(getattr(callback, "shows_result", False) for callback in callbacks):
        return False
    if verbose is not None:
        return bool(verbose)
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


class NotebookLine:
    def __init__(self) -> None:
        self._handle: Any = None  # of IPython, which need not be installed

    def show(self, text: str) -> None:
        from loopwright.presenting import html_text

        data = {"text/plain": text, "text/html": html_text(text)}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
#: Seconds between two drawings on a terminal, and between two lines elsewhere.
_DRAW_S, _LINE_S = 0.1, 10.0
#: Seconds between two drawings in a notebook, where each is a message to the browser.
_NOTEBOOK_S = 1.0
#: Columns that are kept for the phase, so that the line does not jump when a phase ends.
_PHASE = 20
#: Least number of columns at which a shortened text makes sense.
_SHORT = 12
#: Columns of the bar: it is left out where fewer are free, and never longer.
_SHORTEST, _LONGEST = 8, 30


class Part(NamedTuple):
    #: Parts of high rank are left out first where the line is too narrow.
    rank: int
    text: str
    #: A shortened text is shown where a good part of it fits.
    shortens: bool = False


class ProgressBar(Monitor):
    """Progress on standard error; see `loopwright.tuner.run.callbacks.progress_bar`.

    Example:
        >>> print(lw.callback.progress_bar(20).shows_result)
        True
    """

    shows_result = True

    def __init__(
        self,
        total: int | None = None,
        prefix: str = "",
        si_prefix: str = "G",
        file: TextIO | None = None,
    ) -> None:
        if si_prefix not in _PREFIXES:
            raise UsageError(
                f"si_prefix {si_prefix!r} is not one of {', '.join(map(repr, _PREFIXES))}"
            )
        self.total, self.prefix, self.si_prefix = total, prefix, si_prefix
        self._file = file
        self._state: RunState | None = None
        self._latest: Trial | None = None
        self._phase = ""
        self._shown = time.monotonic()
        self._console: Console | None = None
        self._live: Live | None = None
        self._notebook: NotebookLine | None = None
        self._notes: list[str] = []
        self._ticker: Ticker | None = None

    def started(self, tuner: TunerLike, state: RunState) -> None:
        self._state = state
        if state.from_log:
            self.note(f"{state.from_log} trials are in the log already")

    def note(self, text: str) -> None:
        self._begin()
        if self._notebook is not None:
            self._notes.append(text)
            self._notebook.show(self._noted(text=""))
            return
        assert self._console is not None
        line = harmless(f"{self._head()}{text}")
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def trial(self, state: RunState, trial: Trial) -> None:
        self._state, self._latest = state, trial
        self._show_if_due()

    def phase(self, text: str, quiet: bool) -> None:
        self._begin()
        assert self._ticker is not None
        self._ticker.quiet(False)
        self._phase = text or self._phase
        if text and self._live is not None:
            self._show_if_due()
        self._ticker.quiet(quiet)

    def playoff(self, state: RunState, count: int) -> None:
        self._state = state
        self._show()

    def finished(self, state: RunState, summary: Summary) -> None:
        if in_notebook():
            self._begin()
        if self._notebook is not None:
            # In one line: the summary is the value of the cell, which shows all of it.
            self._notebook.show(self._noted(summary.line()))
            self.close()
            return
        self.close()
        for line in summary.lines():
            # It may hold the text of an error from a log.
            print(harmless(f"{self._head()}{line}"), file=self._file or sys.stderr, flush=True)

    def close(self) -> None:
        if self._ticker is not None:
            self._ticker.close()
        if self._live is not None:
            self._live.stop()
        self._ticker = self._live = self._console = self._notebook = None
        self._notes = []
        self._phase = ""

    def _begin(self) -> None:
        if self._console is not None:
            return
        from rich.console import Console
        from rich.live import Live

        stream = self._file or sys.stderr
        self._console = Console(file=stream, highlight=False)
        self._ticker = Ticker(self._show_if_due)
        if self._file is None and in_notebook():
            self._notebook = NotebookLine()
            return
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return
        # What the user prints meanwhile goes above the line, unless it goes elsewhere.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=stream is sys.stderr,
        )
        self._live.start()

    def _show_if_due(self) -> None:
        pause = _LINE_S if self._live is None else _DRAW_S
        if time.monotonic() - self._shown >= (pause if self._notebook is None else _NOTEBOOK_S):
            self._show()

    def _show(self) -> None:
        self._begin()
        self._shown = time.monotonic()
        assert self._console is not None
        if self._live is not None:
            state, total = self._state, self._total()
            share = None if state is None or not total else min(1.0, state.valid / total)
            line = line_with_bar(self._parts(), share, self._console.width, self.prefix)
            self._live.update(line, refresh=True)
            return
        text = " | ".join(part.text for part in self._parts() if part.text.strip())
        if self._notebook is not None:
            self._notebook.show(self._noted(text))
            return
        self.note(text)

    def _noted(self, text: str) -> str:
        lines = [*self._notes, text] if text else self._notes
        return "\n".join(f"{self._head()}{line}" for line in lines)

    def _parts(self) -> list[Part]:
        state = self._state
        if state is None:
            return [Part(0, self._phase.strip())]
        seconds = None if self._latest is None else self._latest.result.median
        total = self._total()
        return [
            Part(0, f"{state.valid}" if total is None else f"{state.valid}/{total}"),
            Part(1, f"best {self._speed(state.best_seconds, state.flop)}"),
            Part(5, f"current {self._speed(seconds, state.flop)}"),
            Part(3, clock(state.budget.elapsed)),
            Part(2, "" if state.eta is None else f"ETA {clock(state.eta)}"),
            Part(6, f"{state.failed} failed" if state.failed else ""),
            Part(4, self._phase.ljust(_PHASE)),
        ]

    def _total(self) -> int | None:
        state = self._state
        total = None if state is None else state.total
        asked = self.total if state is None or state.budget.n_trial is None else None
        return min((n for n in (total, asked) if n is not None), default=None)

    def _head(self) -> str:
        return f"{self.prefix} " if self.prefix else ""

    def _speed(self, seconds: float | None, flop: int) -> str:
        if seconds is not None and not flop:
            return f"{seconds * 1e3:.4g} ms"
        unit = f"{self.si_prefix}FLOP/s"
        if seconds is None:
            return f"- {unit}"
        return f"{flop / seconds / _PREFIXES[self.si_prefix]:.2f} {unit}"


def line_with_bar(
    parts: Sequence[Part], share: float | None, width: int, prefix: str = ""
) -> RenderableType:
    """One line of at most ``width`` columns, with a bar of a share where there is room for one."""
    from rich.cells import cell_len
    from rich.progress_bar import ProgressBar as Bar
    from rich.table import Table
    from rich.text import Text

    text = fitted([Part(0, prefix), *parts], width)
    room = min(_LONGEST, width - cell_len(text) - 2)
    if share is None or room < _SHORTEST:
        return Text(text, no_wrap=True, overflow="ellipsis")
    line = Table.grid(padding=(0, 2, 0, 0))
    bar = Bar(total=1.0, completed=share, width=room)
    rest = Text(text.removeprefix(prefix).lstrip(), no_wrap=True)
    if prefix:
        line.add_row(Text(prefix, no_wrap=True), bar, rest)
    else:
        line.add_row(bar, rest)
    return line


def fitted(parts: Sequence[Part], width: int) -> str:
    """The parts as one line of at most ``width`` columns: those of high rank are left out first."""
    from rich.cells import cell_len, set_cell_size

    kept = [part for part in parts if part.text]
    while len(kept) > 1 and (over := cell_len(_joined(kept)) - width) > 0:
        at = max(range(len(kept)), key=lambda i: kept[i].rank)
        room = cell_len(kept[at].text) - over
        if kept[at].shortens and room >= _SHORT:
            text = set_cell_size(kept[at].text, room - 1).rstrip() + "…"
            kept[at] = kept[at]._replace(text=text)
            break
        del kept[at]
    text = _joined(kept)
    return text if cell_len(text) <= width else set_cell_size(text, width).rstrip()


def _joined(parts: Sequence[Part]) -> str:
    return "  ".join(part.text for part in parts)
