"""The subject of a command line: a workload, or ``model.onnx [input=1x3x224x224 ...]``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import command_line
from loopwright.cli.options import (
    HistoryOptions,
    SubjectOption,
    TargetOptions,
    argument,
    flag,
    option,
)
from loopwright.cli.workload import (
    WorkloadSubject,
    completed_workloads,
    find_workload,
    target_of,
)
from loopwright.errors import GraphError, RecordError, UsageError

if TYPE_CHECKING:
    from loopwright.executors import Model
    from loopwright.graph import BatchSource, CompiledBatches, CompiledModel, IRModule, LayoutChoice
    from loopwright.target import Target

#: Extensions of the file of a model, and of a built one.
ONNX, BUILT = ".onnx", ".lw"
_EXTENT = "(?:[0-9]+|[A-WYZa-wyz_]+)"
_SHAPE = re.compile(f"{_EXTENT}(?:[x,]{_EXTENT})*")


@dataclass(frozen=True)
class ModelOptions:
    no_fallback: bool = flag(
        "--no-fallback",
        "For a model: refuse nodes that have no kernel, naming all of them, instead of leaving "
        "them to onnx.reference.",
        of="model",
    )
    batches: tuple[int, ...] = option(
        "--batch N",
        "For a model whose batch has a name, as in image=nx3x224x224: a batch size that gets "
        "kernels of its own. Several may be given.",
        of="model",
        multiple=True,
        type=click.IntRange(1),
    )
    layouts: str | None = option(
        "--layouts FILE",
        "For a model: compute convolutions and pools in the layouts of this file, which "
        "`loopwright tune --layouts` wrote [default: channels last where that suits].",
        of="model",
        type=click.Path(dir_okay=False),
    )
    finalists: int | None = option(
        "--finalists N",
        "For a model: let the N fastest records of each kernel, and its default, take turns "
        "inside runs of the model, and build what is fastest there [default: the best records].",
        of="model",
        type=click.IntRange(1),
    )
    max_error: float | None = option(
        "--max-error SHARE",
        "For a model: the largest error that an implementation of an operator may have, as a "
        "share of its largest result. 0: only that of another order of sums, so no Winograd; "
        "1e-4: Winograd with larger tiles, too [default: 1e-5].",
        of="model",
        type=click.FloatRange(0),
    )

    def words(self) -> list[str]:
        """These options as they are written in a command line, defaults left out."""
        words = ["--no-fallback"] if self.no_fallback else []
        words += [] if self.max_error is None else ["--max-error", f"{self.max_error:g}"]
        words += [word for batch in self.batches for word in ("--batch", str(batch))]
        return words if self.layouts is None else [*words, "--layouts", self.layouts]


@dataclass(frozen=True)
class ModelSubject:
    words: tuple[str, ...]  # the file and the shapes of inputs as they were written
    module: IRModule  # the model; with batches that of the first one
    target: Target
    option_words: tuple[str, ...]  # words of --target, --threads and of `ModelOptions`
    options: ModelOptions
    source: BatchSource | None = None  # the model of any batch; None without ``--batch``
    batches: tuple[int, ...] = ()
    layouts: LayoutChoice | None = None  # of the file of ``--layouts``; None: `ConvertLayout`'s

    def each(self) -> Iterator[ModelSubject]:
        if self.source is None:
            yield self
            return
        for batch in self.batches:
            module = self.source.at(batch)
            yield replace(self, module=module, source=None, batches=(batch,))

    @property
    def title(self) -> str:
        """The file, followed by the batch in a model of one."""
        batch = f" of batch {self.batches[0]}" if len(self.batches) == 1 else ""
        return f"{self.words[0]}{batch}"

    @property
    def name(self) -> str:
        return Path(self.words[0]).stem

    def command(self, verb: str, *options: str) -> str:
        """A command line for this model that can be pasted into a shell."""
        return command_line([verb, *self.words, *self.option_words, *options])

    def limits(self) -> AbstractContextManager[object]:
        """Settings under which its operators are implemented."""
        from loopwright.lowering import PassContext

        if self.options.max_error is None:
            return nullcontext()
        return PassContext(config={"max_error": self.options.max_error})

    def compiled_one(self, history: HistoryOptions, finalists: int | None = None) -> CompiledModel:
        """The model without batches, with the kernels of the best records of some logs, or default
        kernels without logs. Logs without a record of it are refused, unless ``allow_default``.
        """
        from loopwright.graph import compile as compile_model

        logs = list(history.history) or None
        with self.limits():
            model = compile_model(
                self.module, self.target, logs, finalists=finalists, layouts=self.layouts
            )
        self._check_records(history, [model])
        return model

    def compiled(
        self, history: HistoryOptions, finalists: int | None = None
    ) -> CompiledModel | CompiledBatches:
        """The model as of `compiled_one`; with batches one of any batch."""
        from loopwright.graph import compile as compile_model

        if self.source is None:
            return self.compiled_one(history, finalists)
        logs = list(history.history) or None
        with self.limits():
            model = compile_model(
                self.source, self.target, logs, finalists=finalists, batches=self.batches
            )
        self._check_records(history, [*model.models.values()])
        return model

    def _check_records(self, history: HistoryOptions, models: Sequence[CompiledModel]) -> None:
        choices = [choice for model in models for choice in model.choices.values()]
        finalists = [f for model in models for place in model.inside or () for f in place.finalists]
        choices += [f.choice for f in finalists if f.choice is not None]
        used = any(choice.record is not None for choice in choices)
        if history.history and not used and not history.allow_default:
            why = next(iter(choices), "it has no kernels")
            raise RecordError(
                f"{', '.join(history.history)}: no record of any kernel of {self.words[0]}, such "
                f"as {why}; tune it, or pass --allow-default"
            )


def is_model(word: str) -> bool:
    return Path(word).suffix.lower() == ONNX


def print_fallbacks(model: Model) -> None:
    if model.host_steps:
        steps = ", ".join(f"{name} ({step.by})" for name, step in model.host_steps.items())
        click.echo(f"no kernel: {steps}; `loopwright inspect` says why, and what each takes")


def find_model(
    file: str,
    shapes: Sequence[str],
    target: TargetOptions,
    options: ModelOptions,
    *,
    new_layouts: bool = False,
) -> ModelSubject:
    """The model of an ONNX file, with ``shapes`` such as ``input=1x3x224x224`` in place of those
    that it declares. With ``new_layouts`` the file of ``--layouts`` is not read: it may be missing.
    """
    from loopwright.graph import LayoutChoice, checked_batches, from_onnx, source_of

    if options.layouts is not None and options.batches:
        raise UsageError(
            f"--layouts {options.layouts}: layouts are chosen for known sizes; leave --batch out, "
            "and give the shapes of inputs behind the file"
        )
    extents = dict(_shape(word) for word in shapes)
    if not Path(file).is_file():
        raise UsageError(f"no file {file!r}; name an ONNX model")
    resolved = target_of(target.target, target.threads)
    layouts, source = None, None
    batches: tuple[int, ...] = ()
    if options.batches:
        batches = checked_batches(options.batches)
        options = replace(options, batches=batches)
        source = source_of(file, extents, fallback=not options.no_fallback)
        module = source.at(batches[0])
    else:
        module = from_onnx(file, shape=extents, fallback=not options.no_fallback)
        _check_sizes(file, module)
    if options.layouts is not None and not new_layouts:
        if not Path(options.layouts).is_file():
            raise UsageError(
                f"--layouts {options.layouts}: there is no such file; `loopwright tune --layouts` "
                "writes it"
            )
        layouts = LayoutChoice.load(options.layouts)
    words = (*target.words(), *options.words())
    return ModelSubject((file, *shapes), module, resolved, words, options, source, batches, layouts)


def _shape(word: str) -> tuple[str, tuple[int | str, ...]]:
    name, _, text = word.rpartition("=")
    if not name or not _SHAPE.fullmatch(text):
        raise UsageError(f"{word!r} is no shape of an input; write it as name=1x3x224x224")
    extents = re.split("[x,]", text)
    return name, tuple(int(n) if n.isdigit() else n for n in extents)


def _check_sizes(file: str, module: IRModule) -> None:
    """Refuse extents that only have names, with the words that give them."""
    for param in module["main"].params:
        shape = getattr(param.type, "shape", ())
        names = [str(n) for n in shape if not isinstance(n, int)]
        if not names:
            continue
        example = "x".join(str(n) if isinstance(n, int) else "1" for n in shape)
        raise GraphError(
            f"{file}: input {param.name!r} is {param.type}, and {', '.join(names)} has no number; "
            "give --batch where it varies, else its shape behind the file, such as "
            f"{param.name}={example}"
        )


def _completed_parameters(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completions after an operator: its parameters that are not given yet."""
    from loopwright import ops

    operator = ops.WORKLOADS.get(ctx.params.get("workload") or "")
    written = {word.partition("=")[0] for word in ctx.params.get("params") or ()}
    names = [] if operator is None else [n for n in operator.params if n not in written]
    return [f"{n}=" for n in names if f"{n}=".startswith(incomplete)]


