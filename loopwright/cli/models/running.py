"""``loopwright run`` of a model: once, on given or random data, then timed."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from loopwright.cli.harmless import echo
from loopwright.cli.models.given_model import BUILT, find_model, is_model, told_fallbacks
from loopwright.cli.models.timing import place_of, sampler, waited
from loopwright.errors import UsageError, did_you_mean
from loopwright.files import Kind, Output, check, write
from loopwright.graph.fallbacks import random_inputs
from loopwright.runtime import NDArray
from loopwright.runtime.executors import BatchedModel, Model, load_model

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopwright.records import Json
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
