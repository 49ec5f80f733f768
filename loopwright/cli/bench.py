"""``loopwright bench``: default, tuned and NumPy side by side, in one run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from loopwright.cli import schedules
from loopwright.cli.build import compiled_one
from loopwright.cli.console import echo
from loopwright.cli.model import (
    APPLIED_LAYOUTS,
    GivenModel,
    batch_option,
    finalists_option,
    find_model,
    is_model,
    layouts_option,
    max_error_option,
    no_fallback_option,
    refuse_for_model,
    refuse_for_workload,
    told_fallbacks,
)
from loopwright.cli.named_record import RecordName
from loopwright.cli.options import device_option
from loopwright.cli.timing import place_of, sampler, waited
from loopwright.cli.workload import Workload, find_workload, workload_options
from loopwright.errors import UsageError
from loopwright.graph.random_inputs import random_inputs
from loopwright.records import Json, compared
from loopwright.records.reports.spread import spread_text

if TYPE_CHECKING:
    from loopwright.graph import CompiledModel
    from loopwright.measure import PairedGain
    from loopwright.measure.playoff.machine_limit import MachineLimit
    from loopwright.runtime import Device, Module
    from loopwright.target import VectorUnit
    from loopwright.task import Choice


_OTHER = "ONNX Runtime"


def bench_model(
    words: Sequence[str],
    target: str,
    threads: int | None,
    history: Sequence[str],
    rounds: int,
    *,
    allow_default: bool,
    no_fallback: bool,
    finalists: int | None,
    max_error: float | None,
    batches: Sequence[int],
    layouts: str | None,
    as_json: bool,
) -> None:
    """Time a model, each batch by itself, in turns with ONNX Runtime where that is installed."""
    if finalists is not None and not history:
        raise UsageError("--finalists compares records: name their log with --history")
    model = find_model(
        words[0],
        words[1:],
        target,
        threads,
        no_fallback=no_fallback,
        max_error=max_error,
        batches=batches,
        layouts=layouts,
    )
    for one in model.each():
        models = {"default": compiled_one(replace(one, layouts=None), (), allow_default=True)}
        if history or layouts is not None:
            models["tuned"] = compiled_one(
                one, history, allow_default=allow_default, finalists=finalists
            )
        _bench(one, models, rounds, as_json=as_json)


def _bench(
    model: GivenModel, models: Mapping[str, CompiledModel], rounds: int, *, as_json: bool
) -> None:
    """Time the default and the tuned form of a model, in turns with ONNX Runtime."""
    given = random_inputs(models["default"].program)
    place = place_of(models["default"])
    runs = {name: _run(one, given) for name, one in models.items()}
    other = _onnx_runtime(model.words[0], place.threads, given) if place.on_cpu else None
    runs |= {} if other is None else {_OTHER: other}
    with place.held():
        samplers = {name: sampler(run) for name, run in runs.items()}
        times = _model_in_turns(samplers, rounds)
    gains = _model_gains(times)
    if as_json:
        said = {"model": model.words[0], **place.to_json(), "times": times, "gains": gains}
        said |= {"batch": model.batches[0]} if model.batches else {}
        click.echo(json.dumps(said))
        return
    echo(f"{model.title}, {place}, {rounds} samples each, interleaved")
    told_fallbacks(models["default"])
    if "tuned" in models:
        built = models["tuned"]
        if built.choices:
            click.echo(_recorded([*built.choices.values()], inside=built.inside is not None))
        if model.layouts is not None:
            echo(f"layouts of tuned: {model.layouts}")
        if built.inside is not None:
            echo(str(built.inside))
    _model_table(times)
    for line in gains:
        click.echo(line)
    if other is None and place.on_cpu:
        click.echo(f"{_OTHER} is not installed (pip install onnxruntime), or takes other inputs")


def _recorded(choices: Sequence[Choice], *, inside: bool) -> str:
    """The number of kernels with a record, and of those among them that no playoff verified."""
    records = sum(choice.record is not None for choice in choices)
    text = f"{records} of {len(choices)} kernels have a record"
    if unverified := sum(choice.unverified for choice in choices):
        text += f", {unverified} of them unverified: their defaults are built "
        text += "unless they win inside the model" if inside else "(--finalists lets them compete)"
    return text


def _run(model: CompiledModel, given: Mapping[str, Any]) -> Callable[[], object]:
    executor = model.executor()
    executor.run(**given)
    executor.sync()
    return waited(executor)


def _onnx_runtime(file: str, threads: int, given: Mapping[str, Any]) -> Callable[[], object] | None:
    """A run by ONNX Runtime; None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(given))


