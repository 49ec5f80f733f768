"""``loopwright run``: check a built kernel on random data, and time it."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from loopwright.cli.console import echo
from loopwright.cli.model import (
    APPLIED_LAYOUTS,
    BUILT,
    batch_option,
    find_model,
    is_model,
    layouts_option,
    no_fallback_option,
    refuse_for_model,
    refuse_for_workload,
    told_fallbacks,
)
from loopwright.cli.options import device_option, force_option
from loopwright.cli.timing import place_of, sampler, waited
from loopwright.errors import UsageError, did_you_mean
from loopwright.files import Kind, Output, check, write
from loopwright.graph.random_inputs import random_inputs
from loopwright.runtime import NDArray
from loopwright.runtime.executors import BatchedModel, Model, load_model

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopwright.records import Json
    from loopwright.runtime import Device
    from loopwright.runtime.executors import GraphExecutor

    Array = npt.NDArray[Any]


#: Ends an archive of outputs.
_COMMENT = b"outputs of loopwright run"
_OUTPUTS = Kind("an archive of outputs", lambda data: data.endswith(_COMMENT))


def is_runnable_model(word: str) -> bool:
    """Whether a word names a model: an ONNX file, or one that ``build`` wrote."""
    return is_model(word) or Path(word).suffix == BUILT


def run_model(
    file: str,
    inputs: Sequence[str],
    output: str | None,
    repeat: int,
    *,
    no_fallback: bool,
    batches: Sequence[int],
    layouts: str | None,
    as_json: bool,
    target: str | None = None,
    force: bool = False,
) -> None:
    """Run a model once, describe or write (``.npz``) its outputs, and time ``repeat`` samples;
    several batches each by itself.

    Inputs that ``name=file.npy`` does not give are random. Without ``batches`` a model of any batch
    runs that of the given inputs, else those that it was built for; outputs of several cannot be
    written.
    """
    if output is not None:
        _check_output(output, force=force)
    model = _model(file, target, no_fallback=no_fallback, batches=batches, layouts=layouts)
    if isinstance(model, Model):
        if batches:
            raise UsageError(f"--batch: {file} was built for one batch; leave it out")
        given = _read(inputs, [v.name for v in model.program.input_values])
        _run_one(file, model, given, output, repeat, force=force, as_json=as_json)
        return
    given = _read(inputs, [v.name for v in model.inputs])
    told = [] if batches or not given else [model.batch_of_named(given)]
    several = tuple(batches) or tuple(told) or model.batches
    if output is not None and len(several) > 1:
        raise UsageError(f"--output {output}: outputs are written of one batch; give --batch once")
    for batch in several:
        title = f"{file} of {model.size} {batch}"
        _run_one(title, model.at(batch), given, output, repeat, force=force, as_json=as_json)


def _run_one(
    file: str,
    model: Model,
    given: Mapping[str, Array],
    output: str | None,
    repeat: int,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Run a model of one batch, as `run_model` does."""
    from loopwright.runtime import BenchmarkResult

    place = place_of(model)
    executor = model.executor()
    executor.run(**{**random_inputs(model.program), **given})
    outputs = dict(zip(model.program.output_names, _outputs(executor), strict=True))
    if output is not None:
        _write(Path(output), outputs, force=force)
    with place.held():
        sample = sampler(waited(executor))
        times = BenchmarkResult(tuple(sample() for _ in range(repeat)))
    if as_json:
        told = {name: _described(a) for name, a in outputs.items()}
        click.echo(json.dumps({"outputs": told, **place.to_json(), "times": times.results}))
        return
    echo(f"{file}, {place}")
    random = [v for v in executor.get_input_info()[0] if v not in given]
    if random:
        echo(f"inputs:  random data for {', '.join(random)}; --input NAME=FILE.npy gives others")
    for name, a in outputs.items():
        echo(f"outputs: {name} {_in_words(_described(a))}")
    told_fallbacks(model)
    click.echo(f"time:    {times}")


def _model(
    file: str,
    target: str | None,
    *,
    no_fallback: bool,
    batches: Sequence[int],
    layouts: str | None,
) -> Model | BatchedModel:
    from loopwright.graph import compile as compile_model

    if not is_model(file):
        for option, value in {"--layouts": layouts, "--target": target}.items():
            if value is not None:
                raise UsageError(f"{option} {value}: {file} is built already; leave it out")
        return load_model(file)
    given = find_model(
        file, (), target or "llvm", no_fallback=no_fallback, batches=batches, layouts=layouts
    )
    if given.source is not None:
        return compile_model(given.source, given.target, batches=given.batches)
    return compile_model(given.module, given.target, layouts=given.layouts)


def _read(words: Sequence[str], known: Sequence[str]) -> dict[str, Array]:
    """The arrays of ``name=file.npy``, by name."""
    found = {}
    for word in words:
        name, separator, path = word.partition("=")
        if not separator or not path:
            raise UsageError(f"--input {word!r}: write it as name=file.npy")
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"the model has no input {name!r}{hint}; it has {', '.join(known)}")
        found[name] = _array(path)
    return found


def _array(path: str) -> Array:
    try:
        with open(path, "rb") as file:
            loaded: Array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise UsageError(f"{path} is no array of NumPy (.npy): {error}") from error
    return loaded


