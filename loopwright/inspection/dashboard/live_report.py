"""Report of logs that grow: made again when they changed, and not too often."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loopwright.errors import RecordError
from loopwright.inspection.report.collect import page_of
from loopwright.inspection.report.elements import visible
from loopwright.inspection.report.html import (
    Parts,
    document,
    logs_of,
    parts_of,
    title_of,
    waiting,
)
from loopwright.inspection.report.page_data import Page
from loopwright.records import Log, open_log
from loopwright.version import __version__

#: A report is made again no sooner than so many times the seconds of a core that the last one took,
#: so that a run that is being watched keeps nine tenths of it at least.
_REST = 9.0
#: And no sooner than this, in seconds.
_LEAST_S = 1.0
#: Seconds after which a page asks for what is new.
ASK_S = 2.0


@dataclass(frozen=True)
class State:
    """Report of one state of the logs."""

    stamp: str  # unique name of this state
    page: Page  # its data
    parts: Parts  # parts of the page that depend on it

    def document(self) -> str:
        """Whole page, which polls for updates."""
        return document(self.page, self.parts, live=ASK_S, stamp=self.stamp)

    def head(self) -> dict[str, str]:
        """Updates of a displayed page: text, and text of HTML."""
        titles = {"title": visible(title_of(self.page)), "logs": visible(logs_of(self.page))}
        return {**titles, "nav": self.parts.nav, "main": self.parts.main}


class LiveReport:
    """Current report of some logs; safe for several threads.

    A log may be missing, empty, cut or replaced at any time. While a report is made, and for a
    while after it, the last one is returned. ``task`` selects tasks by a part of their key or name.
    """

    def __init__(self, paths: Sequence[str], task: str | None = None) -> None:
        self.paths = [Path(path) for path in paths]
        self.task = task
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._begun = f"{time.time_ns():x}"
        self._seen: list[tuple[int, ...]] | None = None
        self._next = 0.0
        self._state: State | None = None

    def state(self) -> State:
        """Current report, or the last one while a new one is not due."""
        state = self._state
        if state is not None and not self._lock.acquire(blocking=False):
            return state
        if state is None:
            self._lock.acquire()
        try:
            self._refresh()
            assert self._state is not None
            return self._state
        finally:
            self._lock.release()

    def _refresh(self) -> None:
        """Make the report again where the logs changed and it is due."""
        if time.monotonic() < self._next:
            return
        # Looked at before reading: what is appended meanwhile is found the next time.
        seen = [_looks(path) for path in self.paths]
        if seen == self._seen:
            return
        self._seen = seen
        begin = time.thread_time()
        page, parts = self._made()
        self._state = State(f"{self._begun}.{next(self._numbers)}", page, parts)
        self._next = time.monotonic() + max(_LEAST_S, _REST * (time.thread_time() - begin))

    def _made(self) -> tuple[Page, Parts]:
        logs, missing = [], []
        for path in self.paths:
            try:
                logs.append(open_log(path))
            except RecordError as error:
                missing.append(str(error))
                logs.append(Log(path))
        try:
            page = page_of(logs, self.task)
            return page, parts_of(page, missing)
        except RecordError as error:
            empty = Page(int(time.time()), __version__, (), (), 0)
            return empty, waiting(missing or [str(error)])


def _looks(path: Path) -> tuple[int, ...]:
    """Fingerprint of a file to detect changes; empty while there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
