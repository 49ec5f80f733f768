"""``loopwright report``: a log as a page."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import replace

import click

from loopwright.cli.harmless import echo, harmless
from loopwright.cli.logs.reading import load_log
from loopwright.errors import LoopwrightError, UsageError


@click.command("report", short_help="Make a page of a log: curve, knobs, failures, the best.")
@click.argument("log")
@click.argument("other", required=False)
@click.option("-o", "--out", metavar="FILE", help="The page [default: the log's name with .html].")
@click.option(
    "--model",
    metavar="FILE",
    help="An ONNX model whose kernels LOG holds: shows the expected time of a run, and the share "
    "of each kernel.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="INPUT=SHAPE",
    help="Of the model: the shape of an input, such as image=1x3x224x224, in place of the one that "
    "it declares. Several may be given.",
)
@click.option(
    "--layouts",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Of the model: the file of layouts in which `loopwright tune --layouts` tuned it.",
)
@click.option("--task", metavar="TEXT", help="Only tasks whose key or name contains this text.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def command(
    log: str,
    other: str | None,
    out: str | None,
    model: str | None,
    shapes: tuple[str, ...],
    layouts: str | None,
    task: str | None,
    show: bool,
) -> None:
    """Write one page of HTML about LOG, or about two logs beside each other.

    The page is one file that needs no network: it can be mailed, archived, or opened from a disk.
    It shows the best so far, where the time went, failures, which knobs matter, the best candidates
    and where all that is from; with --model what it adds up to in a run of that model. It takes the
    place of a page that is there already, and of no other file.
    """
    from loopwright.inspection.report import page_of, report_html

    logs = [load_log(path, records=False) for path in ([log] if other is None else [log, other])]
    path = os.path.splitext(log)[0] + ".html" if out is None else out
    if any(os.path.exists(path) and os.path.samefile(path, read.path) for read in logs):
        raise UsageError(f"-o {path}: that is the log itself; name another file")
    _check_free(path)
    if shapes and model is None:
        raise UsageError("--shape is of inputs of a model: name it with --model")
    if layouts is not None and model is None:
        raise UsageError("--layouts is of a model: name it with --model")
    page = page_of(logs, task)
    if model is not None:
        from loopwright.cli.models.reporting import model_of

        page = replace(page, model=model_of(model, shapes, logs[0], layouts))
    size = _write(path, report_html(page))
    tasks = f"{page.tasks_total} task{'s' * (page.tasks_total != 1)}"
    count = sum(shown.records for shown in page.logs)
    records = f"{count} record{'s' * (count != 1)}"
    echo(harmless(f"wrote {path} ({size / 1024:.0f} KiB): {records}, {tasks}"))
    if show and click.launch(path):
        echo(harmless(f"no browser could be started; open {path} in one"), err=True)


def _check_free(path: str) -> None:
    """See that nothing is at a path but a page that a new one may replace.

    Raises:
        LoopwrightError: there is something else.
    """
    from loopwright.inspection.report import is_report

    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise LoopwrightError(
            f"cannot write {path!r}: there is no folder {folder!r}; make it first"
        )
    if not path or os.path.isdir(path):
        raise LoopwrightError(f"cannot write {path!r}: it is a directory; name a file")
    try:
        taken = os.path.lexists(path) and not is_report(path)
    except OSError as error:
        raise _not_written(path, error) from error
    if taken:
        raise LoopwrightError(
            f"cannot write {path!r}: a file that is no report is there; name another one with -o, "
            "or remove it"
        )


def _write(path: str, text: str) -> int:
    """Replace a file in one step; returns its bytes.

    Raises:
        LoopwrightError: it cannot be written.
    """
    data = text.encode("utf-8")
    folder, name = os.path.split(os.path.realpath(path))
    try:
        fd, partial = tempfile.mkstemp(".partial", f".{name}.", folder)
        try:
            with open(fd, "wb") as file:
                file.write(data)
            os.chmod(partial, 0o666 & ~_mask())
            os.replace(partial, os.path.join(folder, name))
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(partial)
            raise
    except OSError as error:
        raise _not_written(path, error) from error
    return len(data)


def _not_written(path: str, error: OSError) -> LoopwrightError:
    return LoopwrightError(f"cannot write {path!r}: {error.strerror or error}")


def _mask() -> int:
    """The permissions that new files of this process lack."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