def _outputs(executor: GraphExecutor) -> list[Array]:
    outputs = map(executor.get_output, range(executor.get_num_outputs()))
    return [a.numpy() if isinstance(a, NDArray) else a for a in outputs]


def _check_output(output: str, *, force: bool) -> None:
    """Refuse a file for outputs that cannot be written, before a model is built."""
    if Path(output).suffix != ".npz":
        raise UsageError(
            f"--output {output}: outputs are written as NumPy's .npz; name such a file"
        )
    check((Path(output), _OUTPUTS), force=force)


def _write(path: Path, outputs: Mapping[str, Array], *, force: bool) -> None:
    archive = io.BytesIO()
    np.savez(archive, **outputs)  # type: ignore[arg-type]
    with zipfile.ZipFile(archive, "a") as file:
        file.comment = _COMMENT
    write(Output(path, archive.getvalue(), _OUTPUTS), force=force)


def _described(a: Array) -> dict[str, Json]:
    """Statistics of an array, without NaN and infinities."""
    numbers = a[np.isfinite(a)] if a.dtype.kind == "f" else a
    return {
        "dtype": a.dtype.name,
        "shape": list(a.shape),
        "min": float(numbers.min()) if numbers.size else None,
        "max": float(numbers.max()) if numbers.size else None,
        "mean": float(numbers.mean()) if numbers.size else None,
        "not_finite": int(a.size - numbers.size),
    }


def _in_words(described: Mapping[str, Any]) -> str:
    text = f"{described['dtype']}{described['shape']}"
    if described["min"] is not None:
        figures = (f"{what} {described[what]:.4g}" for what in ("min", "mean", "max"))
        text += f": {', '.join(figures)}"
    if described["not_finite"]:
        text += f", {described['not_finite']} elements are not finite"
    return text


@click.command("run", short_help="Check and time a file that `build` wrote.")
@click.argument("file", type=click.Path())
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Samples, each about 10 ms of calls; the median is shown.",
)
@device_option
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE",
    help="Of a model: an input from a .npy file of NumPy; those that are not given are random.",
)
@click.option(
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="Of a model: write its outputs to this .npz file of NumPy, as output_0, output_1, ...",
)
@force_option
@click.option("--target", help="Of an ONNX file: what it is built for [default: llvm].")
@no_fallback_option
@batch_option
@layouts_option(APPLIED_LAYOUTS)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(
    file: str,
    repeat: int,
    device: str | None,
    inputs: tuple[str, ...],
    output: str | None,
    force: bool,
    target: str | None,
    no_fallback: bool,
    batches: tuple[int, ...],
    layouts: str | None,
    as_json: bool,
) -> None:
    """Run the kernel in FILE once on random inputs, check the outputs, and time it.

    They are compared with the reference of the workload that `build` wrote into FILE, or with its
    expression where it is no operator. Where neither is known, they must be finite.

    FILE may be a model, model.lw of `build`, or model.onnx, which then is built first. It runs once
    on the inputs that are given, and is timed.
    """
    if is_runnable_model(file):
        refuse_for_model({"--device": device})
        run_model(
            file,
            inputs,
            output,
            repeat,
            no_fallback=no_fallback,
            batches=batches,
            layouts=layouts,
            as_json=as_json,
            target=target,
            force=force,
        )
        return
    for_models = {"--no-fallback": no_fallback, "--batch": batches, "--layouts": layouts}
    refuse_for_workload({**for_models, "--target": target})
    if inputs or output is not None:
        raise UsageError("--input and --output are for models; a kernel runs on random data")
    from loopwright import runtime
    from loopwright.cli import kernel_files, schedules
    from loopwright.runtime.artifacts.kinds import artifact_kind

    module = runtime.load_module(file.removesuffix(".json"))
    function = module[module.entry_name]
    arrays = schedules.random_arguments(module)
    specs = next(
        f["args"] for f in module.artifact.manifest["functions"] if f["name"] == function.name
    )
    place = _place(artifact_kind(module.artifact.kind).device, device)
    given = schedules.on_device(arrays, place)
    function(*given)
    ran = arrays if given is arrays else [a.numpy() for a in given]
    checked = kernel_files.check(file, module, ran)
    on_cpu = place == runtime.cpu()
    threads = schedules.threads_of(module) if on_cpu else None
    with (
        schedules.alone(place),
        runtime.pinned(threads) if on_cpu else nullcontext(),
    ):
        times = runtime.measure_windows(function.bind(*given), windows=repeat)
    result = runtime.BenchmarkResult(tuple(times))
    if as_json:
        click.echo(
            json.dumps(
                {
                    "function": function.name,
                    "args": specs,
                    "outputs": checked,
                    "threads": threads,
                    "device": str(place),
                    "times": times,
                }
            )
        )
        return
    shapes = ", ".join(f"{s['name']}: {s['dtype']}{s['shape']}" for s in specs)
    echo(f"{function.name}({shapes}), {schedules.where(module, place)}")
    click.echo(f"outputs: {checked}")
    click.echo(f"time:    {result}")


def _place(kind: str, wanted: str | None) -> Device:
    """The device for code of a kind: the named one, or the first; an unusable one is refused."""
    from loopwright import runtime

    place = runtime.device(wanted or kind)
    if place.name != kind:
        raise UsageError(f"--device {wanted}: the kernel is for devices of type {kind}; name one")
    place.require()
    return place