def _model_in_turns(
    samplers: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, list[float]]:
    """Samples of each in seconds, starting with another one each round."""
    names = list(samplers)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        start = turn % len(names)
        for name in [*names[start:], *names[:start]]:
            times[name].append(samplers[name]())
    return times


def _model_gains(times: Mapping[str, list[float]]) -> list[str]:
    """The model in question, the tuned one if there is one, against the others, in words."""
    from loopwright.measure import paired_gain

    mine = "tuned" if "tuned" in times else "default"
    lines = []
    for name, theirs in times.items():
        found = None if name == mine else paired_gain(theirs, times[mine])
        if found is not None:
            other = "the default" if name == "default" else name
            lines.append(compared(found.outcome, found.gain, found.margin, mine, other))
    return lines


def _model_table(times: Mapping[str, list[float]]) -> None:
    click.echo(f"{'':14}{'median':>12}{'spread':>10}{'speed-up':>10}")
    base = statistics.median(times["default"])
    for name, found in times.items():
        median = statistics.median(found)
        spread = spread_text(found)
        click.echo(f"{name:14}{median * 1e3:>9.4g} ms{spread:>10}{base / median:>9.2f}x")


#: The name of the column that is not a kernel of ours.
NUMPY = "NumPy"


@dataclass
class Contestant:
    """One column of the comparison; ``sample`` gives seconds per call, None once it failed."""

    name: str
    sample: Callable[[], float | None]
    times: list[float] = field(default_factory=list)


@click.command("bench", short_help="Compare default, tuned and NumPy in one run.")
@workload_options
@schedules.history_options
@click.option(
    "--rounds",
    type=click.IntRange(3),
    default=20,
    show_default=True,
    metavar="N",
    help="How often each is timed, in turns; more make the interval of a gain narrower.",
)
@device_option
@no_fallback_option
@batch_option
@layouts_option(APPLIED_LAYOUTS)
@finalists_option
@max_error_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    workload: str,
    params: tuple[str, ...],
    target: str,
    threads: int | None,
    history: tuple[str, ...],
    allow_default: bool,
    record: str | None,
    trial: int | None,
    run: str | None,
    rounds: int,
    device: str | None,
    no_fallback: bool,
    batches: tuple[int, ...],
    layouts: str | None,
    finalists: int | None,
    max_error: float | None,
    as_json: bool,
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
    from loopwright import runtime
    from loopwright.cli.device_limits import DeviceLimits
    from loopwright.measure.playoff.machine_limit import BANDWIDTH, arithmetic_of, bytes_of, moving
    from loopwright.target import roof_of
    from loopwright.tuner.run.state import flop_of

    if is_model(workload):
        refuse_for_model({"--record": record, "--trial": trial, "--run": run, "--device": device})
        words = (workload, *params)
        bench_model(
            words,
            target,
            threads,
            history,
            rounds,
            allow_default=allow_default,
            no_fallback=no_fallback,
            finalists=finalists,
            max_error=max_error,
            batches=batches,
            layouts=layouts,
            as_json=as_json,
        )
        return
    refuse_for_workload(
        {
            "--no-fallback": no_fallback,
            "--batch": batches,
            "--layouts": layouts,
            "--finalists": finalists,
            "--max-error": max_error,
        }
    )
    resolved = find_workload(workload, params, target, threads)
    place = schedules.device_of(resolved.task.target, device)
    name = RecordName(record, trial, run)
    tuned = schedules.best(
        resolved, history, name, allow_default=allow_default, verdicts=False, device=device
    )
    base = schedules.default(resolved)
    modules = {"default": schedules.compiled(resolved, base)}
    if tuned is not None:
        modules["tuned"] = schedules.compiled(resolved, tuned)
    used = schedules.threads_of(modules["default"])
    on_cpu = place == runtime.cpu()
    with ExitStack() as stack:
        stack.enter_context(schedules.alone(place))
        # NumPy's process is started before pinning, which it would inherit.
        numpy = _numpy(resolved, used, stack) if on_cpu else None
        stack.enter_context(runtime.pinned(used) if on_cpu else nullcontext())
        contestants = [_kernel(name, module, resolved, place) for name, module in modules.items()]
        contestants += [] if numpy is None else [numpy]
        flop = flop_of(resolved.task)
        unit = resolved.task.target.vector_unit
        bandwidth: float | None = None
        memory: MachineLimit | None = None
        if on_cpu:
            arithmetic = arithmetic_of(base.schedule.dag)
            roof = roof_of(resolved.task.target, arithmetic) if flop else None
            limit = "" if roof is None else roof.name
            peaks, doubt = _measured(
                contestants,
                rounds,
                flop,
                _limited(contestants, unit),
                lambda: None if roof is None else runtime.fma_peak(used, 0.02, roof),
            )
            memory = moving(bytes_of(modules["default"].artifact), used)
            bandwidth = None if memory is None else memory.rate()
        else:
            limits = DeviceLimits(resolved.task, base, modules["default"].artifact, place)
            peaks, doubt = _measured(contestants, rounds, flop, contestants, limits.peak)
            limit, bandwidth = limits.name, limits.bandwidth()
            peaks, doubt = (peaks if limit else []), limits.doubt or doubt
    peak = statistics.median(peaks) if peaks else None
    rows = [_row(one, flop, peak) for one in contestants if one.times]
    gains = _gains(contestants, {row["name"]: row["of_peak"] for row in rows}, limit)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "task": str(resolved.task),
                    "threads": used if on_cpu else None,
                    "device": str(place),
                    "flop": flop,
                    "fma_peak_gflops": None if peak is None else peak / 1e9,
                    "peak": limit or None,
                    "bandwidth_gbytes": None if bandwidth is None else bandwidth / 1e9,
                    "rows": rows,
                    "gains": [gain.to_json() for gain in gains],
                    "notes": [doubt] if doubt else [],
                }
            )
        )
        return
    where = schedules.where(modules["default"], place)
    click.echo(f"{resolved.task}, {where}, {rounds} samples each, interleaved")
    if tuned is not None:
        echo(tuned.choice)
    _table(rows, limit, peaks)
    if bandwidth is not None:
        moved = BANDWIDTH if memory is None else memory.name
        click.echo(_moving(rows, bytes_of(modules["default"].artifact), bandwidth, moved))
    for gain in gains:
        click.echo(gain.text())
    if doubt:
        click.echo(doubt)


