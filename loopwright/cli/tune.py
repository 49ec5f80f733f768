"""``loopwright tune``: search for the fastest configuration of a workload."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click
from rich.console import Console

from loopwright.automatic import EFFORTS
from loopwright.cli.console import harmless, progress_console, result_console
from loopwright.cli.model import (
    batch_option,
    is_model,
    layouts_option,
    max_error_option,
    no_fallback_option,
    refuse_for_model,
    refuse_for_workload,
)
from loopwright.cli.options import (
    MEASURING,
    NO_GAIN,
    TRIALS,
    chosen_tuner,
    going_on,
    measuring,
    measuring_options,
    one_device,
    repeated,
    script_options,
    tuner_options,
)
from loopwright.cli.tune_tasks import Limits, Search, tune_model
from loopwright.cli.workload import Workload, counted, find_workload, workload_options
from loopwright.errors import InstantiationError, UsageError
from loopwright.measure import MeasureOption, lock_log
from loopwright.measure.devices import measured_on
from loopwright.records import Json, Store, load
from loopwright.runtime import Device
from loopwright.runtime.devices.facts import runs_on_cpu
from loopwright.tuner import Summary, Tuner, TuningInterrupted, log_to_file
from loopwright.tuner.run.budget import count, seconds, share
from loopwright.tuner.run.budget import speed as enough
from loopwright.tuner.run.output.summary import failure_lines, time_line
from loopwright.tuner.run.state import flop_of

if TYPE_CHECKING:
    from loopwright.cli.numpy_process import NumpyProcess
    from loopwright.measure.playoff.machine_limit import MachineLimit

#: Spread of the yardsticks, as a share of their median, above which they are called noisy.
NOISY = 0.3


@click.command("tune", short_help="Search for the fastest configuration of a workload.")
@workload_options
@tuner_options
@click.option(
    "--trials",
    type=int,
    metavar="N",
    help="Stop when the log holds so many successful trials: configurations that were built and "
    f"timed [default: {TRIALS}, unless another limit is given].",
)
@click.option(
    "--timeout",
    metavar="TIME",
    help="Stop this run after this time, with all that comes at its end: seconds, or 90s, 30m, 8h.",
)
@click.option(
    "--early-stopping",
    type=int,
    metavar="N",
    help="Stop after so many trials that brought nothing faster.",
)
@click.option(
    "--gflops",
    type=float,
    metavar="SPEED",
    help="Stop when the best kernel reaches this speed, in 1e9 floating point operations a second.",
)
@click.option(
    "--min-gain",
    metavar="SHARE",
    help="Stop when another minute is expected to make the best faster by less than this: 1%, or "
    "0.01.",
)
@click.option(
    "--effort",
    type=click.Choice([name for name, effort in EFFORTS.items() if effort.trials != 0]),
    help="Limits that go together: quick measures 16 configurations, standard up to 256, night as "
    "many as 8 hours allow; the last two end earlier where nothing more is expected. Options above "
    "go before what an effort says.",
)
@click.option(
    "--log",
    type=click.Path(),
    metavar="FILE",
    help="The file that each measurement is appended to, and from which a run continues "
    "[default: named after the workload, in this folder].",
)
@click.option(
    "--pretrain",
    type=click.Path(exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="A log whose records, of whatever workloads, teach the tuner's cost model before it "
    "starts; they count for no trial. Several may be given.",
)
@no_fallback_option
@batch_option
@layouts_option(
    "choose a layout for each convolution and pool before it is tuned: kernels of which the log "
    "has no record are measured as their defaults, in all layouts. The choice is written to this "
    "file, which `build`, `run`, `bench` and `inspect` take as well; one that is there already is "
    "kept."
)
@max_error_option
@measuring_options
@script_options
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
    effort: str | None,
    log: str | None,
    pretrain: tuple[str, ...],
    no_fallback: bool,
    batches: tuple[int, ...],
    layouts: str | None,
    max_error: float | None,
    as_json: bool,
    fail_without_gain: bool,
    **measure: float | str | None,
) -> int | None:
    """Tune WORKLOAD: an operator with its parameters, such as matmul M=512 N=512 K=512, or
    path/to/file.py:name with those of a template or of a function that returns tensors, whose space
    is then derived. `loopwright workloads` lists the operators.

    Configurations, which are choices of tile sizes and the like, are built, timed and checked. Each
    measurement is appended to the log at once. Run the same command again to continue where it
    stopped; nothing is measured twice.

    At the end the best few are timed again in turns with the default configuration, which is what
    is built without a log. The verdict says by how much the best is faster: "by 31.2 % +- 0.6 %"
    means that the true gain lies between 30.6 % and 31.8 % with a probability of 95 %. A tie is no
    failure: the exit code is 0, unless --fail-without-gain. "Of the FMA peak" is the share of the
    fastest arithmetic that this machine was seen to do; from 85 % on there is little left to gain.

    WORKLOAD may be an ONNX model, model.onnx, with shapes of inputs such as image=1x3x224x224 where
    those that it declares shall not count. Its kernels are tuned together; trials go where the sum
    of calls x time is expected to fall most.
    """
    if is_model(workload):
        refuse_for_model({"--gflops": gflops, "--effort": effort, "--pretrain": pretrain})
        limits_given = Limits(trials, timeout, early_stopping, min_gain)
        return tune_model(
            (workload, *params),
            target,
            threads,
            Search(tuner, options, seed, limits_given, log, measure),
            no_fallback=no_fallback,
            max_error=max_error,
            batches=batches,
            layouts=layouts,
            as_json=as_json,
            fail_without_gain=fail_without_gain,
        )
    refuse_for_workload(
        {
            "--no-fallback": no_fallback,
            "--batch": batches,
            "--layouts": layouts,
            "--max-error": max_error,
        }
    )
    kind, chosen = chosen_tuner(tuner, options)
    resolved = find_workload(workload, params, target, threads)
    if effort is not None:
        limits = EFFORTS[effort]
        trials = limits.trials if trials is None else trials
        timeout, min_gain = timeout or limits.timeout, min_gain or limits.min_gain
    if all(limit is None for limit in (trials, timeout, early_stopping, gflops, min_gain)):
        trials = TRIALS
    path = log or resolved.default_log
    # Impossible requests are refused before anything is measured.
    resolved.task.target.check_machine()
    searcher = kind(resolved.task, seed=seed, **chosen)
    for taught in pretrain:
        searcher.load_history(load(taught))
    budget = {
        "n_trial": count("--trials", trials),
        "early_stopping": count("--early-stopping", early_stopping),
        "timeout": seconds(timeout),
        "target": _reachable(resolved, enough(gflops)),
        "min_gain": share(min_gain),
    }
    option = measuring(measure)
    devices = measured_on(resolved.task.target, "" if option is None else option.runner.devices)
    Store(path).close()
    with lock_log(path, resolved.task.key):
        pass
    console = progress_console(stderr=as_json)
    code: int | None = 130
    try:
        where = _where(resolved, devices)
        summary = _tune(searcher, resolved, path, budget, option, console, where)
        code = NO_GAIN if fail_without_gain and not summary.verdict.is_gain else None
        _print(console, _next_steps(resolved, summary, path, trials))
    except TuningInterrupted as stopped:
        summary = stopped.summary
        _print(console, _interrupted(resolved, path))
    except KeyboardInterrupt:
        _print(console, _interrupted(resolved, path))
        return code
    if as_json:
        click.echo(json.dumps(summary.to_json()))
    return code


def _interrupted(workload: Workload, path: str) -> list[str]:
    again = _again(workload, path)
    return [f"interrupted; every finished trial is in {path}", "to continue:", f"  {again}"]


def _print(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(_folded(console, harmless(line)), markup=False, soft_wrap=True)


def _folded(console: Console, line: str) -> str:
    """A line in pieces as wide as the terminal; an indented command stays whole, to be copied."""
    is_command = line.startswith("  ") and not line.startswith(" " * 9)
    if not console.is_terminal or is_command:
        return line
    return textwrap.fill(
        line,
        max(40, console.width),
        subsequent_indent=" " * 9,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _tune(
    tuner: Tuner,
    workload: Workload,
    path: str,
    budget: Mapping[str, Json],
    measure_option: MeasureOption | None,
    console: Console,
    where: str,
) -> Summary:
    from loopwright.cli.display import Display
    from loopwright.task.union import SpaceUnion

    results = result_console(stderr=console.stderr)
    space = workload.task.config_space
    parts = f" in {len(space.parts)} structures" if isinstance(space, SpaceUnion) else ""
    head = (
        f"{workload.task} on {workload.task.target}, {where}: "
        f"{space.range_length} configurations{parts}, tuner {tuner.name}, log {path}"
    )
    _print(console, [head])
    with ExitStack() as stack:
        # What the CPU can do is no yardstick for another device.
        on_cpu = runs_on_cpu(workload.task.target.kind)
        side = _numpy(workload, stack) if on_cpu else None
        peak, numpy = _yardsticks(workload, console, side) if on_cpu else (None, None)
        sampled = {} if side is None else {side.library: side.sample}
        display = Display(console, peak, numpy, sampled=sampled)
        try:
            summary = tuner.tune(
                measure_option=measure_option, callbacks=[log_to_file(path), display], **budget
            )
        except TuningInterrupted as stopped:
            _print(results, _report(stopped.summary, display.noted, peak, numpy))
            raise
        finally:
            display.close()
    if not summary.measured and summary.stopped != "failures":
        _print(results, _nothing_new(summary, peak, numpy, path))
    else:
        _print(results, _report(summary, display.noted, peak, numpy))
    return summary


def _reachable(workload: Workload, gflops: float | None) -> float | None:
    if gflops is not None and not flop_of(workload.task):
        raise UsageError(
            f"--gflops {gflops:g}: {workload.task} has no operations to count; leave it out"
        )
    return gflops


def _where(workload: Workload, devices: Sequence[Device]) -> str:
    """The place where kernels run, for people: threads of the CPU, or devices."""
    if runs_on_cpu(workload.task.target.kind):
        return counted(_threads(workload))
    return f"{', '.join(map(str, devices))} ({devices[0].device_name})"


def _threads(workload: Workload) -> int:
    from loopwright.runtime import get_num_threads

    return workload.task.target.canonical.get("num_threads") or get_num_threads()


def _numpy(workload: Workload, stack: ExitStack) -> NumpyProcess | None:
    """NumPy on the workload, until the stack ends; None without a reference or operations."""
    from loopwright.cli.numpy_process import NumpyProcess, reference_of

    if reference_of(workload) is None or not flop_of(workload.task):
        return None
    # Started before anything is pinned, which it would inherit.
    return stack.enter_context(NumpyProcess(workload, input_specs(workload), _threads(workload)))


def _yardsticks(
    workload: Workload, console: Console, side: NumpyProcess | None
) -> tuple[float | None, float | None]:
    """The limit of this machine for the workload and NumPy's speed, both in GFLOP/s, None where
    unknown; printed, with a warning when noisy.
    """
    from loopwright.cli import schedules

    limit, flop = _limit(workload), flop_of(workload.task)
    if console.is_terminal:  # the next line takes its place
        console.print("measuring the peak and NumPy" if side else "measuring the peak", end="\r")
    unit = workload.task.target.vector_unit
    whole = unit is None or unit.is_all_of_this_machine
    with schedules.alone():
        for _ in range(2):
            limits, seconds = _interleaved(_threads(workload), side, limit)
            peak = flop / statistics.median(limits) / 1e9 if limits and flop else None
            numpy = flop / statistics.median(seconds) / 1e9 if seconds else None
            if numpy is None or peak is None or numpy <= peak or not whole:
                break  # a share of the peak above 100 % is measured again
    parts = [] if limit is None else [_limit_text(limit, statistics.median(limits), flop)]
    if numpy is not None:
        share = "" if peak is None else f" ({numpy / peak:.0%} of the peak)"
        parts.append(f"NumPy {numpy:.1f} GFLOP/s{share}")
    text = ", ".join(parts) or "no limit of this machine is known for what this computes"
    text += "" if whole or numpy is None else "; NumPy may use all instructions of this machine"
    _print(console, [text, *([side.problem] if side is not None and side.problem else [])])
    varies = [(max(x) - min(x)) / statistics.median(x) for x in (limits, seconds) if x]
    if max(varies, default=0.0) > NOISY:
        noisy = (
            f"these vary by {max(varies):.0%} from sample to sample, so that shares of the peak "
            "mean little: something else uses this machine, or its clock changes; see loopwright "
            "doctor"
        )
        _print(console, [noisy])
    return peak, numpy


def _limit(workload: Workload) -> MachineLimit | None:
    """The roof of the workload on this machine: arithmetic, or moving its arguments; None where
    unknown, or where the template refuses its default, which the run then reports.
    """
    from loopwright import dtypes
    from loopwright.cli import schedules
    from loopwright.measure.playoff.machine_limit import arithmetic_of, limit_of
    from loopwright.target import roof_of

    try:
        scheduled = schedules.default(workload)
    except InstantiationError:
        return None
    dag = scheduled.schedule.dag
    nbytes = sum(
        math.prod(tensor.static_shape) * dtypes.nbytes(tensor.dtype) for tensor in scheduled.args
    )
    roof = roof_of(workload.task.target, arithmetic_of(dag))
    return limit_of(nbytes, flop_of(workload.task), _threads(workload), roof)


def _limit_text(limit: MachineLimit, seconds: float, flop: int) -> str:
    """The limit with its figures, such as ``peak 237.1 GFLOP/s (FMA peak, AVX2, measured now)``."""
    name = limit.name.replace(" (", ", ").rstrip(")")
    if limit.by_moving:
        name += f" of {limit.work / seconds / 1e9:.1f} GB/s"
    speed = f"peak {flop / seconds / 1e9:.1f} GFLOP/s " if flop else ""
    return f"{speed}({name}, measured now)"


def _interleaved(
    threads: int, side: NumpyProcess | None, limit: MachineLimit | None
) -> tuple[list[float], list[float]]:
    """Samples of a call at the limit, and of NumPy, in seconds."""
    from loopwright import runtime

    limits: list[float] = []
    seconds: list[float] = []
    with runtime.pinned(threads):
        for turn in range(5):
            if limit is not None and (limit.each_round or not turn):
                limits.append(limit.sample())
            took = None if side is None else side.sample()
            seconds += [] if took is None else [took]
    return limits, seconds


def input_specs(workload: Workload) -> list[tuple[tuple[int, ...], str]]:
    """Shape and dtype of each input, in calling order."""
    from loopwright.cli import schedules
    from loopwright.te.dag import read_arg_id

    scheduled = schedules.default(workload)
    ids = scheduled.schedule.arg_ids(scheduled.args)
    operations = scheduled.schedule.dag.ops
    return [
        (tensor.static_shape, tensor.dtype)
        for number, tensor in zip(ids, scheduled.args, strict=True)
        if operations[read_arg_id(number)[0]].is_placeholder
    ]


def _report(
    summary: Summary, noted: Sequence[str], peak: float | None, numpy: float | None
) -> list[str]:
    """The result, with the notes of the run that were not printed during it."""
    text = [f"stopped: {summary.reason}"]
    failed = sum(failure.count for failure in summary.failures.values())
    before = f" ({summary.from_log} of them before this run)" if summary.from_log else ""
    text.append(f"trials:  {summary.trials} successful{before}, {failed} failed")
    text += _speeds(summary, peak, numpy)
    text += [note for note in summary.notes if note not in noted]
    text += failure_lines(summary.failures)
    return [*text, time_line(summary.wall_s, summary.timing)]


def _speeds(summary: Summary, peak: float | None, numpy: float | None) -> list[str]:
    """The results; where no playoff sampled the yardsticks, those of the beginning beside them."""
    text = summary.results()
    if summary.in_turns is not None or peak is None:
        return text
    known = {"best": summary.best_gflops, "default": summary.default_gflops, "NumPy": numpy}
    shares = [f"{name} {gflops / peak:.0%}" for name, gflops in known.items() if gflops]
    return [*text, f"peak:    {', '.join(shares)} of {peak:.1f} GFLOP/s, measured at the beginning"]


def _nothing_new(summary: Summary, peak: float | None, numpy: float | None, path: str) -> list[str]:
    """The report of a run that had nothing to measure, since the log holds all its trials."""
    head = (
        f"nothing left to measure: {summary.trials} trials are in {path} ({summary.reason}); "
        "the winner was timed again"
    )
    return [head, *_speeds(summary, peak, numpy)]


def _again(workload: Workload, path: str, trials: int | None = None, without: str = "") -> str:
    """The command line of this run, to be pasted into a shell, with another number of ``trials`` if
    not None, and ``without`` the option of a parameter.
    """
    names = ["tuner", "options", "seed", "timeout", "early_stopping", "gflops", "min_gain"]
    names += ["effort"]
    names += ["as_json", "fail_without_gain", *MEASURING, *(["trials"] if trials is None else [])]
    options = ["--log", path, *repeated([name for name in names if name != without])]
    if trials is not None:
        options += ["--trials", str(trials)]
    return workload.command("tune", *options)


def _next_steps(workload: Workload, summary: Summary, path: str, asked: int | None) -> list[str]:
    """Commands for further steps; ``asked`` is the number of trials that were asked for."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", workload.task.name)
    space = workload.task.config_space.range_length
    most = space if summary.most_trials is None else summary.most_trials
    change = going_on(summary.stopped, asked, summary.trials, most)
    steps = [
        *([] if change is None else [("continue", _again(workload, path, *change))]),
        ("start over", _again(workload, _fresh(path))),
        ("compare", workload.command("bench", "--history", path, *one_device())),
        (
            "build",
            workload.command("build", "--history", path, "-o", f"{name}.{_extension(workload)}"),
        ),
    ]
    return ["next:", *(f"  {what + ':':14}{line}" for what, line in steps)]


def _extension(workload: Workload) -> str:
    from loopwright.driver.backends import backend_of
    from loopwright.runtime.artifacts.kinds import artifact_kind

    return artifact_kind(backend_of(workload.task.target).artifact_kind).extension


def _fresh(path: str) -> str:
    """An unused name for a log beside another one."""
    stem = path.removesuffix(".jsonl")
    names = (f"{stem}.fresh{number}.jsonl" for number in ("", *range(2, 1000)))
    return next((name for name in names if not os.path.lexists(name)), f"{stem}.fresh.jsonl")
