"""``loopwright run``: check a built kernel on random data, or run a model, and time it."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from loopwright.cli import options as cli
from loopwright.cli.console import announce, echo
from loopwright.cli.model import (
    BUILT,
    ModelOptions,
    find_model,
    is_model,
    print_fallbacks,
    refuse_other_options,
)
from loopwright.errors import UsageError, did_you_mean
from loopwright.files import FileKind, Output, check, write
from loopwright.records import Json

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopwright.executors import BatchedModel, Model

    Array = npt.NDArray[Any]

#: Ends an archive of outputs.
_COMMENT = b"outputs of loopwright run"
_OUTPUTS = FileKind("an archive of outputs", lambda data: data.endswith(_COMMENT))


@cli.verb("run")
def run_command(
    *,
    file: str = cli.argument(type=click.Path()),
    repeat: int = cli.option(
        "--repeat N",
        "Samples, each about 10 ms of calls; the median is shown.",
        type=click.IntRange(1),
        shown=10,
    ),
    device: str | None = cli.device_option(of="workload"),
    inputs: tuple[str, ...] = cli.option(
        "--input NAME=FILE",
        "For a model: an input from a .npy file of NumPy; those that are not given are random.",
        multiple=True,
    ),
    output: str | None = cli.option(
        "--output FILE",
        "For a model: write its outputs to this .npz file of NumPy, as output_0, output_1, ...",
        type=click.Path(),
    ),
    force: bool = cli.force_option(),
    target: str | None = cli.option(
        "--target", "For an ONNX file: what it is built for [default: llvm].", of="model"
    ),
    model: ModelOptions = cli.group(without=("finalists", "max_error")),
    as_json: bool = cli.json_option(),
) -> None:
    """Run the kernel in FILE once on random inputs, check the outputs, and time it.

    They are compared with the reference of the workload that `build` wrote into FILE, or with its
    expression where it is no operator. Where neither is known, they must be finite.

    FILE may be a model, model.lw of `build`, or model.onnx, which then is built first. It runs once
    on the inputs that are given, and is timed.
    """
    runs_model = is_model(file) or Path(file).suffix == BUILT
    refuse_other_options(runs_model)
    if runs_model:
        if output is not None:
            if Path(output).suffix != ".npz":
                raise UsageError(
                    f"--output {output}: outputs are written as NumPy's .npz; name such a file"
                )
            check((Path(output), _OUTPUTS), force=force)
        for title, one, arrays in _models(file, target, model, inputs, output):
            _run_model(title, one, arrays, output, repeat, force, as_json)
        return
    if inputs or output is not None:
        raise UsageError("--input and --output are for models; a kernel runs on random data")
    _run_kernel(file, repeat, device, as_json)


def _run_kernel(file: str, repeat: int, device: str | None, as_json: bool) -> None:
    from loopwright import runtime
    from loopwright.cli import kernel_files
    from loopwright.inspection import bench
    from loopwright.runtime import artifact_kind

    module = runtime.load_module(file.removesuffix(".json"))
    function, arrays = module[module.entry_name], bench.random_arguments(module)
    functions = module.artifact.manifest["functions"]
    args = next(f["args"] for f in functions if f["name"] == function.name)
    kind = artifact_kind(module.artifact.kind).device
    home = runtime.device(device or kind)
    if home.name != kind:
        raise UsageError(f"--device {device}: the kernel is for devices of type {kind}; name one")
    home.require()
    place = bench.RunPlace(home, bench.threads_of(module) if home == runtime.cpu() else 0)
    taken = bench.on_device(arrays, home)
    function(*taken)
    outputs = arrays if taken is arrays else [a.numpy() for a in taken]
    checked = kernel_files.check(file, module, outputs)
    with place.held(announce):
        times = runtime.measure_windows(function.bind(*taken), windows=repeat)
    if as_json:
        figures = {"function": function.name, "args": args, "outputs": checked}
        click.echo(json.dumps({**figures, **place.to_json(), "times": times}))
        return
    shapes = ", ".join(f"{s['name']}: {s['dtype']}{s['shape']}" for s in args)
    echo(f"{function.name}({shapes}), {place}")
    click.echo(f"outputs: {checked}")
    click.echo(f"time:    {runtime.BenchmarkResult(tuple(times))}")


def _models(
    file: str, target: str | None, options: ModelOptions, inputs: Sequence[str], output: str | None
) -> list[tuple[str, Model, dict[str, Array]]]:
    """The model, or that of each batch by itself, with its title and the arrays that are given.
    Without ``--batch`` a model of any batch runs that of the given inputs, else those that it was
    built for.
    """
    from loopwright.executors import Model

    model = _load(file, target, options)
    if isinstance(model, Model):
        if options.batches:
            raise UsageError(f"--batch: {file} was built for one batch; leave it out")
        return [(file, model, _read(inputs, [v.name for v in model.program.input_values]))]
    arrays = _read(inputs, [v.name for v in model.inputs])
    of_arrays = (model.batch_of_named(arrays),) if arrays and not options.batches else ()
    batches = options.batches or of_arrays or model.batches
    if output is not None and len(batches) > 1:
        raise UsageError(f"--output {output}: outputs are written of one batch; give --batch once")
    return [(f"{file} of {model.size} {batch}", model.at(batch), arrays) for batch in batches]


def _load(file: str, target: str | None, options: ModelOptions) -> Model | BatchedModel:
    from loopwright.executors import load_model

    if is_model(file):
        subject = find_model(file, (), cli.TargetOptions(target or "llvm"), options)
        return subject.compiled(cli.HistoryOptions())
    for name, value in (("--layouts", options.layouts), ("--target", target)):
        if value is not None:
            raise UsageError(f"{name} {value}: {file} is built already; leave it out")
    return load_model(file)


def _read(words: Sequence[str], names: Sequence[str]) -> dict[str, Array]:
    arrays = {}
    for word in words:
        name, separator, path = word.partition("=")
        if not separator or not path:
            raise UsageError(f"--input {word!r}: write it as name=file.npy")
        if name not in names:
            hint = did_you_mean(name, names)
            raise UsageError(f"the model has no input {name!r}{hint}; it has {', '.join(names)}")
        try:
            with open(path, "rb") as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, EOFError) as error:
            raise UsageError(f"{path} is no array of NumPy (.npy): {error}") from error
    return arrays


def _run_model(
    title: str,
    model: Model,
    arrays: Mapping[str, Array],
    output: str | None,
    repeat: int,
    force: bool,
    as_json: bool,
) -> None:
    """Run a model once, with random data for other inputs, show or write outputs, and time it."""
    from loopwright.graph import random_inputs
    from loopwright.inspection import bench
    from loopwright.runtime import BenchmarkResult, NDArray

    place = bench.RunPlace.of_model(model)
    executor = model.executor()
    executor.run(**{**random_inputs(model.program), **arrays})
    results = map(executor.get_output, range(executor.get_num_outputs()))
    named = zip(model.program.output_names, results, strict=True)
    outputs = {n: a.numpy() if isinstance(a, NDArray) else a for n, a in named}
    if output is not None:
        archive = io.BytesIO()
        np.savez(archive, **outputs)  # type: ignore[arg-type]
        with zipfile.ZipFile(archive, "a") as file:
            file.comment = _COMMENT
        write(Output(Path(output), archive.getvalue(), _OUTPUTS), force=force)
    with place.held(announce):
        sample = bench.model_sampler(bench.model_run(executor))
        times = BenchmarkResult(tuple(sample() for _ in range(repeat)))
    described = {name: _statistics(array) for name, array in outputs.items()}
    if as_json:
        click.echo(json.dumps({"outputs": described, **place.to_json(), "times": times.results}))
        return
    echo(f"{title}, {place}")
    random = [v for v in executor.get_input_info()[0] if v not in arrays]
    if random:
        echo(f"inputs:  random data for {', '.join(random)}; --input NAME=FILE.npy gives others")
    for name, figures in described.items():
        text = f"outputs: {name} {figures['dtype']}{figures['shape']}"
        if figures["min"] is not None:
            parts = (f"{what} {figures[what]:.4g}" for what in ("min", "mean", "max"))
            text += f": {', '.join(parts)}"
        others = figures["not_finite"]
        echo(text + (f", {others} elements are not finite" if others else ""))
    print_fallbacks(model)
    click.echo(f"time:    {times}")


def _statistics(a: Array) -> dict[str, Json]:
    """Statistics of an array, without NaN and infinities."""
    numbers = a[np.isfinite(a)] if a.dtype.kind == "f" else a
    figures = {
        name: float(getattr(numbers, name)()) if numbers.size else None
        for name in ("min", "max", "mean")
    }
    others = int(a.size - numbers.size)
    return {"dtype": a.dtype.name, "shape": list(a.shape), **figures, "not_finite": others}
