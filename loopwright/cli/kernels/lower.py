"""``loopwright lower``: loop nest or code of a workload, before and after its best record."""

from __future__ import annotations

import click

from loopwright.cli.harmless import echo
from loopwright.cli.kernels import workload_kernels
from loopwright.cli.kernels.chosen_record import RecordName, emit_option
from loopwright.cli.workload import find_workload, workload_options
from loopwright.errors import UsageError

#: Beginning of a comment in each text.
_COMMENT = {
    "nest": "#", "llvm": ";", "c": "//", "asm": "#", "opencl": "//", "cuda": "//", "ptx": "//",
    "hip": "//",
}  # fmt: skip


@click.command("lower", short_help="Print the loop nest, before and after the best record.")
@workload_options
@workload_kernels.history_options
@emit_option
@click.option("--python", "as_python", is_flag=True, help="Print the schedules as Python instead.")
def command(
    workload: str,
    params: tuple[str, ...],
    target: str,
    threads: int | None,
    history: tuple[str, ...],
    allow_default: bool,
    record: str | None,
    trial: int | None,
    run: str | None,
    emit: str | None,
    as_python: bool,
) -> None:
    """Print the loop nest of WORKLOAD under its default configuration and, with --history, under
    the best record of a log, or the one that --record names. The nest is what the compiler
    translates: loops, how they run, and what each touches.
    """
    from loopwright import inspection

    if as_python and emit is not None:
        raise UsageError("--python prints a schedule, --emit what it becomes; give one of both")
    resolved = find_workload(workload, params, target, threads)
    name = RecordName(record, trial, run)
    shown = [("default configuration", workload_kernels.default(resolved))]
    tuned = workload_kernels.best(resolved, history, name, allow_default=allow_default, check=False)
    if tuned is not None:
        shown.append((tuned.choice, tuned))
    kind = emit or "nest"
    for title, scheduled in shown:
        echo(f"{_COMMENT[kind]} {title}")
        if as_python:
            echo(scheduled.schedule.as_python())
            continue
        with scheduled.context():
            text = inspection.emit(scheduled.schedule, scheduled.args, resolved.task.target, kind)
        echo(text)
