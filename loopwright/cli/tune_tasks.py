"""``loopwright tune-tasks``: several workloads share a budget, a log and one table."""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loopwright.cli.console import (
    Verbosity,
    command_line,
    echo,
    harmless_lines,
    progress_console,
    verbosity,
)
from loopwright.cli.model import BUILT, GivenModel, find_model
from loopwright.cli.options import (
    MEASURING,
    NO_GAIN,
    TRIALS,
    MeasuringOptions,
    chosen_tuner,
    going_on,
    measuring,
    measuring_options,
    one_device,
    repeated,
    script_options,
    tuner_options,
)
from loopwright.cli.workload import Workload, find_workload
from loopwright.env import MAX_THREADS
from loopwright.errors import GraphError, UsageError
from loopwright.files import check
from loopwright.measure import lock_log
from loopwright.measure.devices import measured_on
from loopwright.records import Json, Store
from loopwright.runtime.artifacts.kinds import device_of_target
from loopwright.task.applying.as_called import duration
from loopwright.tuner import TasksSummary, TuningInterrupted, log_to_file, task_table, tune_tasks
from loopwright.tuner.run.budget import count, seconds, share
from loopwright.tuner.tasks.scheduler import STRATEGIES

if TYPE_CHECKING:
    from rich.console import Console

    from loopwright.graph import LayoutChoice, ModelTask
    from loopwright.measure import MeasureOption


@dataclass(frozen=True)
class WeightedWorkload:
    """One line of the file: a workload, and its number of calls."""

    workload: Workload
    weight: float


@click.command("tune-tasks", short_help="Tune several workloads with one budget and one log.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--target",
    default="llvm",
    show_default=True,
    help="What all kernels are compiled for: llvm, c, interp, opencl or cuda, with options.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, MAX_THREADS),
    metavar="N",
    help="Threads that each kernel runs on [default: all cores].",
)
@tuner_options
@click.option(
    "--trials",
    type=int,
    metavar="N",
    help="Stop when the log holds so many successful trials of all workloads together "
    f"[default: {TRIALS} for each, unless another limit is given].",
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
    help="Stop after so many trials that brought nothing faster for any workload.",
)
@click.option(
    "--per-task-early-stopping",
    type=int,
    metavar="N",
    help="Stop tuning a workload after so many of its trials that brought nothing faster.",
)
@click.option(
    "--min-gain",
    metavar="SHARE",
    help="Stop tuning a workload when another minute is expected to make it faster by less than "
    "this: 1%, or 0.01.",
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default=STRATEGIES[0],
    show_default=True,
    help="Which workload gets the next trials: the one that promises most for the sum of calls x "
    "time (gradient), or each in turn (round-robin).",
)
@click.option(
    "--log",
    type=click.Path(),
    metavar="LOG",
    help="The file that each measurement is appended to, and from which a run continues "
    "[default: named after FILE, in this folder].",
)
@measuring_options
@script_options
def command(
    file: Path,
    target: str,
    threads: int | None,
    tuner: str,
    options: tuple[str, ...],
    seed: int,
    trials: int | None,
    timeout: str | None,
    early_stopping: int | None,
    per_task_early_stopping: int | None,
    min_gain: str | None,
    strategy: str,
    log: str | None,
    as_json: bool,
    fail_without_gain: bool,
    **measure: float | str | None,
) -> int | None:
    """Tune the workloads of FILE together. Each line is a workload with its parameters, as for
    `loopwright tune`; a number before it says how often it is called, if more than once:

    \b
        # a small network
        conv2d N=1 C=64 H=56 W=56 O=64 KH=3 KW=3 pad=1
        4 dense M=1 N=1000 K=512

    Trials go where the sum of calls x time is expected to fall most. Each measurement is appended
    to the log at once. Run the same command again to continue where it stopped. With
    --fail-without-gain the exit code says that no workload is measurably faster than by default.
    """
    kind, chosen = chosen_tuner(tuner, options)
    lines = list(_lines(file, target, threads))
    if not lines:
        raise UsageError(f"{file} names no workload; write one a line: matmul M=64 N=64 K=64")
    if all(x is None for x in (trials, timeout, early_stopping, per_task_early_stopping, min_gain)):
        trials = TRIALS * len(lines)
    path = log or f"{file.stem}.jsonl"
    # Impossible requests are refused before anything is measured.
    option = measuring(measure)
    budget = {
        "n_trial": count("--trials", trials),
        "timeout": seconds(timeout),
        "early_stopping": count("--early-stopping", early_stopping),
        "per_task_early_stopping": count("--per-task-early-stopping", per_task_early_stopping),
        "min_gain": share(min_gain),
        "measure_option": option,
    }
    target_of_all = lines[0].workload.task.target
    target_of_all.check_machine()
    measured_on(target_of_all, "" if option is None else option.runner.devices)
    kind(lines[0].workload.task, seed=seed, **chosen)
    Store(path).close()
    for line in lines:
        with lock_log(path, line.workload.task.key):
            pass
    search = {"tuner": tuner, "tuner_options": chosen, "seed": seed, "strategy": strategy}
    try:
        console = progress_console(stderr=as_json)
        summary = _tune(lines, path, {**budget, **search}, console)
    except KeyboardInterrupt as stopped:
        click.echo(f"interrupted; every finished trial is in {path}", err=as_json)
        click.echo(f"to continue:\n  {_again(file, path)}", err=as_json)
        if as_json and isinstance(stopped, TuningInterrupted):
            click.echo(json.dumps(stopped.summary.to_json()))
        return 130
    quiet = verbosity() == Verbosity.QUIET
    if not quiet:
        _next_steps(file, path, summary, lines, trials, err=as_json)
    elif not as_json:
        echo("\n".join(summary.lines()))
    if as_json:
        click.echo(json.dumps(summary.to_json()))
    return NO_GAIN if fail_without_gain and not summary.is_gain else None


