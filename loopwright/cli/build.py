"""``loopwright build``: a workload with the best record of a log, or a model, as a file."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click

from loopwright.cli import options as cli
from loopwright.cli.console import announce, command_line, echo
from loopwright.cli.model import BUILT, ModelOptions, SubjectOptions, refuse_other_options
from loopwright.cli.workload import WorkloadSubject
from loopwright.errors import UsageError

#: Endings of libraries of models: shared, and static.
_LIBRARIES = (".so", ".a")


@cli.verb("build")
def build_command(
    *,
    subject: SubjectOptions,
    history: cli.HistoryOptions,
    record: cli.RecordOptions,
    model: ModelOptions,
    verify: bool = cli.flag(
        "--verify",
        "Also time the kernel as it will be called, and say whether it is as fast as when it was "
        "tuned.",
        of="workload",
    ),
    force: bool = cli.force_option(),
    output: str = cli.option(
        "-o --output FILE",
        "The file to write: a shared object where the name ends in .so (this needs a C compiler), "
        "with a header for C, else an object file. For a model: a file whose name ends in .lw.",
        required=True,
        type=click.Path(),
    ),
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
    refuse_other_options(subject.is_model)
    if subject.is_model:
        _build_model(subject, history, model, output, force)
    else:
        _build_workload(subject.find_workload(), history, record, verify, output, force)


def _build_workload(
    subject: WorkloadSubject,
    history: cli.HistoryOptions,
    record: cli.RecordOptions,
    verify: bool,
    output: str,
    force: bool,
) -> None:
    from loopwright import runtime
    from loopwright.cli import kernel_files
    from loopwright.inspection import default_schedule, locked

    if verify and not history.history:
        raise UsageError("--verify compares with a record: name its log with --history")
    kernel_files.check_free(output, force=force)
    if verify and (record.record is not None or record.trial is not None):
        raise UsageError(
            "--verify times the best record; `loopwright records rerun` times one that is named"
        )
    task = subject.task
    tuned = history.schedule(task, record)
    chosen = tuned or default_schedule(task)
    verify = verify and tuned is not None
    with locked(runtime.cpu(), announce) if verify else nullcontext():
        module = chosen.build(task, verify=verify)
    path, *others = kernel_files.write(subject, module, output, force=force)
    echo(tuned.report if tuned else f"{task}: default configuration")
    more = "".join(f" and {p}" for p in others)
    click.echo(f"wrote {path} ({path.stat().st_size} bytes){more}")
    click.echo(f"run it: {command_line(['run', str(path)])}")


def _build_model(
    subject: SubjectOptions,
    history: cli.HistoryOptions,
    options: ModelOptions,
    output: str,
    force: bool,
) -> None:
    from loopwright import files
    from loopwright.executors import HEADER, SAVED
    from loopwright.graph import CompiledModel
    from loopwright.runtime import LIBRARY_FILE

    path, form = Path(output), Path(output).suffix
    if form not in (BUILT, *_LIBRARIES):
        raise UsageError(
            f"-o {output}: a model is written as one file that ends in {BUILT}, or as a library "
            f"for C that ends in {' or '.join(_LIBRARIES)}"
        )
    is_library = form != BUILT
    kinds = [(path, LIBRARY_FILE), (path.with_suffix(".h"), HEADER)]
    files.check(*(kinds if is_library else [(path, SAVED)]), force=force)
    model = subject.find_model(replace(options, no_fallback=True))
    if is_library and len(model.batches) > 1:
        raise UsageError(
            f"-o {output}: a library is of one batch; give --batch once, or write a {BUILT} file"
        )
    if is_library:
        (model,) = model.each()
    compiled = model.compiled(history, options.finalists)
    write = compiled.export_library if is_library else compiled.save
    path = write(output, force=force)
    if history.history or model.source is not None:
        echo(str(compiled.report))
    single = [compiled] if isinstance(compiled, CompiledModel) else [*compiled.models.values()]
    for one in single:
        if one.inside is not None:
            echo(str(one.inside))
    kernels = sum(len(one.kernels) for one in single)
    click.echo(f"wrote {path} ({path.stat().st_size} bytes, {kernels} kernels)")
    if is_library:
        click.echo(f"wrote {path.with_suffix('.h')}")
    click.echo(f"run it: {command_line(['run', str(path)])}")
