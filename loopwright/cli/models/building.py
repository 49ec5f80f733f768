"""``loopwright build model.onnx -o model.lw``: a whole model as one file, or as a library for C."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopwright.cli import program
from loopwright.cli.harmless import echo
from loopwright.cli.models.given_model import BUILT, GivenModel, find_model
from loopwright.errors import RecordError, UsageError
from loopwright.files import check
from loopwright.graph.building import CompiledModel
from loopwright.runtime.executors.model_library import HEADER
from loopwright.runtime.executors.saved import SAVED
from loopwright.runtime.libraries.export import LIBRARY_FILE

if TYPE_CHECKING:
    from loopwright.graph.batches import CompiledBatches

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
    click.echo(f"run it: {program.command(['run', str(path)])}")


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