def _next_steps(
    file: Path,
    path: str,
    summary: TasksSummary,
    lines: Sequence[WeightedWorkload],
    asked: int | None,
    *,
    err: bool,
) -> None:
    """Print commands for further steps, on standard error where standard output is for JSON."""
    click.echo("next:", err=err)
    most = summary.most_trials
    if most is None:
        most = sum(line.workload.task.config_space.range_length for line in lines)
    change = going_on(summary.stopped, asked, summary.trials, most)
    if change is not None and summary.stopped != "tasks":
        click.echo(f"  continue: {_again(file, path, *change)}", err=err)
    for line, row in zip(lines, summary.rows, strict=True):
        if row.best_seconds is not None:
            compare = line.workload.command("bench", "--history", path, *one_device())
            click.echo(f"  compare:  {compare}", err=err)


def _tune(
    lines: list[WeightedWorkload], path: str, options: dict[str, Json], console: Console
) -> TasksSummary:
    tasks = [line.workload.task for line in lines]
    many = f"{len(tasks)} workload{'s' * (len(tasks) != 1)}"
    text = f"{many} on {tasks[0].target}, tuner {options['tuner']}, log {path}"
    console.print(harmless_lines(text), markup=False, soft_wrap=True)
    table = task_table(console)
    try:
        return tune_tasks(
            tasks,
            callbacks=[log_to_file(path), table],
            weights=[line.weight for line in lines],
            **options,
        )
    finally:
        table.close()


def _lines(file: Path, target: str, threads: int | None) -> Iterator[WeightedWorkload]:
    if not file.is_file():
        raise UsageError(f"no file {str(file)!r}; name a text file with one workload a line")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read as text: {error}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        with _where(file, number):
            parsed = _line(line, target, threads)
        if parsed is not None:
            yield parsed


def _line(line: str, target: str, threads: int | None) -> WeightedWorkload | None:
    """The workload of a line; None where it has none."""
    words = shlex.split(line, comments=True)
    if not words:
        return None
    weight = _weight(words[0])
    name, *params = words if weight is None else words[1:] or [""]
    if not name:
        raise UsageError(f"{line.strip()!r} has no workload behind its number")
    workload = find_workload(name, params, target, threads)
    return WeightedWorkload(workload, 1.0 if weight is None else weight)


def _weight(word: str) -> float | None:
    try:
        weight = float(word)
    except ValueError:
        return None
    if not 0 < weight < math.inf:
        raise UsageError(f"{word} calls; give a number above zero")
    return weight


