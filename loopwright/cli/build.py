"""``loopwright build``: compile a workload with the best record of a log into a file."""

from __future__ import annotations

import click

from loopwright.cli import built_files, kernels
from loopwright.cli.harmless import echo
from loopwright.cli.workload import find_workload, workload_options


@click.command("build", short_help="Compile with the best record, into an object and a manifest.")
@workload_options
@click.option("--history", metavar="LOG", help="Log with the record to build.")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="Shared object where it ends in .so; else object file, and FILE.json is its manifest.",
)
def command(
    workload: str,
    params: tuple[str, ...],
    target: str,
    threads: int | None,
    history: str | None,
    output: str,
) -> None:
    """Compile WORKLOAD into FILE: a shared object (.so), or an object file with its manifest in
    FILE.json.
    """
    resolved = find_workload(workload, params, target, threads)
    tuned = kernels.best(resolved, history)
    module = kernels.compiled(resolved, tuned or kernels.default(resolved))
    path, *others = built_files.write(resolved, module, output)
    echo(tuned.choice if tuned else f"{resolved.task}: default configuration")
    more = "".join(f" and {p}" for p in others)
    click.echo(f"wrote {path} ({path.stat().st_size} bytes){more}")
    click.echo(f"run it: loopwright run {path}")