def _measured(
    contestants: Sequence[Contestant],
    rounds: int,
    flop: int,
    limited: Sequence[Contestant],
    sample_peak: Callable[[], float | None],
) -> tuple[list[float], str]:
    """The peaks of all rounds and a doubt; all is sampled again if a kernel is above the peak."""
    for _ in range(2):
        for one in contestants:
            one.times.clear()
        peaks = _in_turns(contestants, rounds, sample_peak)
        if not peaks:
            return [], ""
        peak = statistics.median(peaks)
        above = [one.name for one in limited if one.times and _share(one, flop, peak) > 1]
        if not above:
            return peaks, ""
    return peaks, (
        f"{' and '.join(above)}: above the peak, measured twice. It is no limit for what computes "
        "less than its definition, or it was disturbed both times"
    )


def _limited(contestants: Sequence[Contestant], unit: VectorUnit | None) -> list[Contestant]:
    """The contestants that the peak limits; NumPy may use other instructions than the target."""
    whole = unit is None or unit.is_all_of_this_machine
    return [one for one in contestants if whole or one.name != NUMPY]


def _moving(rows: list[dict[str, Json]], nbytes: int, bandwidth: float, name: str) -> str:
    """The share of a memory bandwidth that each kernel reaches."""
    shares = [f"{row['name']} {nbytes / row['median_s'] / bandwidth:.1%}" for row in rows]
    return f"{name} {bandwidth / 1e9:.1f} GB/s: {', '.join(shares)}"


def _share(one: Contestant, flop: int, peak: float) -> float:
    return flop / statistics.median(one.times) / peak


def _in_turns(
    contestants: Sequence[Contestant], rounds: int, peak: Callable[[], float | None]
) -> list[float]:
    """Take a sample of each contestant per round, starting with another one each time; returns the
    peaks in flop/s that ``peak`` measured after each round, without unknown ones.
    """
    peaks: list[float] = []
    for turn in range(rounds):
        start = turn % len(contestants)
        for one in [*contestants[start:], *contestants[:start]]:
            seconds = one.sample()
            one.times += [] if seconds is None else [seconds]
        reached = peak()
        peaks += [] if reached is None else [reached]
    return peaks