@contextmanager
def _where(file: Path, number: int) -> Iterator[None]:
    """Name the line in errors."""
    try:
        yield
    except (UsageError, ValueError) as error:
        raise UsageError(f"{file}, line {number}: {error}") from error


def _again(file: Path, path: str, trials: int | None = None, without: str = "") -> str:
    """The command line of this run, to be pasted into a shell; arguments as in ``tune``."""
    names = ["target", "threads", "tuner", "options", "seed", "timeout", "early_stopping"]
    names += ["per_task_early_stopping", "min_gain", "strategy", "as_json", "fail_without_gain"]
    names += [*MEASURING, *(["trials"] if trials is None else [])]
    words = ["tune-tasks", str(file), "--log", path]
    words += repeated([name for name in names if name != without])
    return command_line(words if trials is None else [*words, "--trials", str(trials)])


#: Options that are written again in the command that goes on.
_REPEATED = (
    *("tuner", "options", "seed", "timeout", "early_stopping", "min_gain"),
    *("as_json", "fail_without_gain"),
)


@dataclass(frozen=True)
class Limits:
    """Limits of tuning a model; None: no limit."""

    #: Trials of all tasks in the log.
    trials: int | None
    #: Time of this run, such as ``"10m"``.
    timeout: str | None
    #: Trials without anything faster for any task.
    early_stopping: int | None
    #: Least gain of a task within a minute, such as ``"1%"``.
    min_gain: str | None


@dataclass(frozen=True)
class Search:
    """The options of ``tune`` for the search of a model."""

    tuner: str
    #: Words of ``--option``.
    options: tuple[str, ...]
    seed: int
    limits: Limits
    #: Path of the log; None: named after the file.
    log: str | None
    #: Values of the options of measuring.
    measure: MeasuringOptions


def tune_model(
    words: Sequence[str],
    target: str,
    threads: int | None,
    search: Search,
    *,
    no_fallback: bool,
    max_error: float | None,
    batches: Sequence[int],
    layouts: str | None,
    as_json: bool,
    fail_without_gain: bool,
) -> int | None:
    """Tune a model: its file, and shapes of inputs behind it; returns the exit code."""
    from loopwright.graph import extract_tasks

    begin = time.monotonic()
    budget, chosen = _budget(search.limits), chosen_tuner(search.tuner, search.options)[1]
    option = measuring(search.measure)
    model = find_model(
        words[0],
        words[1:],
        target,
        threads,
        no_fallback=no_fallback,
        max_error=max_error,
        batches=batches,
    )
    model.target.check_machine()
    measured_on(model.target, "" if option is None else option.runner.devices)
    path = search.log or f"{model.name}.jsonl"
    if layouts is not None:
        model = model.with_layouts(None, layouts)
    given = {"tuner": search.tuner, "tuner_options": chosen, "seed": search.seed}
    console = progress_console(stderr=as_json)
    try:
        if layouts is not None:
            choice = _layouts(model, layouts, path, search.seed, option, console)
            model = replace(model, layouts=choice)
        with model.limits():
            if model.source is None:
                tasks = extract_tasks(model.module, model.target, layouts=model.layouts)
            else:
                tasks = extract_tasks(model.source, model.target, batches=model.batches)
        _check_log(path, tasks)
        if budget["timeout"] is not None:
            budget["timeout"] = max(1.0, budget["timeout"] - (time.monotonic() - begin))
        head = f"{words[0]} on {model.target}: {len(tasks)} tasks, tuner {search.tuner}, log {path}"
        console.print(harmless_lines(head), markup=False, soft_wrap=True)
        summary = _tuned(tasks, path, {**given, **budget, "measure_option": option}, console)
    except KeyboardInterrupt as stopped:
        click.echo(f"interrupted; every finished trial is in {path}", err=as_json)
        click.echo(f"to continue:\n  {_model_again(model, path)}", err=as_json)
        if as_json and isinstance(stopped, TuningInterrupted):
            click.echo(json.dumps(stopped.summary.to_json()))
        return 130
    _tell(model, path, summary, search.limits.trials, as_json=as_json)
    return NO_GAIN if fail_without_gain and not summary.is_gain else None


