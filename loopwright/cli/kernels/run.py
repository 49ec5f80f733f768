"""``loopwright run``: check a built kernel on random data, and time it."""

from __future__ import annotations

import json

import click

from loopwright.cli.harmless import echo


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
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(file: str, repeat: int, as_json: bool) -> None:
    """Run the kernel in FILE once on random inputs, check the outputs, and time it.

    They are compared with the reference of the workload that `build` wrote into FILE. Where that is
    no operator, they must be finite.
    """
    from loopwright import runtime
    from loopwright.cli.kernels import built_files, workload_kernels
    from loopwright.cli.workload import counted

    module = runtime.load_module(file.removesuffix(".json"))
    function = module[module.entry_name]
    arrays = workload_kernels.random_arguments(module)
    specs = next(
        f["args"] for f in module.artifact.manifest["functions"] if f["name"] == function.name
    )
    function(*arrays)
    checked = built_files.check(file, module, arrays)
    threads = workload_kernels.threads_of(module)
    with workload_kernels.alone(), runtime.pinned(threads):
        times = runtime.measure_windows(function.bind(*arrays), windows=repeat)
    result = runtime.BenchmarkResult(tuple(times))
    if as_json:
        click.echo(
            json.dumps(
                {
                    "function": function.name,
                    "args": specs,
                    "outputs": checked,
                    "threads": threads,
                    "times": times,
                }
            )
        )
        return
    shapes = ", ".join(f"{s['name']}: {s['dtype']}{s['shape']}" for s in specs)
    echo(f"{function.name}({shapes}), {counted(threads)}")
    click.echo(f"outputs: {checked}")
    click.echo(f"time:    {result}")
