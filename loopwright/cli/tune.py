"""``loopwright tune``: search for the fastest configuration of a workload."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import click
from rich.console import Console

from loopwright.cli.harmless import harmless
from loopwright.cli.tuning import TRIALS, chosen_tuner, repeated, tuner_options
from loopwright.cli.workload import Workload, counted, find_workload, workload_options
from loopwright.errors import UsageError
from loopwright.measure import lock_log
from loopwright.records import Json, Store
from loopwright.tuner import Summary, Tuner, TuningInterrupted, log_to_file
from loopwright.tuner.run.budget import count, seconds, share
from loopwright.tuner.run.budget import speed as enough
from loopwright.tuner.run.state import flop_of
from loopwright.tuner.run.summary import failure_lines, speed

#: Spread of the yardsticks, as a share of their median, above which they are called noisy.
NOISY = 0.3


@click.command("tune", short_help="Search for the fastest configuration of a workload.")
@workload_options
@tuner_options
@click.option(
    "--trials",
    type=int,
    help=f"Stop when the log holds this many successful trials [default: {TRIALS}].",
)
@click.option("--timeout", help="Stop this run after this time: seconds, or 90s, 30m, 8h.")
@click.option("--early-stopping", type=int, help="Stop after this many trials without improvement.")
@click.option(
    "--gflops", type=float, help="Stop when the best kernel reaches this speed in GFLOP/s."
)
@click.option(
    "--min-gain",
    metavar="SHARE",
    help="Stop when another minute is expected to improve the best by less than this, e.g. 1%.",
)
@click.option(
    "--log", help="Log file; a run continues from it [default: named after the workload]."
)
def command(
    workload: str,
    params: tuple[str, ...],
    target: str,
    threads: int | None,
    tuner: str,
    options: tuple[str, ...],
    seed: int,
    trials: int | None,
    timeout: str | None,
    early_stopping: int | None,
    gflops: float | None,
    min_gain: str | None,
    log: str | None,
) -> int | None:
    """Tune WORKLOAD: an operator (matmul, dense, conv2d) with its parameters, or
    path/to/file.py:template with the template's.

    Each measurement is appended to the log at once. Run the same command again to continue where
    it stopped; nothing is measured twice.
    """
    kind, chosen = chosen_tuner(tuner, options)
    resolved = find_workload(workload, params, target, threads)
    if all(limit is None for limit in (trials, timeout, early_stopping, gflops, min_gain)):
        trials = TRIALS
    path = log or resolved.default_log
    # Impossible requests are refused before anything is measured.
    searcher = kind(resolved.task, seed=seed, **chosen)
    budget = {
        "n_trial": count("--trials", trials),
        "early_stopping": count("--early-stopping", early_stopping),
        "timeout": seconds(timeout),
        "target": _reachable(resolved, enough(gflops)),
        "min_gain": share(min_gain),
    }
    Store(path).close()
    with lock_log(path, resolved.task.key):
        pass
    try:
        return _tune(searcher, resolved, path, budget)
    except KeyboardInterrupt:
        click.echo(f"interrupted; every finished trial is in {path}")
    click.echo(f"to continue:\n  {_again(resolved, path)}")
    return 130


def _tune(
    tuner: Tuner,
    workload: Workload,
    path: str,
    budget: Mapping[str, Json],
) -> int | None:
    from loopwright.cli.display import Display

    console = Console(highlight=False)
    space = workload.task.config_space
    console.print(
        f"{workload.task} on {workload.task.target}, {counted(_threads(workload))}: "
        f"{space.range_length} configurations, tuner {tuner.name}, log {path}",
        markup=False,
        soft_wrap=True,
    )
    peak, numpy = _yardsticks(workload, console)
    display = Display(console, peak, numpy)
    try:
        summary = tuner.tune(callbacks=[log_to_file(path), display], **budget)
    except TuningInterrupted as stopped:
        _report(stopped.summary, tuner.notes, console, peak, numpy)
        raise
    finally:
        display.close()
    if not summary.measured:
        _nothing_new(summary, console, peak, numpy, path)
    else:
        _report(summary, tuner.notes, console, peak, numpy)
    _next_steps(workload, summary, path)
    return None


def _reachable(workload: Workload, gflops: float | None) -> float | None:
    if gflops is not None and not flop_of(workload.task):
        raise UsageError(
            f"--gflops {gflops:g}: {workload.task} has no operations to count; leave it out"
        )
    return gflops


def _threads(workload: Workload) -> int:
    from loopwright.runtime import get_num_threads

    return workload.task.target.canonical.get("num_threads") or get_num_threads()


def _yardsticks(workload: Workload, console: Console) -> tuple[float | None, float | None]:
    """The measured FMA peak and NumPy's speed, both in GFLOP/s; said, with a warning when noisy."""
    from loopwright.cli import kernels

    flop = flop_of(workload.task)
    with kernels.alone():
        peaks, seconds, problem = _interleaved(workload, with_numpy=bool(flop))
    peak = statistics.median(peaks)
    numpy = flop / statistics.median(seconds) / 1e9 if seconds else None
    text = f"peak {peak:.1f} GFLOP/s (float32, measured now)"
    if numpy is not None:
        text += f", NumPy {numpy:.1f} GFLOP/s ({numpy / peak:.0%} of it)"
    console.print(harmless(text), markup=False, soft_wrap=True)
    if problem:
        console.print(harmless(problem), markup=False, soft_wrap=True)
    spread = max((max(x) - min(x)) / statistics.median(x) for x in (peaks, seconds) if x)
    if spread > NOISY:
        console.print(
            f"these vary by {spread:.0%} from sample to sample: something else uses this machine, "
            "and shares of the peak mean little",
            soft_wrap=True,
        )
    return peak, numpy


