"""``loopwright analyze``: the kind of every stage of a workload, found from its expression."""

from __future__ import annotations

import json

import click

from loopwright.cli.harmless import echo
from loopwright.cli.kernels import workload_kernels
from loopwright.cli.workload import find_workload, workload_options


@click.command("analyze", short_help="Say what every stage of an expression is.")
@workload_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(
    workload: str, params: tuple[str, ...], target: str, threads: int | None, as_json: bool
) -> None:
    """Say what every stage of WORKLOAD is: a contraction, a window, a reduction of rows or of
    everything, a transpose, a gather or an injective stage; which loops each operand moves with,
    how far in memory, and how often what it reads is used again. All is told from the expression;
    nothing is built.
    """
    from loopwright.space import analyze

    resolved = find_workload(workload, params, target, threads)
    program = getattr(resolved.task, "program", None)
    args = workload_kernels.default(resolved).args if program is None else program.args
    stages = analyze([t for t in args if t.op.input_tensors])
    if as_json:
        click.echo(json.dumps([stage.to_json() for stage in stages]))
        return
    echo(f"{resolved.task}")
    for stage in stages:
        echo(f"\n{stage}")
