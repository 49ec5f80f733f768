"""Live report of logs that grow, and its server for browsers of this machine."""

from __future__ import annotations

import errno
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright.errors import LoopwrightError, RecordError
from loopwright.extras import install
from loopwright.inspection.report.collect import page_of
from loopwright.inspection.report.html import (
    PageParts,
    document,
    logs_of,
    parts_of,
    title_of,
    waiting,
)
from loopwright.inspection.report.page_data import Page
from loopwright.presenting import harmless_lines
from loopwright.records import Follower, Log, no_log
from loopwright.version import __version__

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


#: A report is made again no sooner than so many times the seconds of a core that the last one took,
#: so that a run that is being watched keeps nine tenths of it at least.
_REST = 9.0
#: And no sooner than this, in seconds.
_LEAST_S = 1.0
#: Seconds after which a page asks for what is new.
ASK_S = 2.0


@dataclass(frozen=True)
class ReportState:
    stamp: str  # unique name of this state
    page: Page  # its data
    parts: PageParts  # parts of the page that depend on it

    def document(self) -> str:
        return document(self.page, self.parts, live=ASK_S, stamp=self.stamp)

    def head(self) -> dict[str, str]:
        """Updates of a displayed page: text, and text of HTML."""
        return {
            "title": harmless_lines(title_of(self.page)),
            "logs": harmless_lines(logs_of(self.page)),
            "nav": self.parts.nav,
            "main": self.parts.main,
        }


class LiveReport:
    """Current report of logs that may be missing, cut or replaced; safe for several threads."""

    def __init__(self, paths: Sequence[str], task: str | None = None) -> None:
        self.paths = [Path(path) for path in paths]
        self.task = task  # selects tasks by a part of their key or name
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._begun = f"{time.time_ns():x}"
        self._seen: list[tuple[int, ...]] | None = None
        self._next = 0.0
        self._state: ReportState | None = None

    def state(self) -> ReportState:
        """Current report, or the last one while a new one is made, or not due."""
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
        if time.monotonic() < self._next:
            return
        # Looked at before reading: what is appended meanwhile is found the next time.
        seen = [_fingerprint(path) for path in self.paths]
        if seen == self._seen:
            return
        self._seen = seen
        begin = time.thread_time()
        logs, missing = [], []
        for path in self.paths:
            try:
                logs.append(_read(path))
            except RecordError as error:
                missing.append(str(error))
                logs.append(Log(path))
        try:
            page = page_of(logs, self.task)
            parts = parts_of(page, missing)
        except RecordError as error:
            page = Page(int(time.time()), __version__, (), (), 0)
            parts = waiting(missing or [str(error)])
        self._state = ReportState(f"{self._begun}.{next(self._numbers)}", page, parts)
        self._next = time.monotonic() + max(_LEAST_S, _REST * (time.thread_time() - begin))


def _read(path: Path) -> Log:
    """The whole lines of a log; a `RecordError` at once for a pipe, which may have no writer."""
    news = Follower(path).look()
    if not news.exists:
        raise no_log(path)
    return news.log


def _fingerprint(path: Path) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


#: The address: other machines cannot reach it.
HOST = "127.0.0.1"
#: Names under which a browser of this machine asks. Any other one in a request's ``Host`` is that
#: of a foreign site whose name was pointed at this address (DNS rebinding).
_NAMES = [HOST, "localhost"]
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def application(report: LiveReport) -> Starlette:
    """The page at ``/``, its updates at ``/live``; a LoopwrightError without Starlette."""
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.gzip import GZipMiddleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware
        from starlette.responses import HTMLResponse, Response
        from starlette.routing import Route
    except ImportError as error:
        raise _missing(error) from error

    def page(request: Request) -> Response:
        return HTMLResponse(report.state().document(), headers=_HEADERS)

    def live(request: Request) -> Response:
        state = report.state()
        if request.headers.get("x-stamp") == state.stamp:
            return Response(status_code=204, headers=_HEADERS)
        head = {"stamp": state.stamp, **state.head()}
        # The data are JSON already.
        text = f'{json.dumps(head)[:-1]}, "data": {state.page.to_json()}}}'
        return Response(text, media_type="application/json", headers=_HEADERS)

    return Starlette(
        routes=[Route("/", page), Route("/live", live)],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=_NAMES, www_redirect=False),
            Middleware(GZipMiddleware, compresslevel=4),
        ],
    )


def bound_socket(port: int) -> socket.socket:
    """Listening loopback socket; port 0: any free one. A LoopwrightError where it is refused."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        # Two sockets may be bound to one port until one of them listens.
        listener.listen(64)
    except OSError as error:
        listener.close()
        reasons = {
            errno.EADDRINUSE: "it is in use; choose another one, or --port 0 for a free one",
            errno.EACCES: "it takes more rights than you have; choose one above 1023, or --port 0",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise LoopwrightError(f"cannot serve on port {port} of {HOST}: {reason}") from error
    return listener


def serve(report: LiveReport, listener: socket.socket) -> None:
    """Serve a report until Ctrl-C, and close the listener of `bound_socket`."""
    try:
        import uvicorn
    except ImportError as error:
        raise _missing(error) from error
    config = uvicorn.Config(
        application(report),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    with listener:
        uvicorn.Server(config).run(sockets=[listener])


def _missing(error: ImportError) -> LoopwrightError:
    return LoopwrightError(
        f"the dashboard needs Starlette and uvicorn ({error}): {install('dashboard')}; "
        "`loopwright report` makes a page without them"
    )