def _layouts(
    model: GivenModel,
    file: str,
    log: str,
    seed: int,
    option: MeasureOption | None,
    console: Console,
) -> LayoutChoice:
    """The layouts of a file, written first where it is missing, with measurements in the log."""
    from loopwright.graph import LayoutChoice, tune_layouts
    from loopwright.graph.layout.choice import LAYOUTS
    from loopwright.graph.pipeline import before_layouts

    if Path(file).exists():
        choice = LayoutChoice.load(file)
        choice.check(before_layouts(model.module, model.target))
        said = f"{choice}, of {file}"
    else:
        check((Path(file), LAYOUTS), error=GraphError)
        Store(log).close()
        with model.limits():
            table = task_table(console)
            try:
                choice = tune_layouts(
                    model.module,
                    model.target,
                    log=log,
                    seed=seed,
                    measure_option=option,
                    callbacks=[table],
                )
            finally:
                table.close()
        choice.save(file)
        said = f"{choice}; written to {file}"
    console.print(harmless_lines(f"layouts: {said}"), markup=False, soft_wrap=True)
    return choice


def _budget(limits: Limits) -> dict[str, Any]:
    """The limits as arguments of `loopwright.tune`."""
    return {
        "trials": count("--trials", limits.trials),
        "timeout": seconds(limits.timeout),
        "early_stopping": count("--early-stopping", limits.early_stopping),
        "min_gain": share(limits.min_gain),
    }


def _check_log(path: str, tasks: Sequence[ModelTask]) -> None:
    """Refuse a log that cannot be written, or into which another process tunes one of the tasks."""
    Store(path).close()
    for one in tasks:
        with lock_log(path, one.task.key):
            pass


def _tuned(
    tasks: list[ModelTask], path: str, options: Mapping[str, Any], console: Console
) -> TasksSummary:
    from loopwright.graph.tuning import tune

    table = task_table(console)
    try:
        return tune(tasks, log=path, callbacks=[table], **options)
    finally:
        table.close()


def _tell(
    model: GivenModel, path: str, summary: TasksSummary, asked: int | None, *, as_json: bool
) -> None:
    """Print the result, and commands for further steps."""
    if verbosity() == Verbosity.QUIET:
        if not as_json:
            echo("\n".join([*summary.lines(), _expected(summary)]))
    else:
        echo(_expected(summary), err=as_json)
        echo("\n".join(["next:", *_model_steps(model, path, summary, asked)]), err=as_json)
    if as_json:
        click.echo(json.dumps(summary.to_json()))


def _expected(summary: TasksSummary) -> str:
    """The sum of the times of the tasks in a run of the model."""
    expected, before = summary.expected, summary.of_defaults
    if expected is None:
        return "model:   not every task has a result yet"
    text = f"model:   {duration(expected)} a run is expected of these kernels"
    if before is not None:
        text += f", {duration(before)} of their defaults"
    if count := summary.unverified:
        one = count == 1
        text += f"; {count} {'is' if one else 'are'} unverified and count{'s' * one} by default"
    return text


def _model_steps(
    model: GivenModel, path: str, summary: TasksSummary, asked: int | None
) -> list[str]:
    change = going_on(summary.stopped, asked, summary.trials, summary.most_trials)
    steps = []
    if change is not None and summary.stopped != "tasks":
        steps.append(("continue", _model_again(model, path, *change)))
    steps.append(("inspect", model.command("inspect", "--history", path)))
    steps.append(("compare", model.command("bench", "--history", path)))
    out = f"{model.name}{BUILT}"
    on_cpu = device_of_target(model.target.kind) in (None, "cpu")
    finalists = ("--finalists", "3") if on_cpu else ()
    steps.append(("build", model.command("build", "--history", path, *finalists, "-o", out)))
    return [f"  {what + ':':10}{line}" for what, line in steps]


def _model_again(model: GivenModel, path: str, trials: int | None = None, without: str = "") -> str:
    """The command line of this run, to be pasted into a shell; arguments as in ``tune``."""
    names = [*_REPEATED, *MEASURING, *(["trials"] if trials is None else [])]
    options = ["--log", path, *repeated([name for name in names if name != without])]
    if trials is not None:
        options += ["--trials", str(trials)]
    return model.command("tune", *options)
