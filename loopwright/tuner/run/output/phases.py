"""Phases of a run in words, for people who wait for it.

A search of the next round, the fit of a cost model or the computation of a right answer may take
many seconds without a trial. `Phases` tells every monitor when such a step begins and ends;
`Ticker` lets a display draw meanwhile, but never while a kernel is timed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopwright.tuner.run.monitor import Monitor

#: The phase of a run in which its measurer works, which tells phases of its own, if it can.
MEASURING = "measuring"
#: Seconds between two drawings during a phase.
TICK_S = 0.5
#: Phases of a measurer in words for people.
_WORDS = {
    "instantiate": "running the template",
    "build": "compiling candidates",
    "run": "timing",
    "check": "checking an answer",
    "reference": "computing the right answer",
    "wait": "waiting for the machine",
    "cooldown": "resting",
}
#: Phases in which nothing is timed, neither here nor by the process that is waited for.
_QUIET = frozenset({"instantiate", "build", "reference", "cooldown"})


class Phases:
    """The phases that a run is in, the innermost last, which are told to monitors."""

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        self._monitors = monitors
        self._entered: list[tuple[str, bool]] = []
        self._measuring = ""

    @contextmanager
    def entered(self, text: str, quiet: bool = True) -> Iterator[None]:
        """Enter a phase for the block; ``quiet`` means that nothing is timed in it."""
        self._entered.append((text, quiet))
        self._tell()
        try:
            yield
        finally:
            self._entered.pop()
            self._tell()

    def now(self, text: str) -> None:
        """Replace the text of the phase in progress by a more exact one."""
        if self._entered:
            self._entered[-1] = (text, self._entered[-1][1])
            self._tell()

    def measuring(self, name: str) -> None:
        """Note the phase that the measurer has entered; empty: it has left one."""
        self._measuring = name
        self._tell()

    def _tell(self) -> None:
        own, quiet = self._entered[-1] if self._entered else ("", False)
        inner = _WORDS.get(self._measuring, self._measuring)
        if inner:
            quiet = self._measuring in _QUIET
        if inner and own == MEASURING:
            own = ""
        text = ": ".join(filter(None, (own, inner)))
        for monitor in self._monitors:
            monitor.phase(text, quiet)


class Ticker:
    """Calls a function every half second while a quiet phase lasts, on a thread of its own.

    The thread sleeps in all other phases: its drawing must not disturb what is timed.
    """

    def __init__(self, draw: Callable[[], None], every: float = TICK_S) -> None:
        self._draw, self._every = draw, every
        self._lock = threading.Lock()
        self._awake, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def quiet(self, now: bool) -> None:
        """Allow or forbid drawing; when it is forbidden, none goes on after this returns."""
        if not now:
            with self._lock:
                self._awake.clear()
            return
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)
            self._thread.start()
        self._awake.set()

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            self._awake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _tick(self) -> None:
        while True:
            self._awake.wait()
            if self._closed.wait(self._every):
                return
            with self._lock:
                if self._awake.is_set() and not self._closed.is_set() and not self._drawn():
                    return

    def _drawn(self) -> bool:
        """Draw; False where that is no longer possible."""
        try:
            self._draw()
        except OSError:
            return False  # the terminal is gone, which the run itself meets when it prints next
        return True
