"""``loopwright report``: a log as a page."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress

import click

from loopwright.cli.harmless import echo
from loopwright.errors import LoopwrightError, UsageError


@click.command("report", short_help="Make a page of a log: curve, knobs, failures, the best.")
@click.argument("log")
@click.argument("other", required=False)
@click.option("-o", "--out", metavar="FILE", help="The page [default: the log's name with .html].")
@click.option("--task", metavar="TEXT", help="Only tasks whose key or name contains this text.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def command(log: str, other: str | None, out: str | None, task: str | None, show: bool) -> None:
    """Write one page of HTML about LOG, or about two logs beside each other.

    The page is one file that needs no network: it can be mailed, archived, or opened from a disk.
    It shows the best so far, where the time went, failures, which knobs matter, the best candidates
    and where all that is from.
    """
    from loopwright.inspection.report import page_of, report_html
    from loopwright.records import open_log

    logs = [open_log(path) for path in ([log] if other is None else [log, other])]
    for read in logs:
        if complaint := read.complaint():
            echo(complaint, err=True)
    path = os.path.splitext(log)[0] + ".html" if out is None else out
    if any(os.path.exists(path) and os.path.samefile(path, read.path) for read in logs):
        raise UsageError(f"-o {path}: that is the log itself; name another file")
    page = page_of(logs, task)
    size = _write(path, report_html(page))
    tasks = f"{page.tasks_total} task{'s' * (page.tasks_total != 1)}"
    records = sum(shown.records for shown in page.logs)
    echo(f"wrote {path} ({size / 1024:.0f} KiB): {records} records, {tasks}")
    if show:
        click.launch(path)


def _write(path: str, text: str) -> int:
    """Replace a file in one step; returns its bytes.

    Raises:
        LoopwrightError: it cannot be written.
    """
    data = text.encode("utf-8")
    folder = os.path.dirname(os.path.abspath(path))
    try:
        if os.path.isdir(path):
            raise LoopwrightError(f"cannot write {path!r}: it is a directory; name a file")
        fd, partial = tempfile.mkstemp(".partial", f".{os.path.basename(path)}.", folder)
        try:
            with open(fd, "wb") as file:
                file.write(data)
            os.chmod(partial, 0o666 & ~_mask())
            os.replace(partial, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(partial)
            raise
    except OSError as error:
        raise LoopwrightError(f"cannot write {path!r}: {error.strerror or error}") from error
    return len(data)


def _mask() -> int:
    """The permissions that new files of this process lack."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
