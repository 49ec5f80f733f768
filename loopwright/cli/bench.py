"""``loopwright bench``: default, tuned and NumPy, or ONNX Runtime, side by side in one run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from loopwright.cli import options as cli
from loopwright.cli.console import announce, echo
from loopwright.cli.model import ModelOptions, ModelSubject, SubjectOptions, print_fallbacks
from loopwright.cli.tables import TextColumn, print_table
from loopwright.cli.workload import WorkloadSubject
from loopwright.errors import UsageError
from loopwright.records import Json, spread_text

if TYPE_CHECKING:
    from loopwright.graph import CompiledModel
    from loopwright.inspection import Contestant, CpuLimits, DeviceLimits


#: Columns that are not ours.
NUMPY, _ONNX_RUNTIME = "NumPy", "ONNX Runtime"


@cli.verb("bench")
def bench_command(
    *,
    subject: SubjectOptions,
    history: cli.HistoryOptions,
    record: cli.RecordOptions,
    rounds: int = cli.option(
        "--rounds N",
        "Rounds in which each is timed in turn; more make the interval of a gain narrower.",
        type=click.IntRange(3),
        shown=20,
    ),
    device: str | None = cli.device_option(of="workload"),
    model: ModelOptions,
    as_json: bool = cli.json_option("Print JSON instead of a table."),
) -> None:
    """Time WORKLOAD under its default configuration, under the best record of a log (--history) and
    in NumPy, in turns, beside the fastest arithmetic that the target's instructions do (the FMA
    peak: fused multiply-adds in registers, measured in the same run).

    Kernels for another device than the CPU are compared with each other, with multiply-adds in its
    registers, and with a copy in its memory where its cache cannot hold their arrays.

    "tuned beats default by 31.2 % +- 0.6 %" means that the true gain lies between 30.6 % and 31.8 %
    with a probability of 95 %.

    WORKLOAD may be an ONNX model, model.onnx, with shapes of inputs such as image=1x3x224x224: runs
    of the whole model are timed, beside ONNX Runtime where that is installed.
    """
    if model.finalists is not None and subject.is_model and not history.history:
        raise UsageError("--finalists compares records: name their log with --history")
    resolved = subject.find(model)
    if isinstance(resolved, WorkloadSubject):
        _bench_workload(resolved, history, record, rounds, device, as_json)
        return
    for one in resolved.each():
        _bench_model(one, history, rounds, as_json)


def _bench_workload(
    subject: WorkloadSubject,
    history: cli.HistoryOptions,
    record: cli.RecordOptions,
    rounds: int,
    device: str | None,
    as_json: bool,
) -> None:
    from loopwright import runtime
    from loopwright.inspection import bench, default_schedule
    from loopwright.measure import measured_on
    from loopwright.tuner import flop_of

    task = subject.task
    devices = measured_on(task.target, device or "")
    if len(devices) > 1:
        raise UsageError(f"--device {device}: kernels are compared on one device; name one")
    tuned = history.schedule(task, record, verdicts=False, device=device)
    default = default_schedule(task)
    modules = {"default": default.build(task)}
    if tuned is not None:
        modules["tuned"] = tuned.build(task)
    artifact = modules["default"].artifact
    place, flop = bench.RunPlace(devices[0], bench.threads_of(modules["default"])), flop_of(task)
    limits: CpuLimits | DeviceLimits
    with ExitStack() as stack:
        stack.enter_context(bench.locked(place.device, announce))
        # NumPy's process is started before pinning, which it would inherit.
        numpy = _numpy(subject, place.threads, stack) if place.on_cpu else None
        stack.enter_context(runtime.pinned(place.threads) if place.on_cpu else nullcontext())
        contestants = [
            bench.kernel_contestant(*named, task, place.device) for named in modules.items()
        ]
        contestants += [] if numpy is None else [numpy]
        limited = contestants
        if place.on_cpu:
            limits = bench.CpuLimits(task, default.schedule.dag, artifact, place.threads)
            unit = task.target.vector_unit
            if unit is not None and not unit.is_all_of_this_machine:
                # NumPy may use other instructions than the target.
                limited = [one for one in contestants if one.name != NUMPY]
        else:
            limits = bench.DeviceLimits(task, default.schedule, artifact, place.device)
        peaks, doubt = bench.sample_below_peak(contestants, rounds, flop, limited, limits.peak)
        bandwidth = limits.bandwidth()
    peaks, doubt = (peaks if limits.name else []), limits.doubt or doubt
    peak = statistics.median(peaks) if peaks else None
    rows = [_row(one, flop, peak) for one in contestants if one.times]
    gains = bench.gains_of(contestants, {r["name"]: r["of_peak"] for r in rows}, limits.name)
    if as_json:
        figures = {
            "task": str(task),
            **place.to_json(),
            "flop": flop,
            "fma_peak_gflops": None if peak is None else peak / 1e9,
            "peak": limits.name or None,
            "bandwidth_gbytes": None if bandwidth is None else bandwidth / 1e9,
            "rows": rows,
            "gains": [gain.to_json() for gain in gains],
            "notes": [doubt] if doubt else [],
        }
        click.echo(json.dumps(figures))
        return
    click.echo(f"{task}, {place}, {rounds} samples each, interleaved")
    if tuned is not None:
        echo(tuned.choice)
    _print_rows(rows, limits.name, peaks)
    if bandwidth is not None:
        rates = {row["name"]: limits.nbytes / row["median_s"] for row in rows}
        shares = [f"{name} {rate / bandwidth:.1%}" for name, rate in rates.items()]
        click.echo(f"{limits.memory_name} {bandwidth / 1e9:.1f} GB/s: {', '.join(shares)}")
    for line in [*(gain.text() for gain in gains), *filter(None, [doubt])]:
        click.echo(line)


def _numpy(subject: WorkloadSubject, threads: int, stack: ExitStack) -> Contestant | None:
    from loopwright.cli.numpy_process import NumpyProcess, input_specs
    from loopwright.inspection import Contestant

    if subject.task.reference is None:
        return None
    side = stack.enter_context(NumpyProcess(subject, input_specs(subject), threads))
    if side.problem:
        announce(side.problem)
        return None
    return Contestant(NUMPY, side.sample)


def _row(one: Contestant, flop: int, peak: float | None) -> dict[str, Json]:
    times, rate = one.times, flop / one.median
    seconds = {"median_s": one.median, "min_s": min(times), "max_s": max(times)}
    speed = {"gflops": rate / 1e9, "of_peak": None if peak is None else rate / peak}
    return {"name": one.name, **seconds, **speed, "times": times}


def _print_rows(rows: Sequence[dict[str, Json]], limit: str, peaks: Sequence[float]) -> None:
    last = [""] if peaks else []
    names = [row["name"] for row in rows] + [limit] * bool(peaks)
    spreads = [spread_text(x) for x in (*(row["times"] for row in rows), peaks) if x]
    speeds = [row["gflops"] for row in rows]
    speeds += [statistics.median(peaks) / 1e9] if peaks else []
    shares = [f"{row['of_peak']:.1%}" for row in rows if peaks]
    medians = [row["median_s"] for row in rows]
    columns = [
        TextColumn("", names),
        TextColumn("median", [f"{m * 1e3:.4g} ms" for m in medians] + last, right=True),
        TextColumn("spread", spreads, right=True),
        TextColumn("GFLOP/s", [f"{speed:.1f}" for speed in speeds], right=True),
        *([TextColumn("of peak", shares + last, right=True)] if peaks else []),
        TextColumn("speed-up", _speed_ups(medians) + last, right=True),
    ]
    print_table(columns)


def _speed_ups(medians: Sequence[float]) -> list[str]:
    return [f"{medians[0] / median:.2f}x" for median in medians]


def _bench_model(
    subject: ModelSubject, history: cli.HistoryOptions, rounds: int, as_json: bool
) -> None:
    """Time the default and the tuned form of a model, in turns with ONNX Runtime."""
    from loopwright.graph import random_inputs
    from loopwright.inspection import bench

    models = {"default": replace(subject, layouts=None).compiled_one(cli.HistoryOptions())}
    if history.history or subject.layouts is not None:
        models["tuned"] = subject.compiled_one(history, subject.options.finalists)
    inputs = random_inputs(models["default"].program)
    place = bench.RunPlace.of_model(models["default"])
    runs = {}
    for name, model in models.items():
        executor = model.executor()
        executor.run(**inputs)
        executor.sync()
        runs[name] = bench.model_run(executor)
    other = _onnx_runtime(subject.words[0], place.threads, inputs) if place.on_cpu else None
    runs |= {} if other is None else {_ONNX_RUNTIME: other}
    with place.held(announce):
        contestants = [bench.Contestant(n, bench.model_sampler(run)) for n, run in runs.items()]
        bench.sample_in_turns(contestants, rounds)
    gains = [gain.text() for gain in bench.gains_of(contestants) if gain.gain is not None]
    if as_json:
        times = {one.name: one.times for one in contestants}
        figures = {"model": subject.words[0], **place.to_json(), "times": times, "gains": gains}
        figures |= {"batch": subject.batches[0]} if subject.batches else {}
        click.echo(json.dumps(figures))
        return
    echo(f"{subject.title}, {place}, {rounds} samples each, interleaved")
    print_fallbacks(models["default"])
    if "tuned" in models:
        built = models["tuned"]
        if built.choices:
            click.echo(_recorded(built))
        if subject.layouts is not None:
            echo(f"layouts of tuned: {subject.layouts}")
        if built.inside is not None:
            echo(str(built.inside))
    medians = [one.median for one in contestants]
    columns = [
        TextColumn("", [one.name for one in contestants]),
        TextColumn("median", [f"{median * 1e3:.4g} ms" for median in medians], right=True),
        TextColumn("spread", [spread_text(one.times) for one in contestants], right=True),
        TextColumn("speed-up", _speed_ups(medians), right=True),
    ]
    print_table(columns)
    if other is None and place.on_cpu:
        gains.append(
            f"{_ONNX_RUNTIME} is not installed (pip install onnxruntime), or takes other inputs"
        )
    for line in gains:
        click.echo(line)


def _recorded(model: CompiledModel) -> str:
    """The number of kernels with a record, and of those among them that no playoff verified."""
    choices, inside = model.choices.values(), model.inside is not None
    records = sum(choice.record is not None for choice in choices)
    text = f"{records} of {len(choices)} kernels have a record"
    if unverified := sum(choice.unverified for choice in choices):
        text += f", {unverified} of them unverified: their defaults are built "
        text += "unless they win inside the model" if inside else "(--finalists lets them compete)"
    return text


def _onnx_runtime(
    file: str, threads: int, inputs: Mapping[str, Any]
) -> Callable[[], object] | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(inputs))