def refuse_other_options(is_model: bool) -> None:
    """Refuse options of this command line that are for the other kind of subject."""
    mine, other = ("model", "workload") if is_model else ("workload", "model")
    context = click.get_current_context()
    names = [
        max(one.opts, key=len)
        for one in context.command.params
        if isinstance(one, SubjectOption)
        and one.of == other
        and (value := context.params[one.name or ""]) is not None
        and (value is not False and value != ())  # 0 is a value
    ]
    if names:
        raise UsageError(f"{', '.join(names)}: for a {other}, not for a {mine}; leave it out")


@dataclass(frozen=True, kw_only=True)
class SubjectOptions(TargetOptions):
    """The words that name a subject, and its target."""

    workload: str = argument(shell_complete=completed_workloads)
    params: tuple[str, ...] = argument(
        nargs=-1, metavar="[KEY=VALUE]...", shell_complete=_completed_parameters
    )

    @property
    def is_model(self) -> bool:
        return is_model(self.workload)

    def find_workload(self) -> WorkloadSubject:
        return find_workload(self.workload, self.params, self.target, self.threads)

    def find_model(self, options: ModelOptions, *, new_layouts: bool = False) -> ModelSubject:
        target = TargetOptions(self.target, self.threads)
        return find_model(self.workload, self.params, target, options, new_layouts=new_layouts)

    def find(self, options: ModelOptions) -> WorkloadSubject | ModelSubject:
        refuse_other_options(self.is_model)
        return self.find_model(options) if self.is_model else self.find_workload()
