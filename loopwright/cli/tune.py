"""``loopwright tune``: search for the fastest configuration of a workload."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from loopwright import tuner as tuning
from loopwright.cli import options as cli
from loopwright.cli.console import announce, folded, harmless, progress_console, result_console
from loopwright.cli.model import ModelOptions, SubjectOptions, refuse_other_options
from loopwright.cli.numpy_process import NumpyProcess, input_specs
from loopwright.cli.tune_tasks import built_file, check_log, tune_model
from loopwright.cli.workload import WorkloadSubject
from loopwright.errors import InstantiationError, UsageError
from loopwright.inspection import default_schedule, locked
from loopwright.measure import arithmetic_roof, check_can_measure, measured_on
from loopwright.presenting import counted
from loopwright.records import Json, load
from loopwright.runtime import get_num_threads, runs_on_cpu

if TYPE_CHECKING:
    from rich.console import Console

    from loopwright.measure import MachineLimit


#: Parameters of options that the words of a workload hold.
_SUBJECT = ("target", "threads")
#: Spread of the yardsticks, as a share of their median, above which they are called noisy.
NOISY = 0.3


@cli.verb("tune")
def tune_command(
    *,
    subject: SubjectOptions,
    tuner: cli.TunerChoice,
    budget: cli.BudgetOptions = cli.group(without=("per_task_early_stopping",)),
    log: str | None = cli.option(
        "--log FILE",
        "The file that each measurement is appended to, and from which a run continues "
        "[default: named after the workload, in this folder].",
        type=click.Path(),
    ),
    pretrain: tuple[str, ...] = cli.option(
        "--pretrain FILE",
        "A log, of any workloads, from which the tuner's cost model learns before it starts; its "
        "records do not count as trials. Of a log of TVM's operators (conv2d_NCHWc.x86), the best "
        "points that its knobs name are measured first. Several may be given.",
        of="workload",
        type=click.Path(exists=True, dir_okay=False),
        multiple=True,
    ),
    model: ModelOptions = cli.group(
        without=("finalists",),
        layouts="For a model: choose a layout for each convolution and pool before tuning: default "
        "kernels are measured in all layouts where the log has no records of them. The choice is "
        "written to this file, for `build`, `run`, `bench` and `inspect`; an existing file is "
        "kept.",
    ),
    measuring: cli.MeasuringOptions,
    script: cli.ScriptOptions,
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

    WORKLOAD may be an ONNX model, model.onnx, with shapes of inputs such as image=1x3x224x224,
    which override those that it declares. Its kernels are tuned together; trials go where the sum
    of calls x time is expected to fall most.
    """
    refuse_other_options(subject.is_model)
    budget = budget if subject.is_model else budget.resolved()
    limits, (kind, tuner_options) = budget.limits(), tuner.chosen()
    option = measuring.settings()
    if subject.is_model:
        return tune_model(subject, model, tuner, limits, log, option, script)
    workload = subject.find_workload()
    task = workload.task
    path = log or workload.default_log
    # Impossible requests are refused before anything is measured.
    check_can_measure()
    task.target.check_machine()
    searcher = kind(task, seed=tuner.seed, **tuner_options)
    for taught in pretrain:
        searcher.load_history(load(taught))
    goal = tuning.target_speed(budget.gflops)
    if goal is not None and not tuning.flop_of(task):
        raise UsageError(f"--gflops {goal:g}: {task} has no operations to count; leave it out")
    limits.pop("per_task_early_stopping")
    devices = measured_on(task.target, "" if option is None else option.runner.devices)
    where = f"{', '.join(map(str, devices))} ({devices[0].device_name})"
    if runs_on_cpu(task.target.kind):
        where = counted(_threads(workload), "thread")
    check_log(path, [task.key])
    console = progress_console(stderr=script.as_json)
    code: int | None = 130
    interrupted = [
        f"interrupted; every finished trial is in {path}",
        "to continue:",
        f"  {workload.command('tune', *cli.again(path, without=_SUBJECT))}",
    ]
    try:
        settings = {**limits, "target": goal, "measure_option": option}
        summary = _tune(searcher, workload, path, settings, console, where)
        code = cli.NO_GAIN if script.fail_without_gain and not summary.verdict.is_gain else None
        _print(console, _next_steps(workload, summary, path, budget.trials))
    except tuning.TuningInterrupted as stopped:
        summary = stopped.summary
        _print(console, interrupted)
    except KeyboardInterrupt:
        _print(console, interrupted)
        return code
    if script.as_json:
        click.echo(json.dumps(summary.to_json()))
    return code


