"""Server of the live report on the loopback address, to browsers of this machine alone."""

from __future__ import annotations

import errno
import json
import socket
from typing import TYPE_CHECKING

from loopwright.errors import LoopwrightError
from loopwright.inspection.dashboard.live_report import LiveReport

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

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
    """Web application: the page at ``/``, and updates at ``/live``.

    `LoopwrightError` if Starlette is not installed.
    """
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
    """Listening socket on the loopback address; port 0 takes any that is free.

    `LoopwrightError` if the port is in use, or not allowed.
    """
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
        # Two sockets may be bound to one port until one of them listens.
        made.listen(64)
    except OSError as error:
        made.close()
        reasons = {
            errno.EADDRINUSE: "it is in use; choose another one, or --port 0 for a free one",
            errno.EACCES: "it takes more rights than you have; choose one above 1023, or --port 0",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise LoopwrightError(f"cannot serve on port {port} of {HOST}: {reason}") from error
    return made


def serve(report: LiveReport, listener: socket.socket) -> None:
    """Serve a report until Ctrl-C, and close the listener of `bound_socket`.

    `LoopwrightError` if Starlette or uvicorn is not installed.
    """
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
        f"the dashboard needs Starlette and uvicorn ({error}): pip install "
        "'loopwright[dashboard]'; `loopwright report` makes a page without them"
    )
