"""``loopwright tune-tasks``, ``tune model.onnx``: several tasks share a budget and a log."""

from __future__ import annotations

import json
import math
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loopwright import tuner as tuning
from loopwright.cli import options as cli
from loopwright.cli.console import (
    Verbosity,
    command_line,
    echo,
    harmless_lines,
    progress_console,
    verbosity,
)
from loopwright.cli.model import BUILT, ModelOptions, ModelSubject, SubjectOptions
from loopwright.cli.workload import WorkloadSubject, find_workload
from loopwright.errors import GraphError, UsageError
from loopwright.files import check
from loopwright.measure import MeasureOption, check_can_measure, lock_log, measured_on
from loopwright.presenting import counted, duration
from loopwright.records import Store
from loopwright.target import Target

if TYPE_CHECKING:
    from rich.console import Console

    from loopwright.graph import LayoutChoice


_T = TypeVar("_T")
#: Parameters of options that the words of a model hold.
_MODEL = ("target", "threads", "no_fallback", "batches", "layouts", "max_error")


@cli.verb("tune-tasks")
def tune_tasks_command(
    *,
    file: Path = cli.argument(type=click.Path(path_type=Path)),
    target: cli.TargetOptions,
    tuner: cli.TunerChoice,
    budget: cli.BudgetOptions = cli.group(
        without=("gflops", "effort"),
        trials="Stop when the log holds this many successful trials of all workloads together "
        f"[default: {cli.TRIALS} for each, unless another limit is given].",
        early_stopping="Stop after this many trials without an improvement of any workload.",
        min_gain="Stop tuning a workload when another minute is expected to make it faster by "
        "less than this: 1%, or 0.01.",
    ),
    strategy: str = cli.option(
        "--strategy",
        "Which workload gets the next trials: the one that promises most for the sum of calls x "
        "time (gradient), or each in turn (round-robin).",
        type=click.Choice(tuning.STRATEGIES),
        shown=tuning.STRATEGIES[0],
    ),
    log: str | None = cli.option(
        "--log LOG",
        "The file that each measurement is appended to, and from which a run continues "
        "[default: named after FILE, in this folder].",
        type=click.Path(),
    ),
    measuring: cli.MeasuringOptions,
    script: cli.ScriptOptions,
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
    kind, tuner_options = tuner.chosen()
    lines = list(_lines(file, target))
    if not lines:
        raise UsageError(f"{file} names no workload; write one a line: matmul M=64 N=64 K=64")
    tasks = [workload.task for workload, _ in lines]
    budget = budget.resolved(len(lines))
    path = log or f"{file.stem}.jsonl"
    # Impossible requests are refused before anything is measured.
    option = measuring.settings()
    settings = {**budget.limits(), "measure_option": option, "strategy": strategy}
    settings |= {"tuner": tuner.tuner, "tuner_options": tuner_options, "seed": tuner.seed}
    _check_device(tasks[0].target, option)
    kind(tasks[0], seed=tuner.seed, **tuner_options)
    check_log(path, [task.key for task in tasks])

    def continued(trials: int | None = None, reached: str = "") -> str:
        return command_line(["tune-tasks", str(file), *cli.again(path, trials, {reached})])

    def tune(table: tuning.TaskTable) -> tuning.TasksSummary:
        weights = [calls for _, calls in lines]
        return tuning.tune_tasks(
            tasks, callbacks=[tuning.log_to_file(path), table], weights=weights, **settings
        )

    console = progress_console(stderr=script.as_json)
    with _interruptible(path, continued(), script.as_json):
        workloads = counted(len(tasks), "workload")
        text = f"{workloads} on {tasks[0].target}, tuner {tuner.tuner}, log {path}"
        summary = _with_table(console, text, tune)
    most = summary.most_trials
    if most is None:
        most = sum(task.config_space.range_length for task in tasks)
    steps = _continued(summary, budget.trials, most, continued)
    rows = zip(lines, summary.rows, strict=True)
    fast = [workload for (workload, _), row in rows if row.best_seconds is not None]
    if fast:
        best = f"{path.removesuffix('.jsonl')}.best.jsonl"
        steps.append(("pick", command_line(["records", "pick", path, "-o", best])))
    history = ("--history", path)
    steps += [("compare", w.command("bench", *history, *cli.one_device())) for w in fast]
    names = [built_file(w, f"_{n}" if len(fast) > 1 else "") for n, w in enumerate(fast, 1)]
    steps += [
        ("build", w.command("build", *history, "-o", name))
        for w, name in zip(fast, names, strict=True)
    ]
    return _print_summary(summary, [], steps, script)


def built_file(workload: WorkloadSubject, number: str = "") -> str:
    """A name for the file that ``build`` writes for a workload."""
    from loopwright.codegen import backend_of
    from loopwright.runtime import artifact_kind

    task = workload.task
    extension = artifact_kind(backend_of(task.target).artifact_kind).extension
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', task.name)}{number}.{extension}"


def _continued(
    summary: tuning.TasksSummary, asked: int | None, most: int | None, command: Callable[..., str]
) -> list[tuple[str, str]]:
    """The step that goes on with an ended run, where it can."""
    change = cli.going_on(summary.stopped, asked, summary.trials, most)
    return [] if change is None or summary.stopped == "tasks" else [("continue", command(*change))]


def tune_model(
    words: SubjectOptions,
    options: ModelOptions,
    tuner: cli.TunerChoice,
    limits: Mapping[str, Any],
    log: str | None,
    option: MeasureOption | None,
    script: cli.ScriptOptions,
) -> int | None:
    from loopwright.graph import extract_tasks, tune
    from loopwright.runtime import device_of_target

    begin = time.monotonic()
    model = words.find_model(options, new_layouts=True)
    _check_device(model.target, option)
    path = log or f"{model.name}.jsonl"
    budget = {name: limits[name] for name in ("timeout", "early_stopping", "min_gain")}
    settings = {**budget, "trials": limits["n_trial"], "measure_option": option}
    settings |= {"tuner": tuner.tuner, "tuner_options": tuner.chosen()[1], "seed": tuner.seed}

    def continued(trials: int | None = None, reached: str = "") -> str:
        return model.command("tune", *cli.again(path, trials, {*_MODEL, reached}))

    console = progress_console(stderr=script.as_json)
    with _interruptible(path, continued(), script.as_json):
        if options.layouts is not None:
            choice = _layouts(model, options.layouts, path, tuner.seed, option, console)
            model = replace(model, layouts=choice)
        with model.limits():
            if model.source is None:
                tasks = extract_tasks(model.module, model.target, layouts=model.layouts)
            else:
                tasks = extract_tasks(model.source, model.target, batches=model.batches)
        check_log(path, [one.task.key for one in tasks])
        settings["timeout"] = cli.time_left(settings["timeout"], begin)
        head = f"{model.words[0]} on {model.target}: {len(tasks)} tasks, tuner {tuner.tuner}"
        run = partial(tune, tasks, log=path, **settings)
        summary = _with_table(console, f"{head}, log {path}", lambda table: run(callbacks=[table]))
    steps = _continued(summary, limits["n_trial"], summary.most_trials, continued)
    on_cpu = device_of_target(model.target.kind) in (None, "cpu")
    build = ("--history", path, *(("--finalists", "3") if on_cpu else ()))
    steps += [
        ("inspect", model.command("inspect", "--history", path)),
        ("compare", model.command("bench", "--history", path)),
        ("build", model.command("build", *build, "-o", f"{model.name}{BUILT}")),
    ]
    return _print_summary(summary, [_expected(summary)], steps, script)


def _check_device(target: Target, option: MeasureOption | None) -> None:
    """Refuse a target that cannot run here, or on the devices that are named."""
    check_can_measure()
    target.check_machine()
    measured_on(target, "" if option is None else option.runner.devices)


def check_log(path: str, keys: Sequence[str]) -> None:
    """Refuse a log that cannot be written, or into which another process tunes one of the tasks."""
    Store(path).close()
    for key in keys:
        with lock_log(path, key):
            pass


@contextmanager
def _interruptible(path: str, command: str, as_json: bool) -> Iterator[None]:
    """On Ctrl-C say how to continue, and end the verb with code 130."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        click.echo(f"interrupted; every finished trial is in {path}", err=as_json)
        click.echo(f"to continue:\n  {command}", err=as_json)
        if as_json and isinstance(stopped, tuning.TuningInterrupted):
            click.echo(json.dumps(stopped.summary.to_json()))
        raise click.exceptions.Exit(130) from stopped


def _with_table(console: Console, head: str, tune: Callable[[tuning.TaskTable], _T]) -> _T:
    """Tune beside a live table, below a line of text, if any."""
    if head:
        console.print(harmless_lines(head), markup=False, soft_wrap=True)
    with closing(tuning.task_table(console)) as table:
        return tune(table)


def _print_summary(
    summary: tuning.TasksSummary,
    more: Sequence[str],
    steps: Sequence[tuple[str, str]],
    script: cli.ScriptOptions,
) -> int | None:
    if verbosity() != Verbosity.QUIET:
        named = [f"  {name + ':':10}{command}" for name, command in steps]
        lines = [*more, *(["next:"] if named else []), *named]
        echo("\n".join(lines), err=script.as_json)
    elif not script.as_json:
        echo("\n".join([*summary.lines(), *more]))
    if script.as_json:
        click.echo(json.dumps(summary.to_json()))
    return cli.NO_GAIN if script.fail_without_gain and not summary.is_gain else None


def _lines(file: Path, target: cli.TargetOptions) -> Iterator[tuple[WorkloadSubject, float]]:
    if not file.is_file():
        raise UsageError(f"no file {str(file)!r}; name a text file with one workload a line")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read as text: {error}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            parsed = _line(line, target)
        except (UsageError, ValueError) as error:
            raise UsageError(f"{file}, line {number}: {error}") from error
        if parsed is not None:
            yield parsed


def _line(line: str, target: cli.TargetOptions) -> tuple[WorkloadSubject, float] | None:
    words = shlex.split(line, comments=True)
    if not words:
        return None
    weight = 1.0
    try:
        weight = float(words[0])
    except ValueError:
        pass
    else:
        if not 0 < weight < math.inf:
            raise UsageError(f"{words[0]} calls; give a number above zero")
        del words[0]
    if not words or not words[0]:
        raise UsageError(f"{line.strip()!r} has no workload behind its number")
    name, *params = words
    return find_workload(name, params, target.target, target.threads), weight


def _layouts(
    model: ModelSubject,
    file: str,
    log: str,
    seed: int,
    option: MeasureOption | None,
    console: Console,
) -> LayoutChoice:
    """The layouts of a file, written first where it is missing, with measurements in the log."""
    from loopwright.graph import LAYOUTS, LayoutChoice, before_layouts, tune_layouts

    if Path(file).exists():
        choice = LayoutChoice.load(file)
        choice.check(before_layouts(model.module, model.target))
        text = f"{choice}, of {file}"
    else:
        check((Path(file), LAYOUTS), error=GraphError)
        Store(log).close()
        settings: dict[str, Any] = {"log": log, "seed": seed, "measure_option": option}
        tune = partial(tune_layouts, model.module, model.target, **settings)
        with model.limits():
            choice = _with_table(console, "", lambda table: tune(callbacks=[table]))
        choice.save(file)
        text = f"{choice}; written to {file}"
    console.print(harmless_lines(f"layouts: {text}"), markup=False, soft_wrap=True)
    return choice


def _expected(summary: tuning.TasksSummary) -> str:
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