def _print(console: Console, lines: Sequence[str]) -> None:
    """Print lines, folded to the terminal; an indented command stays whole, to be copied."""
    for line in map(harmless, lines):
        is_command = line.startswith("  ") and not line.startswith(" " * 9)
        if console.is_terminal and not is_command:
            line = "\n".join(folded(line, console.width, 9))
        console.print(line, markup=False, soft_wrap=True)


def _tune(
    tuner: tuning.Tuner,
    workload: WorkloadSubject,
    path: str,
    settings: Mapping[str, Json],
    console: Console,
    where: str,
) -> tuning.Summary:
    from loopwright.cli.display import Display
    from loopwright.task import SpaceUnion

    begin = time.monotonic()
    results = result_console(stderr=console.stderr)
    task, space = workload.task, workload.task.config_space
    parts = f" in {len(space.parts)} structures" if isinstance(space, SpaceUnion) else ""
    head = (
        f"{task} on {task.target}, {where}: {space.range_length} configurations{parts}, "
        f"tuner {tuner.name}, log {path}"
    )
    _print(console, [head])
    with ExitStack() as stack:
        # What the CPU can do is no yardstick for another device.
        on_cpu = runs_on_cpu(task.target.kind)
        side = _numpy(workload, stack) if on_cpu else None
        peak, numpy = _yardsticks(workload, console, side) if on_cpu else (None, None)
        settings = {**settings, "timeout": cli.time_left(settings["timeout"], begin)}
        sampled = {} if side is None else {side.library: side.sample}
        display = Display(console, peak, numpy, sampled=sampled)
        try:
            summary = tuner.tune(callbacks=[tuning.log_to_file(path), display], **settings)
        except tuning.TuningInterrupted as stopped:
            _print(results, _report(stopped.summary, display.noted, peak, numpy))
            raise
        finally:
            display.close()
    if summary.measured or summary.stopped == "failures":
        lines = _report(summary, display.noted, peak, numpy)
    else:
        head = f"nothing left to measure: {summary.trials} trials are in {path} ({summary.reason})"
        lines = [f"{head}; the winner was timed again", *_speeds(summary, peak, numpy)]
    _print(results, lines)
    return summary


def _threads(workload: WorkloadSubject) -> int:
    return workload.task.target.canonical.get("num_threads") or get_num_threads()


def _numpy(workload: WorkloadSubject, stack: ExitStack) -> NumpyProcess | None:
    """NumPy on the workload, until the stack ends; None without a reference or operations."""
    if workload.task.reference is None or not tuning.flop_of(workload.task):
        return None
    # Started before anything is pinned, which it would inherit.
    return stack.enter_context(NumpyProcess(workload, input_specs(workload), _threads(workload)))


def _yardsticks(
    workload: WorkloadSubject, console: Console, side: NumpyProcess | None
) -> tuple[float | None, float | None]:
    """This machine's limit for the workload and NumPy's speed, in GFLOP/s; None where unknown."""
    from loopwright import runtime

    limit, flop = _limit(workload), tuning.flop_of(workload.task)
    if console.is_terminal:  # the next line takes its place
        console.print("measuring the peak and NumPy" if side else "measuring the peak", end="\r")
    unit = workload.task.target.vector_unit
    same_instructions = unit is None or unit.is_all_of_this_machine
    with locked(runtime.cpu(), announce):
        for _ in range(2):
            limits, seconds = _interleaved(_threads(workload), side, limit)
            peak = flop / statistics.median(limits) / 1e9 if limits and flop else None
            numpy = flop / statistics.median(seconds) / 1e9 if seconds else None
            if numpy is None or peak is None or numpy <= peak or not same_instructions:
                break  # a share of the peak above 100 % is measured again
    parts = []
    if limit is not None:  # such as ``peak 237.1 GFLOP/s (FMA peak, AVX2, measured now)``
        call, name = statistics.median(limits), limit.name.replace(" (", ", ").rstrip(")")
        name += f" of {limit.work / call / 1e9:.1f} GB/s" if limit.by_moving else ""
        speed = f"peak {flop / call / 1e9:.1f} GFLOP/s " if flop else ""
        parts.append(f"{speed}({name}, measured now)")
    if numpy is not None:
        share = "" if peak is None else f" ({numpy / peak:.0%} of the peak)"
        parts.append(f"NumPy {numpy:.1f} GFLOP/s{share}")
    text = ", ".join(parts) or "no limit of this machine is known for what this computes"
    if numpy is not None and not same_instructions:
        text += "; NumPy may use all instructions of this machine"
    lines = [text, *([side.problem] if side is not None and side.problem else [])]
    varies = [(max(x) - min(x)) / statistics.median(x) for x in (limits, seconds) if x]
    if max(varies, default=0.0) > NOISY:
        lines.append(
            f"these vary by {max(varies):.0%} from sample to sample, so that shares of the peak "
            "mean little: something else uses this machine, or its clock changes; see loopwright "
            "doctor"
        )
    _print(console, lines)
    return peak, numpy


