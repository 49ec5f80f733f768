"""Messages about a run that waits, when nothing has happened for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from loopwright.measure import Measurer
from loopwright.measure.interfaces import MeasurerLike

#: Seconds without progress before a message; the next comes after twice as long, and so on.
STALL_S = 60.0


class StallWatch:
    """Watches a run from a thread of its own, since the run itself waits.

    The thread sleeps but for four looks in ``after`` seconds, so that it does not disturb what is
    timed; it calls ``announce`` with one line.
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
        """Declare that the block may take long, and what it waits for."""
        if not self._waiting:
            self._begin()
        self._waiting.append(what)
        try:
            yield
        finally:
            self._waiting.pop()

    def measuring(self) -> AbstractContextManager[None]:
        """Declare that the measurer works in the block, which itself says what it waits for."""
        return self.waiting_for("")

    def look(self) -> None:
        """Announce that nothing has happened since the last look, if that is long enough."""
        waiting, seen, now = self._waiting[-1:], self._progress(), self._clock()
        if not waiting or seen != self._seen:
            self._seen, self._since, self._next = seen, now, self._after
            return
        idle = now - self._since
        if idle < self._next:
            return
        self._next = 2.0 * idle
        self._announce(f"no progress for {idle:.0f} s: waiting for {waiting[0] or self._work()}")

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _progress(self) -> tuple[int, int]:
        """Counters that change with any progress: a trial is recorded, a process has answered."""
        answered = self._measurer.answered if isinstance(self._measurer, Measurer) else 0
        return self._recorded(), answered

    def _work(self) -> str:
        measurer = self._measurer
        return measurer.waiting_for if isinstance(measurer, Measurer) else "the measurer"

    def _begin(self) -> None:
        self._since, self._next = self._clock(), self._after
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while not self._closed.wait(self._after / 4):
            self.look()