def _interleaved(workload: Workload, with_numpy: bool) -> tuple[list[float], list[float], str]:
    """Samples of the peak in GFLOP/s and of NumPy in seconds, and why NumPy gave none."""
    from loopwright import runtime
    from loopwright.cli.numpy_process import NumpyProcess, reference_of

    threads = _threads(workload)
    peaks: list[float] = []
    seconds: list[float] = []
    problem = ""
    with ExitStack() as stack:
        side = None
        if with_numpy and reference_of(workload) is not None:
            # Started before pinning, which it would inherit.
            side = stack.enter_context(NumpyProcess(workload, input_specs(workload), threads))
        stack.enter_context(runtime.pinned(threads))
        for _ in range(5):
            peaks.append(runtime.fma_peak(threads, seconds=0.03) / 1e9)
            took = None if side is None else side.sample()
            seconds += [] if took is None else [took]
        problem = "" if side is None else side.problem
    return peaks, seconds, problem


def input_specs(workload: Workload) -> list[tuple[tuple[int, ...], str]]:
    """Shape and dtype of each input, in calling order."""
    from loopwright.cli import kernels
    from loopwright.te.dag import read_arg_id

    scheduled = kernels.default(workload)
    ids = scheduled.schedule.arg_ids(scheduled.args)
    operations = scheduled.schedule.dag.ops
    return [
        (tensor.static_shape, tensor.dtype)
        for number, tensor in zip(ids, scheduled.args, strict=True)
        if operations[read_arg_id(number)[0]].is_placeholder
    ]


def _report(
    summary: Summary,
    notes: Sequence[str],
    console: Console,
    peak: float | None,
    numpy: float | None,
) -> None:
    text = [f"stopped: {summary.reason}"]
    failed = sum(failure.count for failure in summary.failures.values())
    before = f" ({summary.from_log} of them before this run)" if summary.from_log else ""
    text.append(f"trials:  {summary.trials} successful{before}, {failed} failed")
    text += _speeds(summary, peak, numpy)
    text += [*notes, *failure_lines(summary.failures)]
    spent = sorted(summary.timing.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{name} {took:.1f} s" for name, took in spent if took >= 0.05)
    text.append(f"time:    {summary.wall_s:.1f} s{': ' + parts if parts else ''}")
    for line in text:
        console.print(harmless(line), markup=False, soft_wrap=True)


def _speeds(summary: Summary, peak: float | None, numpy: float | None) -> list[str]:
    text = []
    if summary.default_seconds is not None:
        share = _share(summary.default_gflops, peak)
        text.append(f"default: {speed(summary.default_seconds, summary.default_gflops)}{share}")
    if summary.best_seconds is not None:
        share = _share(summary.best_gflops, peak)
        gain = "" if summary.speedup is None else f", {summary.speedup:.2f} x the default"
        best = speed(summary.best_seconds, summary.best_gflops)
        text.append(f"best:    {best}{share}{gain} (trial {summary.best_trial})")
        text.append(f"         {summary.best_config}")
    if numpy is not None:
        text.append(f"NumPy:   {numpy:.1f} GFLOP/s{_share(numpy, peak)}")
    return text


def _share(gflops: float | None, peak: float | None) -> str:
    return f", {gflops / peak:.0%} of the peak" if gflops and peak else ""


def _nothing_new(
    summary: Summary, console: Console, peak: float | None, numpy: float | None, path: str
) -> None:
    """Report a run that had nothing to measure, since the log holds all its trials."""
    console.print(
        f"nothing left to measure: {summary.trials} trials are in {path} ({summary.reason}); "
        "the winner was timed again",
        markup=False,
        soft_wrap=True,
    )
    for line in _speeds(summary, peak, numpy):
        console.print(harmless(line), markup=False, soft_wrap=True)


def _again(workload: Workload, path: str, trials: int | None = None) -> str:
    """The command line of this run, to be pasted into a shell; perhaps with more trials."""
    names = ["tuner", "options", "seed", "timeout", "early_stopping", "gflops", "min_gain"]
    options = ["--log", path, *repeated(names if trials else [*names, "trials"])]
    if trials is not None:
        options += ["--trials", str(trials)]
    return workload.command("tune", *options)


def _next_steps(workload: Workload, summary: Summary, path: str) -> None:
    fresh = path.removesuffix(".jsonl") + ".fresh.jsonl"
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", workload.task.name)
    click.echo("next:")
    steps = [
        ("continue", _again(workload, path, max(2 * summary.trials, TRIALS))),
        ("start over", _again(workload, fresh)),
        ("compare", workload.command("bench", "--history", path)),
        ("build", workload.command("build", "--history", path, "-o", f"{name}.o")),
    ]
    if summary.stopped == "exhausted":
        steps = steps[1:]
    for what, line in steps:
        click.echo(f"  {what + ':':14}{line}")
