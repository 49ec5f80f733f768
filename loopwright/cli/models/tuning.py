"""``loopwright tune model.onnx``: the kernels of a model share a budget, a log and one table."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loopwright.cli import verbosity
from loopwright.cli.harmless import echo, harmless_lines
from loopwright.cli.models.given_model import BUILT, GivenModel, find_model
from loopwright.cli.tuning.options import (
    MEASURING,
    NO_GAIN,
    MeasuringOptions,
    chosen_tuner,
    going_on,
    measuring,
    repeated,
)
from loopwright.cli.verbosity import Verbosity
from loopwright.errors import GraphError
from loopwright.files import check
from loopwright.measure import lock_log
from loopwright.measure.devices import measured_on
from loopwright.records import Store
from loopwright.runtime.artifacts.kinds import device_of_target
from loopwright.task.applying.as_called import duration
from loopwright.tuner import TasksSummary, TuningInterrupted, task_table
from loopwright.tuner.run.budget import count, seconds, share

if TYPE_CHECKING:
    from rich.console import Console

    from loopwright.graph import LayoutChoice, ModelTask
    from loopwright.measure import MeasureOption

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
    console = verbosity.progress_console(stderr=as_json)
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
        click.echo(f"to continue:\n  {_again(model, path)}", err=as_json)
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
    from loopwright.graph.transform.pipeline import before_layouts

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
    if verbosity.chosen() == Verbosity.QUIET:
        if not as_json:
            echo("\n".join([*summary.lines(), _expected(summary)]))
    else:
        echo(_expected(summary), err=as_json)
        echo("\n".join(["next:", *_next_steps(model, path, summary, asked)]), err=as_json)
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


def _next_steps(
    model: GivenModel, path: str, summary: TasksSummary, asked: int | None
) -> list[str]:
    change = going_on(summary.stopped, asked, summary.trials, summary.most_trials)
    steps = []
    if change is not None and summary.stopped != "tasks":
        steps.append(("continue", _again(model, path, *change)))
    steps.append(("inspect", model.command("inspect", "--history", path)))
    steps.append(("compare", model.command("bench", "--history", path)))
    out = f"{model.name}{BUILT}"
    on_cpu = device_of_target(model.target.kind) in (None, "cpu")
    finalists = ("--finalists", "3") if on_cpu else ()
    steps.append(("build", model.command("build", "--history", path, *finalists, "-o", out)))
    return [f"  {what + ':':10}{line}" for what, line in steps]


def _again(model: GivenModel, path: str, trials: int | None = None, without: str = "") -> str:
    """The command line of this run, to be pasted into a shell; arguments as in ``tune``."""
    names = [*_REPEATED, *MEASURING, *(["trials"] if trials is None else [])]
    options = ["--log", path, *repeated([name for name in names if name != without])]
    if trials is not None:
        options += ["--trials", str(trials)]
    return model.command("tune", *options)
