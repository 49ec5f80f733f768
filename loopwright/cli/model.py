"""``model.onnx [input=1x3x224x224 ...]``: from the words of a command line to a module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loopwright.cli.console import command_line
from loopwright.errors import GraphError, UsageError

if TYPE_CHECKING:
    from loopwright.graph import IRModule, LayoutChoice
    from loopwright.graph.batches.source import BatchSource
    from loopwright.runtime.executors import Model
    from loopwright.target import Target

_Command = TypeVar("_Command", bound="Callable[..., Any]")
#: Extensions of the file of a model, and of a built one.
ONNX, BUILT = ".onnx", ".lw"
_EXTENT = "(?:[0-9]+|[A-WYZa-wyz_]+)"
_SHAPE = re.compile(f"{_EXTENT}(?:[x,]{_EXTENT})*")


@dataclass(frozen=True)
class GivenModel:
    #: The file and the shapes of inputs as they were written.
    words: tuple[str, ...]
    #: The model; with batches that of the first one.
    module: IRModule
    target: Target
    #: Words of --target, --threads, --no-fallback, --max-error and --layouts.
    options: tuple[str, ...]
    #: Largest error of implementations of operators; None: the usual limit.
    max_error: float | None = None
    #: The model of any batch; None without ``--batch``.
    source: BatchSource | None = None
    batches: tuple[int, ...] = ()
    #: Contents of the file of ``--layouts``; None: layouts of `ConvertLayout`.
    layouts: LayoutChoice | None = None

    def with_layouts(self, choice: LayoutChoice | None, path: str) -> GivenModel:
        """The model in the layouts of a file, None if it is not read yet; batches are refused."""
        check_no_batches(path, self.batches)
        options = (*self.options, "--layouts", path)
        return replace(self, layouts=choice, options=options)

    def each(self) -> Iterator[GivenModel]:
        """The model of each batch by itself; the model where there are no batches."""
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

    def limits(self) -> AbstractContextManager[object]:
        from loopwright.lowering.context import PassContext

        if self.max_error is None:
            return nullcontext()
        return PassContext(config={"max_error": self.max_error})

    @property
    def name(self) -> str:
        """The name of the file without its extension."""
        return Path(self.words[0]).stem

    def command(self, verb: str, *options: str) -> str:
        """A command line for this model that can be pasted into a shell."""
        return command_line([verb, *self.words, *self.options, *options])


no_fallback_option = click.option(
    "--no-fallback",
    is_flag=True,
    help="Of a model: refuse nodes that have no kernel, all of them at once, in place of leaving "
    "them to onnx.reference.",
)


max_error_option = click.option(
    "--max-error",
    type=click.FloatRange(0),
    metavar="SHARE",
    help="Of a model: the largest error that an implementation of an operator may have, as a share "
    "of its largest result. 0: none but that of another order of sums, so no Winograd; 1e-4: "
    "Winograd with larger tiles, too [default: 1e-5].",
)
finalists_option = click.option(
    "--finalists",
    type=click.IntRange(1),
    metavar="N",
    help="Of a model: let the N fastest records of each kernel, and its default, take turns inside "
    "runs of the model, and build what is fastest there [default: the best records].",
)


batch_option = click.option(
    "--batch",
    "batches",
    multiple=True,
    type=click.IntRange(1),
    metavar="N",
    help="Of a model whose inputs have a batch that varies (an extent with a name, as in "
    "image=nx3x224x224): a value of it with kernels of its own. Several may be given.",
)


def layouts_option(verb: str) -> Callable[[_Command], _Command]:
    """The option ``--layouts``; ``verb`` is a sentence about what it does with the file."""
    return click.option(
        "--layouts",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help=f"Of a model: {verb}",
    )


#: Use of layouts that were chosen before, by verbs.
APPLIED_LAYOUTS = (
    "compute convolutions and pools in the layouts of this file, which `loopwright tune --layouts` "
    "wrote [default: channels last where that suits]."
)


def check_no_batches(layouts: str, batches: Sequence[int]) -> None:
    if batches:
        raise UsageError(
            f"--layouts {layouts}: layouts are chosen for known sizes; leave --batch out, and give "
            "the shapes of inputs behind the file"
        )


def is_model(word: str) -> bool:
    """Whether a word names the file of a model rather than a workload."""
    return Path(word).suffix.lower() == ONNX


def refuse_for_model(options: Mapping[str, object]) -> None:
    """Refuse options for workloads alone; values None, False and empty were not given."""
    absent = (None, False, ())
    given = [n for n, value in options.items() if not any(value is x for x in absent)]
    if given:
        raise UsageError(f"{', '.join(given)}: for a workload, not for a model; leave it out")


def refuse_for_workload(options: Mapping[str, object]) -> None:
    """Refuse options for models alone; values None, False and empty were not given."""
    absent = (None, False, ())
    given = [n for n, value in options.items() if not any(value is x for x in absent)]
    if given:
        raise UsageError(f"{', '.join(given)}: for a model, not for a workload; leave it out")


def told_fallbacks(model: Model) -> None:
    """Print the steps of a model that run without a kernel, if any."""
    if not model.host_steps:
        return
    named = ", ".join(f"{name} ({step.by})" for name, step in model.host_steps.items())
    click.echo(f"no kernel: {named}; `loopwright inspect` says why, and what each takes")


def find_model(
    file: str,
    params: Sequence[str],
    target: str = "llvm",
    threads: int | None = None,
    *,
    no_fallback: bool = False,
    max_error: float | None = None,
    batches: Sequence[int] = (),
    layouts: str | None = None,
) -> GivenModel:
    """The model of an ONNX file, with ``params`` such as ``input=1x3x224x224`` in place of the
    shapes that it declares; the other arguments are the values of the options of these names.
    """
    if layouts is not None:
        check_no_batches(layouts, batches)
        given = find_model(
            file, params, target, threads, no_fallback=no_fallback, max_error=max_error
        )
        return given.with_layouts(_layouts(layouts), layouts)
    from loopwright.graph import from_onnx
    from loopwright.graph.batches.source import checked_batches, source_of
    from loopwright.target import Target

    shapes = dict(_shape(word) for word in params)
    if not Path(file).is_file():
        raise UsageError(f"no file {file!r}; name an ONNX model")
    resolved = Target(target if threads is None else f"{target} -num-threads={threads}")
    options = [*(["--target", target] if target != "llvm" else [])]
    options += [] if threads is None else ["--threads", str(threads)]
    options += ["--no-fallback"] if no_fallback else []
    options += [] if max_error is None else ["--max-error", f"{max_error:g}"]
    words = (file, *params)
    if batches:
        several = checked_batches(batches)
        source = source_of(file, shapes, fallback=not no_fallback)
        options += [word for batch in several for word in ("--batch", str(batch))]
        first = source.at(several[0])
        return GivenModel(words, first, resolved, tuple(options), max_error, source, several)
    module = from_onnx(file, shape=shapes, fallback=not no_fallback)
    _check_sizes(file, module)
    return GivenModel(words, module, resolved, tuple(options), max_error)


def _layouts(path: str) -> LayoutChoice:
    from loopwright.graph import LayoutChoice

    if not Path(path).is_file():
        raise UsageError(
            f"--layouts {path}: there is no such file; `loopwright tune --layouts` writes it"
        )
    return LayoutChoice.load(path)


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
        if all(isinstance(n, int) for n in shape):
            continue
        example = "x".join(str(n) if isinstance(n, int) else "1" for n in shape)
        names = ", ".join(str(n) for n in shape if not isinstance(n, int))
        raise GraphError(
            f"{file}: input {param.name!r} is {param.type}, and {names} has no number; give "
            "--batch where it varies, else its shape behind the file, such as "
            f"{param.name}={example}"
        )