@dataclass(frozen=True)
class Gain:
    """The comparison of one column with another, from samples taken in turns."""

    #: The column in question.
    one: str
    #: The column that it is compared with.
    other: str
    #: The share by which it is faster; None with too few rounds for an interval.
    found: PairedGain | None
    #: The share of the peak that the other one reached; None where no peak is known.
    of_peak: float | None
    #: The name of the peak, such as ``"FMA peak (AVX2)"``; empty where none is known.
    limit: str

    def text(self) -> str:
        """A sentence in the words of ``tune``."""
        if self.found is None:
            return f"{self.one} and {self.other}: too few rounds for an interval; give 6 or more"
        found = self.found
        is_default = self.other == "default"
        other = "the default" if is_default else self.other
        known = ""
        if is_default and self.of_peak is not None:
            known = f"{other} has {self.of_peak * 100:.0f} % of the {self.limit}"
        return compared(found.outcome, found.gain, found.margin, self.one, other, known)

    def to_json(self) -> dict[str, Json]:
        figures: dict[str, Json] = {"gain": None, "margin": None, "rounds": 0, "outcome": None}
        if (found := self.found) is not None:
            figures = {
                "gain": found.gain,
                "margin": found.margin,
                "rounds": found.rounds,
                "outcome": found.outcome,
            }
        return {"one": self.one, "other": self.other, **figures, "text": self.text()}


def _gains(
    contestants: Sequence[Contestant], of_peak: Mapping[str, float | None], limit: str
) -> list[Gain]:
    """The kernel in question, the tuned one if there is one, against the default and NumPy."""
    from loopwright.measure import paired_gain

    named = {one.name: one.times for one in contestants}
    mine = "tuned" if "tuned" in named else "default"
    return [
        Gain(mine, name, paired_gain(times, named[mine]), of_peak[name], limit)
        for name, times in named.items()
        if name != mine and len(times) == len(named[mine])
    ]


def _kernel(name: str, module: Module, workload: Workload, place: Device) -> Contestant:
    from loopwright import runtime

    arrays = schedules.random_arguments(module, workload.task)
    call = module.timed_call(*schedules.on_device(arrays, place))
    call.run()
    estimate = runtime.time_call(call, 1)
    return Contestant(name, lambda: runtime.measure_windows(call, windows=1, estimate=estimate)[0])


def _numpy(workload: Workload, threads: int, stack: ExitStack) -> Contestant | None:
    from loopwright.cli.numpy_process import NumpyProcess, reference_of
    from loopwright.cli.tune import input_specs

    if reference_of(workload) is None:
        return None
    side = stack.enter_context(NumpyProcess(workload, input_specs(workload), threads))
    if side.problem:
        echo(side.problem, err=True)
        return None
    return Contestant(NUMPY, side.sample)


def _row(one: Contestant, flop: int, peak: float | None) -> dict[str, Json]:
    median = statistics.median(one.times)
    return {
        "name": one.name,
        "median_s": median,
        "min_s": min(one.times),
        "max_s": max(one.times),
        "gflops": flop / median / 1e9,
        "of_peak": None if peak is None else flop / median / peak,
        "times": one.times,
    }


def _table(rows: list[dict[str, Json]], limit: str, peaks: list[float]) -> None:
    width = max(10, len(limit) + 1)
    share = f"{'of peak':>9}" if peaks else ""
    click.echo(f"{'':{width}}{'median':>12}{'spread':>12}{'GFLOP/s':>10}{share}{'speed-up':>10}")
    base = rows[0]["median_s"]
    for row in rows:
        spread = spread_text(row["times"])
        share = f"{row['of_peak']:>9.1%}" if peaks else ""
        click.echo(
            f"{row['name']:{width}}{row['median_s'] * 1e3:>9.4g} ms{spread:>12}"
            f"{row['gflops']:>10.1f}{share}{base / row['median_s']:>9.2f}x"
        )
    if not peaks:
        return
    peak = statistics.median(peaks)
    click.echo(f"{limit:{width}}{'':>12}{spread_text(peaks):>12}{peak / 1e9:>10.1f}")
