"""``loopwright report | dashboard``: logs as a page, once or live."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import announce, echo, harmless
from loopwright.cli.logs.reading import load_log
from loopwright.cli.model import ModelOptions, find_model
from loopwright.cli.options import TargetOptions, argument, flag, force_option, option, verb
from loopwright.errors import LoopwrightError, RecordError, UsageError
from loopwright.files import Output, check, write
from loopwright.presenting import counted
from loopwright.records import Log

if TYPE_CHECKING:
    from loopwright.graph import ModelTask
    from loopwright.inspection import ModelPage


@verb("report")
def report_command(
    *,
    log: str = argument(),
    other: str | None = argument(required=False),
    out: str | None = option("-o --out FILE", "The page [default: the log's name with .html]."),
    model: str | None = option(
        "--model FILE",
        "An ONNX model whose kernels LOG holds: shows the expected time of a run, and the share "
        "of each kernel.",
    ),
    shapes: tuple[str, ...] = option(
        "--shape INPUT=SHAPE",
        "For the model: the shape of an input, such as image=1x3x224x224, in place of the one that "
        "it declares. Several may be given.",
        multiple=True,
    ),
    layouts: str | None = option(
        "--layouts FILE",
        "For the model: the file of layouts that `loopwright tune --layouts` wrote.",
        type=click.Path(dir_okay=False),
    ),
    task: str | None = option("--task TEXT", "Only tasks whose key or name contains this text."),
    force: bool = force_option(),
    show: bool = flag("--open", "Open the page in a browser."),
) -> None:
    """Write one page of HTML about LOG, or about two logs beside each other.

    The page is one file that needs no network: it can be mailed, archived, or opened from a disk.
    It shows the best so far, where the time went, failures, which knobs matter, the best candidates
    and the provenance of the log; with --model the expected time of a run of that model. It
    replaces an existing page, but no other file without --force.
    """
    from loopwright.inspection import PAGE, page_of, report_html

    logs = [load_log(path, records=False) for path in ([log] if other is None else [log, other])]
    path = os.path.splitext(log)[0] + ".html" if out is None else out
    if any(os.path.exists(path) and os.path.samefile(path, read.path) for read in logs):
        raise UsageError(f"-o {path}: that is the log itself; name another file")
    check((Path(path), PAGE), force=force, error=LoopwrightError)
    if model is None and (shapes or layouts is not None):
        which = "--shape is of inputs of" if shapes else "--layouts is of"
        raise UsageError(f"{which} a model: name it with --model")
    page = page_of(logs, task)
    if model is not None:
        page = replace(page, model=_model_page(model, shapes, logs[0], layouts))
    data = report_html(page).encode()
    write(Output(Path(path), data, PAGE), force=force, error=LoopwrightError)
    records = counted(sum(shown.records for shown in page.logs), "record")
    tasks = counted(page.tasks_total, "task")
    echo(f"wrote {harmless(path)} ({len(data) / 1024:.0f} KiB): {records}, {tasks}")
    if show and click.launch(path):
        announce(f"no browser could be started; open {harmless(path)} in one")


def _model_page(file: str, shapes: Sequence[str], log: Log, layouts: str | None) -> ModelPage:
    """The records of a log for the tuned kernels of an ONNX model, for the target of the log."""
    from loopwright.graph import extract_tasks
    from loopwright.inspection import TunedKernels, model_page
    from loopwright.tuner import flop_of

    target = next((record.target for record in log), None)
    if target is None:
        raise RecordError(f"{log.path}: no record of any kernel of {file}; it is empty")
    # Whatever error a log's implementations have was allowed when it was made.
    options = ModelOptions(layouts=layouts, max_error=1.0)
    model = find_model(file, shapes, TargetOptions(str(target.get("kind"))), options)
    with model.limits():
        tasks = extract_tasks(model.module, model.target, layouts=model.layouts)
    groups: dict[str, list[ModelTask]] = {}
    for one in tasks:
        groups.setdefault(one.group, []).append(one)
    kernels = []
    for group in groups.values():
        plain = min(group, key=lambda one: one.implementation != "definition")
        ways = {one.task.key: one.implementation for one in group}
        kernels.append(TunedKernels(str(plain.task), plain.weight, flop_of(plain.task), ways))
    return model_page(Path(file).name, kernels, log)


@verb("dashboard")
def dashboard_command(
    logs: tuple[str, ...] = argument(nargs=-1, required=True, metavar="LOG..."),
    port: int = option(
        "--port", "Port; 0 (default) takes a free one.", type=click.IntRange(0, 65535), default=0
    ),
    task: str | None = option("--task TEXT", "Only tasks whose key or name contains this text."),
    show: bool = flag("--open", "Open the page in a browser."),
) -> None:
    """Serve the report page of one or several LOGs; new records appear without reloading.

    It can be reached from this machine alone. A LOG need not exist yet. Ctrl-C ends it; a run that
    writes the logs goes on, and is disturbed as little as possible: the page is made again at most
    every second, in a tenth of the time of one core, and by a process of low priority.

    Needs Starlette and uvicorn, and says how to install them here.
    """
    from loopwright import inspection

    for log in logs:
        inspection.check_may_grow(log)
    report = inspection.LiveReport(logs, task)
    inspection.application(report)  # what is not installed is said before a port is taken
    with inspection.bound_socket(port) as listener:
        url = f"http://{inspection.HOST}:{listener.getsockname()[1]}/"
        echo(harmless(f"{', '.join(logs)} at {url} (Ctrl-C ends it)"))
        os.nice(10)
        if show and click.launch(url):
            echo(f"no browser could be started; open {url} in one", err=True)
        inspection.serve(report, listener)
