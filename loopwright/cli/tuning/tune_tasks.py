"""``loopwright tune-tasks``: several workloads share a budget, a log and one table."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopwright.cli import program, verbosity
from loopwright.cli.harmless import echo, harmless_lines
from loopwright.cli.tuning.options import (
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
from loopwright.cli.verbosity import Verbosity
from loopwright.cli.workload import Workload, find_workload
from loopwright.env import MAX_THREADS
from loopwright.errors import UsageError
from loopwright.measure import lock_log
from loopwright.measure.devices import measured_on
from loopwright.records import Json, Store
from loopwright.tuner import TasksSummary, TuningInterrupted, log_to_file, task_table, tune_tasks
from loopwright.tuner.run.budget import count, gain_per_minute, seconds
from loopwright.tuner.tasks.scheduler import STRATEGIES

if TYPE_CHECKING:
    from rich.console import Console


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
        "min_gain": gain_per_minute(min_gain),
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
        console = verbosity.progress_console(stderr=as_json)
        summary = _tune(lines, path, {**budget, **search}, console)
    except KeyboardInterrupt as stopped:
        click.echo(f"interrupted; every finished trial is in {path}", err=as_json)
        click.echo(f"to continue:\n  {_again(file, path)}", err=as_json)
        if as_json and isinstance(stopped, TuningInterrupted):
            click.echo(json.dumps(stopped.summary.to_json()))
        return 130
    quiet = verbosity.chosen() == Verbosity.QUIET
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
    return program.command(words if trials is None else [*words, "--trials", str(trials)])