def _limit(workload: WorkloadSubject) -> MachineLimit | None:
    """The roof of the workload: arithmetic, or moving its arguments; None where unknown."""
    from loopwright import dtypes
    from loopwright.measure import limit_of

    try:
        default = default_schedule(workload.task)
    except InstantiationError:  # the template refuses its default, which the run then reports
        return None
    nbytes = sum(math.prod(t.static_shape) * dtypes.nbytes(t.dtype) for t in default.args)
    roof = arithmetic_roof(workload.task.target, default.schedule.dag)
    return limit_of(nbytes, tuning.flop_of(workload.task), _threads(workload), roof)


def _interleaved(
    threads: int, side: NumpyProcess | None, limit: MachineLimit | None
) -> tuple[list[float], list[float]]:
    from loopwright import runtime

    limits, seconds = list[float](), list[float]()
    with runtime.pinned(threads):
        for turn in range(5):
            if limit is not None and (limit.each_round or not turn):
                limits.append(limit.sample())
            if side is not None and (took := side.sample()) is not None:
                seconds.append(took)
    return limits, seconds


def _report(
    summary: tuning.Summary, noted: Sequence[str], peak: float | None, numpy: float | None
) -> list[str]:
    failed = sum(failure.count for failure in summary.failures.values())
    before = f" ({summary.from_log} of them before this run)" if summary.from_log else ""
    return [
        f"stopped: {summary.reason}",
        f"trials:  {summary.trials} successful{before}, {failed} failed",
        *_speeds(summary, peak, numpy),
        *(note for note in summary.notes if note not in noted),
        *tuning.failure_lines(summary.failures),
        tuning.time_line(summary.wall_s, summary.timing),
    ]


def _speeds(summary: tuning.Summary, peak: float | None, numpy: float | None) -> list[str]:
    """The results; where no playoff sampled the yardsticks, those of the beginning beside them."""
    text = summary.results()
    if summary.in_turns is not None or peak is None:
        return text
    speeds = {"best": summary.best_gflops, "default": summary.default_gflops, "NumPy": numpy}
    shares = [f"{name} {gflops / peak:.0%}" for name, gflops in speeds.items() if gflops]
    return [*text, f"peak:    {', '.join(shares)} of {peak:.1f} GFLOP/s, measured at the beginning"]


def _next_steps(
    workload: WorkloadSubject, summary: tuning.Summary, path: str, asked: int | None
) -> list[str]:
    """Commands for further steps; ``asked`` is the number of requested trials."""
    task = workload.task
    most = summary.most_trials
    most = task.config_space.range_length if most is None else most
    stem = path.removesuffix(".jsonl")
    unused = (f"{stem}.fresh{n}.jsonl" for n in ("", *range(2, 1000)))
    fresh = next((log for log in unused if not os.path.lexists(log)), f"{stem}.fresh.jsonl")
    lines = ["next:"]

    def add(name: str, verb: str, *options: str) -> None:
        lines.append(f"  {name + ':':14}{workload.command(verb, *options)}")

    if (change := cli.going_on(summary.stopped, asked, summary.trials, most)) is not None:
        trials, reached = change
        add("continue", "tune", *cli.again(path, trials, (*_SUBJECT, reached)))
    add("start over", "tune", *cli.again(fresh, without=_SUBJECT))
    add("compare", "bench", "--history", path, *cli.one_device())
    add("build", "build", "--history", path, "-o", built_file(workload))
    return lines
