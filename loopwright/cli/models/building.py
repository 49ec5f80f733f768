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

if TYPE_CHECKING:
    from loopwright.graph import CompiledModel

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
) -> None:
    """Compile a model, its file and shapes of inputs, into a file or library of kernels alone."""
    form = Path(output).suffix
    if form not in (BUILT, *_LIBRARIES):
        raise UsageError(
            f"-o {output}: a model is written as one file that ends in {BUILT}, or as a library "
            f"for C that ends in {' or '.join(_LIBRARIES)}"
        )
    model = find_model(words[0], words[1:], target, threads, no_fallback=True, max_error=max_error)
    compiled = compiled_with(model, history, allow_default=allow_default, finalists=finalists)
    path = compiled.save(output) if form == BUILT else compiled.export_library(output)
    if history:
        echo(str(compiled.report))
    if compiled.inside is not None:
        echo(str(compiled.inside))
    size = path.stat().st_size
    click.echo(f"wrote {path} ({size} bytes, {len(compiled.kernels)} kernels)")
    if form != BUILT:
        click.echo(f"wrote {path.with_suffix('.h')}")
    click.echo(f"run it: {program.command(['run', str(path)])}")


def compiled_with(
    model: GivenModel,
    history: Sequence[str],
    *,
    allow_default: bool,
    finalists: int | None = None,
) -> CompiledModel:
    """A model whose kernels are those of the best records.

    Args:
        model: the model.
        history: logs or folders of logs; empty: all kernels are the default ones.
        allow_default: accept logs in which no kernel has a record.
        finalists: of `loopwright.compile`.

    Raises:
        RecordError: a log is missing or cannot be read, or holds nothing of this model.
    """
    from loopwright.graph import compile as compile_model

    logs = list(history) or None
    with model.limits():
        compiled = compile_model(model.module, model.target, logs, finalists=finalists)
    known = [*compiled.choices.values()]
    known += [f.choice for p in compiled.inside or () for f in p.finalists if f.choice is not None]
    found = any(choice.record is not None for choice in known)
    if history and not found and not allow_default:
        why = next(iter(compiled.choices.values()), "it has no kernels")
        raise RecordError(
            f"{', '.join(history)}: no record of any kernel of {model.words[0]}, such as {why}; "
            "tune it, or pass --allow-default"
        )
    return compiled
