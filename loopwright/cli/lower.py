"""``loopwright lower``: the loop nest of a workload, before and after its best record."""

from __future__ import annotations

import click

from loopwright.cli import kernels
from loopwright.cli.harmless import echo
from loopwright.cli.workload import find_workload, workload_options


@click.command("lower", short_help="Print the loop nest, before and after the best record.")
@workload_options
@kernels.history_options
@click.option("--python", "as_python", is_flag=True, help="Print the schedules as Python instead.")
def command(
    workload: str,
    params: tuple[str, ...],
    target: str,
    threads: int | None,
    history: tuple[str, ...],
    allow_default: bool,
    as_python: bool,
) -> None:
    """Print the loop nest of WORKLOAD under its default configuration and, with --history, under
    the best record of a log. The nest is what the compiler translates: loops, how they run, and
    what each touches.
    """
    from loopwright.lowering import lower

    resolved = find_workload(workload, params, target, threads)
    shown = [("default configuration", kernels.default(resolved))]
    tuned = kernels.best(resolved, history, allow_default=allow_default, check=False)
    if tuned is not None:
        shown.append((tuned.choice, tuned))
    for title, scheduled in shown:
        echo(f"# {title}")
        if as_python:
            echo(scheduled.schedule.as_python())
        else:
            echo(str(lower(scheduled.schedule, scheduled.args)))
