"""``loopwright build``: compile a workload with the best record of a log into a file."""

from __future__ import annotations

import click

from loopwright.cli import kernels
from loopwright.cli.harmless import echo
from loopwright.cli.workload import find_workload, workload_options


@click.command("build", short_help="Compile with the best record, into an object and a manifest.")
@workload_options
@click.option("--history", metavar="LOG", help="Log with the record to build.")
@click.option(
    "-o", "--output", required=True, metavar="FILE", help="Object file; FILE.json is its manifest."
)
def command(
    workload: str,
    params: tuple[str, ...],
    target: str,
    threads: int | None,
    history: str | None,
    output: str,
) -> None:
    """Compile WORKLOAD into FILE, an object file, with its manifest in FILE.json."""
    resolved = find_workload(workload, params, target, threads)
    tuned = kernels.best(resolved, history)
    module = kernels.compiled(resolved, tuned or kernels.default(resolved))
    path = module.save(output)
    echo(tuned.choice if tuned else f"{resolved.task}: default configuration")
    click.echo(f"wrote {path} ({len(module.artifact.objects)} bytes) and {path}.json")
    click.echo(f"run it: loopwright run {path}")
