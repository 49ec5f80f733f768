"""``loopwright build``: compile a workload with the best record of a log into a file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopwright.cli import kernel_files, schedules
from loopwright.cli.console import command_line, echo
from loopwright.cli.model import (
    APPLIED_LAYOUTS,
    BUILT,
    GivenModel,
    batch_option,
    finalists_option,
    find_model,
    is_model,
    layouts_option,
    max_error_option,
    no_fallback_option,
    refuse_for_model,
    refuse_for_workload,
)
from loopwright.cli.named_record import RecordName
from loopwright.cli.options import force_option
from loopwright.cli.workload import find_workload, workload_options
from loopwright.errors import RecordError, UsageError
from loopwright.files import check
from loopwright.graph.building import CompiledModel
from loopwright.runtime.executors.model_library import HEADER
from loopwright.runtime.executors.saved import SAVED
from loopwright.runtime.libraries.export import LIBRARY_FILE

if TYPE_CHECKING:
    from loopwright.graph.batches.compiled import CompiledBatches


#: Endings of libraries: shared, and static.
_LIBRARIES = (".so", ".a")


def build_model(
    words: Sequence[str],
    target: str,
    threads: int | None,
    history: Sequence[str],
    output: str,
    *,
    allow_default: bool,
    finalists: int | None,
    max_error: float | None,
    batches: Sequence[int],
    layouts: str | None,
    force: bool,
) -> None:
    """Compile a model into a file, or into a library of its kernels alone."""
    form = Path(output).suffix
    if form not in (BUILT, *_LIBRARIES):
        raise UsageError(
            f"-o {output}: a model is written as one file that ends in {BUILT}, or as a library "
            f"for C that ends in {' or '.join(_LIBRARIES)}"
        )
    kinds = [(Path(output), SAVED)]
    if form != BUILT:
        kinds = [(Path(output), LIBRARY_FILE), (Path(output).with_suffix(".h"), HEADER)]
    check(*kinds, force=force)
    model = find_model(
        words[0],
        words[1:],
        target,
        threads,
        no_fallback=True,
        max_error=max_error,
        batches=batches,
        layouts=layouts,
    )
    if form != BUILT and len(model.batches) > 1:
        raise UsageError(
            f"-o {output}: a library is of one batch; give --batch once, or write a {BUILT} file"
        )
    if form != BUILT:
        (model,) = model.each()
    compiled = compiled_with(model, history, allow_default=allow_default, finalists=finalists)
    write = compiled.save if form == BUILT else compiled.export_library
    path = write(output, force=force)
    if history or model.source is not None:
        echo(str(compiled.report))
    single = [compiled] if isinstance(compiled, CompiledModel) else [*compiled.models.values()]
    for one in single:
        if one.inside is not None:
            echo(str(one.inside))
    size = path.stat().st_size
    kernels = sum(len(one.kernels) for one in single)
    click.echo(f"wrote {path} ({size} bytes, {kernels} kernels)")
    if form != BUILT:
        click.echo(f"wrote {path.with_suffix('.h')}")
    click.echo(f"run it: {command_line(['run', str(path)])}")


def compiled_with(
    model: GivenModel,
    history: Sequence[str],
    *,
    allow_default: bool,
    finalists: int | None = None,
) -> CompiledModel | CompiledBatches:
    """A model with the kernels of the best records of some logs, or default kernels without logs;
    with batches one of any batch. Logs without a record of the model are refused, unless
    ``allow_default``.
    """
    from loopwright.graph import compile as compile_model

    if model.source is None:
        return compiled_one(model, history, allow_default=allow_default, finalists=finalists)
    logs = list(history) or None
    with model.limits():
        compiled = compile_model(
            model.source, model.target, logs, finalists=finalists, batches=model.batches
        )
    _check_records(model, history, [*compiled.models.values()], allow_default=allow_default)
    return compiled


def compiled_one(
    model: GivenModel,
    history: Sequence[str],
    *,
    allow_default: bool,
    finalists: int | None = None,
) -> CompiledModel:
    """A model without batches, as by `compiled_with`."""
    from loopwright.graph import compile as compile_model

    with model.limits():
        compiled = compile_model(
            model.module,
            model.target,
            list(history) or None,
            finalists=finalists,
            layouts=model.layouts,
        )
    _check_records(model, history, [compiled], allow_default=allow_default)
    return compiled


def _check_records(
    model: GivenModel,
    history: Sequence[str],
    built: Sequence[CompiledModel],
    *,
    allow_default: bool,
) -> None:
    """Refuse logs in which no kernel has a record."""
    known = [choice for one in built for choice in one.choices.values()]
    places = [place for one in built for place in one.inside or ()]
    known += [f.choice for p in places for f in p.finalists if f.choice is not None]
    found = any(choice.record is not None for choice in known)
    if history and not found and not allow_default:
        why = next(iter(known), "it has no kernels")
        raise RecordError(
            f"{', '.join(history)}: no record of any kernel of {model.words[0]}, such as {why}; "
            "tune it, or pass --allow-default"
        )


@click.command("build", short_help="Compile the fastest kernel of a log into a file.")
@workload_options
@schedules.history_options
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
    kernel_files.check_free(output, force=force)
    name = RecordName(record, trial, run)
    if verify and name.given:
        raise UsageError(
            "--verify times the best record; `loopwright records rerun` times one that is named"
        )
    tuned = schedules.best(resolved, history, name, allow_default=allow_default)
    chosen = tuned or schedules.default(resolved)
    with schedules.alone() if verify and tuned else nullcontext():
        module = schedules.compiled(resolved, chosen, verify=verify and tuned is not None)
    path, *others = kernel_files.write(resolved, module, output, force=force)
    echo(tuned.report if tuned else f"{resolved.task}: default configuration")
    more = "".join(f" and {p}" for p in others)
    click.echo(f"wrote {path} ({path.stat().st_size} bytes){more}")
    click.echo(f"run it: {command_line(['run', str(path)])}")
