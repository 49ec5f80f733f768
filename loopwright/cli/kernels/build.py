"""``loopwright build``: compile a workload with the best record of a log into a file."""

from __future__ import annotations

from contextlib import nullcontext

import click

from loopwright.cli import program
from loopwright.cli.force_option import force_option
from loopwright.cli.harmless import echo
from loopwright.cli.kernels import built_files, workload_kernels
from loopwright.cli.kernels.chosen_record import RecordName
from loopwright.cli.models.building import build_model
from loopwright.cli.models.given_model import (
    APPLIED_LAYOUTS,
    batch_option,
    finalists_option,
    is_model,
    layouts_option,
    max_error_option,
    no_fallback_option,
    refuse_for_model,
    refuse_for_workload,
)
from loopwright.cli.workload import find_workload, workload_options
from loopwright.errors import UsageError


@click.command("build", short_help="Compile the fastest kernel of a log into a file.")
@workload_options
@workload_kernels.history_options
@no_fallback_option
@batch_option
@layouts_option(APPLIED_LAYOUTS)
@finalists_option
@max_error_option
@click.option(
    "--verify",
    is_flag=True,
    help="Also time the kernel as it will be called, and say whether it is as fast as when it was "
    "tuned.",
)
@force_option
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(),
    metavar="FILE",
    help="The file to write: a shared object where the name ends in .so (this needs a C compiler), "
    "else an object file. Of a model a file that ends in .lw.",
)
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
    no_fallback: bool,
    batches: tuple[int, ...],
    layouts: str | None,
    finalists: int | None,
    max_error: float | None,
    verify: bool,
    force: bool,
    output: str,
) -> None:
    """Compile WORKLOAD into FILE: a shared object (.so), or an object file beside which FILE.json
    says how it is called. `loopwright run FILE` checks and times it.

    With --history the fastest kernel of a log is compiled, without it that of the default
    configuration. A kernel whose answer was never checked is checked first.

    WORKLOAD may be an ONNX model, model.onnx, with shapes of inputs such as image=1x3x224x224. It
    becomes one file, -o model.lw: its program, the code of its kernels, its weights. With --history
    each kernel is that of its best record, or of its default where it has none; with --finalists
    the one that is fastest inside the model. Nodes that have no kernel are always refused, as with
    --no-fallback: a file cannot hold them.
    """
    if is_model(workload):
        refuse_for_model({"--record": record, "--trial": trial, "--run": run, "--verify": verify})
        words = (workload, *params)
        build_model(
            words,
            target,
            threads,
            history,
            output,
            allow_default=allow_default,
            finalists=finalists,
            max_error=max_error,
            batches=batches,
            layouts=layouts,
            force=force,
        )
        return
    refuse_for_workload(
        {
            "--no-fallback": no_fallback,
            "--batch": batches,
            "--layouts": layouts,
            "--finalists": finalists,
            "--max-error": max_error,
        }
    )
    resolved = find_workload(workload, params, target, threads)
    if verify and not history:
        raise UsageError("--verify compares with a record: name its log with --history")
    built_files.check_free(output, force=force)
    name = RecordName(record, trial, run)
    if verify and name.given:
        raise UsageError(
            "--verify times the best record; `loopwright records rerun` times one that is named"
        )
    tuned = workload_kernels.best(resolved, history, name, allow_default=allow_default)
    chosen = tuned or workload_kernels.default(resolved)
    with workload_kernels.alone() if verify and tuned else nullcontext():
        module = workload_kernels.compiled(resolved, chosen, verify=verify and tuned is not None)
    path, *others = built_files.write(resolved, module, output, force=force)
    echo(tuned.report if tuned else f"{resolved.task}: default configuration")
    more = "".join(f" and {p}" for p in others)
    click.echo(f"wrote {path} ({path.stat().st_size} bytes){more}")
    click.echo(f"run it: {program.command(['run', str(path)])}")
