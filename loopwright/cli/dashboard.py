"""``loopwright dashboard``: the report page, live."""

from __future__ import annotations

import os

import click

from loopwright.cli.harmless import echo, harmless


@click.command("dashboard", short_help="Show the report page of logs that grow, in a browser.")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port; 0 (default) takes a free one."
)
@click.option("--task", metavar="TEXT", help="Only tasks whose key or name contains this text.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def command(logs: tuple[str, ...], port: int, task: str | None, show: bool) -> None:
    """Serve the report page of one or several LOGs; new records appear without reloading.

    It can be reached from this machine alone. A LOG need not exist yet. Ctrl-C ends it; a run that
    writes the logs goes on, and is disturbed as little as possible: the page is made again at most
    every second, in a tenth of the time of one core, and by a process of low priority.

    Needs Starlette and uvicorn: pip install 'loopwright[dashboard]'.
    """
    from loopwright.inspection.dashboard import HOST, LiveReport, application, bound_socket, serve
    from loopwright.inspection.growing import check_may_grow

    for log in logs:
        check_may_grow(log)
    report = LiveReport(logs, task)
    application(report)  # what is not installed is said before a port is taken
    with bound_socket(port) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}/"
        echo(harmless(f"{', '.join(logs)} at {url} (Ctrl-C ends it)"))
        os.nice(10)
        if show and click.launch(url):
            echo(f"no browser could be started; open {url} in one", err=True)
        serve(report, listener)
