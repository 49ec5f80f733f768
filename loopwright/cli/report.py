"""``loopwright report``: a log as a page."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from loopwright.cli.force_option import force_option
from loopwright.cli.harmless import echo, harmless
from loopwright.cli.logs.reading import load_log
from loopwright.errors import LoopwrightError, UsageError
from loopwright.files import Output, check, write


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
@force_option
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def command(
    log: str,
    other: str | None,
    out: str | None,
    model: str | None,
    shapes: tuple[str, ...],
    layouts: str | None,
    task: str | None,
    force: bool,
    show: bool,
) -> None:
    """Write one page of HTML about LOG, or about two logs beside each other.

    The page is one file that needs no network: it can be mailed, archived, or opened from a disk.
    It shows the best so far, where the time went, failures, which knobs matter, the best candidates
    and where all that is from; with --model what it adds up to in a run of that model. It takes the
    place of a page that is there already, and of no other file without --force.
    """
    from loopwright.inspection.report import PAGE, page_of, report_html

    logs = [load_log(path, records=False) for path in ([log] if other is None else [log, other])]
    path = os.path.splitext(log)[0] + ".html" if out is None else out
    if any(os.path.exists(path) and os.path.samefile(path, read.path) for read in logs):
        raise UsageError(f"-o {path}: that is the log itself; name another file")
    check((Path(path), PAGE), force=force, error=LoopwrightError)
    if shapes and model is None:
        raise UsageError("--shape is of inputs of a model: name it with --model")
    if layouts is not None and model is None:
        raise UsageError("--layouts is of a model: name it with --model")
    page = page_of(logs, task)
    if model is not None:
        from loopwright.cli.models.reporting import model_of

        page = replace(page, model=model_of(model, shapes, logs[0], layouts))
    data = report_html(page).encode()
    write(Output(Path(path), data, PAGE), force=force, error=LoopwrightError)
    tasks = f"{page.tasks_total} task{'s' * (page.tasks_total != 1)}"
    count = sum(shown.records for shown in page.logs)
    records = f"{count} record{'s' * (count != 1)}"
    echo(harmless(f"wrote {path} ({len(data) / 1024:.0f} KiB): {records}, {tasks}"))
    if show and click.launch(path):
        echo(harmless(f"no browser could be started; open {path} in one"), err=True)
