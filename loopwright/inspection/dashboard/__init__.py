"""The report page, live: served to a browser of this machine while the logs are written.

It needs Starlette and uvicorn: ``pip install 'loopwright[dashboard]'``.
"""

from loopwright.inspection.dashboard.live_report import LiveReport, State
from loopwright.inspection.dashboard.server import HOST, application, bound_socket, serve

__all__ = ["HOST", "LiveReport", "State", "application", "bound_socket", "serve"]
