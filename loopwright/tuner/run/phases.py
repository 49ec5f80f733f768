"""Phases of a run in words, for people who wait for it, and messages when nothing has happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from loopwright.measure import Measurer, MeasurerLike

if TYPE_CHECKING:
    from loopwright.tuner.run.interfaces import Monitor


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
        if self._entered:
            self._entered[-1] = (text, self._entered[-1][1])
            self._tell()

    def measuring(self, name: str) -> None:
        self._measuring = name
        self._tell()

    def note(self, text: str) -> None:
        for monitor in self._monitors:
            monitor.note(text)

    def _tell(self) -> None:
        outer, quiet = self._entered[-1] if self._entered else ("", False)
        inner = _WORDS.get(self._measuring, self._measuring)
        if inner:
            quiet = self._measuring in _QUIET
        if inner and outer == MEASURING:
            outer = ""
        text = ": ".join(filter(None, (outer, inner)))
        for monitor in self._monitors:
            monitor.phase(text, quiet)


class Ticker:
    """Calls a function every half second while a quiet phase lasts, on a thread that sleeps in all
    other phases: its drawing must not disturb what is timed."""

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
        try:
            self._draw()
        except OSError:
            return False  # the terminal is gone, which the run itself meets when it prints next
        return True


#: Seconds without progress before a message; the next comes after twice as long, and so on.
STALL_S = 60.0


class StallWatch:
    """Announces in one line what a run waits for when there was no progress for ``after`` seconds.

    Its thread looks four times in that time, so that it does not disturb what is timed.
    """

    def __init__(
        self,
        measurer: MeasurerLike,
        recorded: Callable[[], int],
        announce: Callable[[str], None],
        after: float = STALL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._measurer, self._recorded, self._announce = measurer, recorded, announce
        self._after, self._clock = after, clock
        self._waiting: list[str] = []
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen = (0, 0)
        self._since = clock()
        self._next = after

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Declare that the block may take long, and what it waits for; if that is empty, the
        measurer is asked."""
        if not self._waiting:
            self._since, self._next = self._clock(), self._after
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)
                self._thread.start()
        self._waiting.append(what)
        try:
            yield
        finally:
            self._waiting.pop()

    def look(self) -> None:
        waiting, now, measurer = self._waiting[-1:], self._clock(), self._measurer
        # Both change with any progress: a trial is recorded, a process has answered.
        answered = measurer.answered if isinstance(measurer, Measurer) else 0
        seen = (self._recorded(), answered)
        if not waiting or seen != self._seen:
            self._seen, self._since, self._next = seen, now, self._after
            return
        idle = now - self._since
        if idle < self._next:
            return
        self._next = 2.0 * idle
        work = measurer.waiting_for if isinstance(measurer, Measurer) else "the measurer"
        self._announce(f"no progress for {idle:.0f} s: waiting for {waiting[0] or work}")

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(self._after / 4):
            self.look()
