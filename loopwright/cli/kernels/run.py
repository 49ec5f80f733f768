"""``loopwright run``: check a built kernel on random data, and time it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from loopwright.cli.device_option import device_option
from loopwright.cli.force_option import force_option
from loopwright.cli.harmless import echo
from loopwright.cli.models.given_model import (
    APPLIED_LAYOUTS,
    batch_option,
    layouts_option,
    no_fallback_option,
    refuse_for_model,
    refuse_for_workload,
)
from loopwright.cli.models.running import is_runnable_model, run_model
from loopwright.errors import UsageError

if TYPE_CHECKING:
    from loopwright.runtime import Device


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
    from loopwright.cli.kernels import built_files, workload_kernels
    from loopwright.runtime.artifacts.kinds import artifact_kind

    module = runtime.load_module(file.removesuffix(".json"))
    function = module[module.entry_name]
    arrays = workload_kernels.random_arguments(module)
    specs = next(
        f["args"] for f in module.artifact.manifest["functions"] if f["name"] == function.name
    )
    place = _place(artifact_kind(module.artifact.kind).device, device)
    given = workload_kernels.on_device(arrays, place)
    function(*given)
    ran = arrays if given is arrays else [a.numpy() for a in given]
    checked = built_files.check(file, module, ran)
    on_cpu = place == runtime.cpu()
    threads = workload_kernels.threads_of(module) if on_cpu else None
    with (
        workload_kernels.alone(place),
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
    echo(f"{function.name}({shapes}), {workload_kernels.where(module, place)}")
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
