"""``loopwright explain``: the features of one candidate, and their part in a model's prediction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from loopwright.cli import schedules
from loopwright.cli.console import echo
from loopwright.cli.named_record import RecordName, emit_option
from loopwright.cli.workload import find_workload, workload_options
from loopwright.errors import LoopwrightError, RecordError, UsageError
from loopwright.records import Json

if TYPE_CHECKING:
    from loopwright.records import Log, Record
    from loopwright.task import Choice, ConfigEntity, Task
    from loopwright.tuner import Explanation
    from loopwright.tuner.model.xgb_model import XGBCostModel


#: Features shown where a model says which of them matter.
_TOP = 20


@click.command(
    "explain", short_help="Show what a cost model sees of a kernel, and what makes it fast."
)
@workload_options
@click.option(
    "--config",
    metavar="INDEX",
    help="Which configuration: its index in the space, its knobs as JSON, `default`, or `best` for "
    "the best of the log [default: best, or default without a log].",
)
@click.option(
    "--history", type=click.Path(), metavar="LOG", help="A log from which a cost model learns."
)
@click.option(
    "--feature-type",
    default="itervar",
    show_default=True,
    metavar="KIND",
    help="What the model sees: itervar (numbers about each loop), knob (the choices themselves) or "
    "curve (how often data is used again).",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help=f"How many features to show [default: all; with a model the {_TOP} that matter most].",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def explain_command(
    workload: str,
    params: tuple[str, ...],
    target: str,
    threads: int | None,
    config: str | None,
    history: str | None,
    feature_type: str,
    limit: int | None,
    as_json: bool,
) -> None:
    """Print the features of one configuration of WORKLOAD: the numbers about its loops, such as
    lengths, strides and bytes touched, from which a cost model predicts its speed. With --history a
    model learns from a log, and the features that move its prediction most come first. Of an
    automatic space the structure, its reasons and its loops are printed before.
    """
    from loopwright.tuner import explain

    task = find_workload(workload, params, target, threads).task
    log = None if history is None else _load(history)
    best = None if log is None else _best(task, log)
    record = None if best is None else best.record
    chosen = _chosen(task, config, log, record)
    model = None if log is None else _model(task, log, feature_type)
    explanation = explain(task, chosen, model, feature_type)
    measured = best if record is not None and record.config == explanation.config.values else None
    if limit is None and model is not None:
        limit = max(1, min(_TOP, sum(bool(x.contribution) for x in explanation.lines)))
    if as_json:
        click.echo(json.dumps(_json(task, explanation, measured, limit)))
    else:
        _print(task, explanation, measured, limit)


def _load(path: str) -> Log:
    from loopwright.records import open_log

    log = open_log(path)
    if complaint := log.complaint():
        echo(complaint, err=True)
    return log


def _best(task: Task, log: Log) -> Choice:
    """The best record of a task; a message on standard error when there is none."""
    from loopwright.task import apply_history_best

    choice = apply_history_best(log.records).explain(task)
    if choice.record is None:
        reasons = "; ".join(choice.reasons)
        echo(f"{log.path}: no record of {task} can be used ({reasons})", err=True)
    return choice


def _chosen(task: Task, config: str | None, log: Log | None, record: Record | None) -> ConfigEntity:
    """The configuration that was asked for."""
    space = task.config_space
    if config == "best" and log is None:
        raise UsageError("--config best is that of a log: name it with --history")
    if config == "best" and record is None:
        raise UsageError("--config best: the log has none; give an index or `default`")
    if config == "default" or (config is None and record is None):
        return space.get(space.default_index)
    try:
        if config in (None, "best"):
            assert record is not None
            return space.get(space.index_of(record.config))
        return space.get(_index(task, str(config)))
    except LoopwrightError as error:
        if config in (None, "best"):
            raise RecordError(f"the best record of the log cannot be explained: {error}") from error
        raise UsageError(f"--config {config}: {error}") from error


def _index(task: Task, text: str) -> int:
    try:
        given: Json = json.loads(text)
    except ValueError:
        given = None
    if isinstance(given, dict):
        return task.config_space.index_of(given)
    if type(given) is not int:
        raise UsageError("give an index, the knobs as JSON, `default` or `best`")
    return given


def _model(task: Task, log: Log, feature_type: str) -> XGBCostModel | None:
    """A model that learned from the log; None, with a message on standard error, without enough."""
    from loopwright.tuner import learn

    model = learn(task, log, feature_type)
    if model.ready:
        return model
    click.echo(f"{log.path}: too few records of {task} to learn from", err=True)
    return None


def _structure(task: Task, config: ConfigEntity) -> dict[str, Json]:
    """Structure, reasons and loops of a configuration; empty for the space of a template."""
    from loopwright.inspection.emission import outline
    from loopwright.lowering import lower
    from loopwright.space import AutomaticTask
    from loopwright.task.union import STRUCTURE

    if not isinstance(task, AutomaticTask):
        return {}
    part, _ = task.part(config)
    why = list(getattr(part, "why", ()))  # a template that stands in the list gives no reasons
    loops = outline(lower(*task.instantiate(config))).splitlines()
    return {"structure": config.values[STRUCTURE], "why": why, "loops": list(loops)}


def _json(
    task: Task, explanation: Explanation, measured: Choice | None, limit: int | None
) -> dict[str, Json]:
    return {
        "task": str(task),
        "index": explanation.config.index,
        "config": explanation.config.values,
        **_structure(task, explanation.config),
        "seconds": None if measured is None else measured.expected,
        "estimate": explanation.estimate,
        "predicted": explanation.predicted,
        "ahead": explanation.ahead,
        "features": [
            {"name": x.name, "value": x.value, "contribution": x.contribution}
            for x in explanation.lines[:limit]
        ],
    }


def _print(
    task: Task, explanation: Explanation, measured: Choice | None, limit: int | None
) -> None:
    from rich.console import Console

    from loopwright.tuner.run.output.summary import speed
    from loopwright.tuner.run.state import flop_of

    click.echo(f"{task} on {task.target}, configuration {explanation.config.index}")
    if measured is not None and measured.record is not None and measured.expected:
        gflops = flop_of(task) / measured.expected / 1e9
        note = ", ".join(filter(None, [f"record {measured.record.id}", measured.note]))
        echo(f"measured: {speed(measured.expected, gflops)} ({note})")
    for name, value in _structure(task, explanation.config).items():
        lines = value if isinstance(value, list) else [value]
        for number, line in enumerate(lines):
            echo(f"{f'{name}:' if not number else '':10} {line}")
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(explanation.table(limit))
    else:
        # A file or a pipe gets whole lines, whatever the width of the screen.
        click.echo(explanation.text(limit))
    if limit is not None and len(explanation.lines) > limit:
        click.echo(f"{len(explanation.lines) - limit} more features; --limit shows more")


@click.command("analyze", short_help="Say what every stage of an expression is.")
@workload_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def analyze_command(
    workload: str, params: tuple[str, ...], target: str, threads: int | None, as_json: bool
) -> None:
    """Say what every stage of WORKLOAD is: a contraction, a window, a reduction of rows or of
    everything, a transpose, a gather or an injective stage; which loops each operand moves with,
    how far in memory, and how often what it reads is used again. All is told from the expression;
    nothing is built.
    """
    from loopwright.space import analyze

    resolved = find_workload(workload, params, target, threads)
    program = getattr(resolved.task, "program", None)
    args = schedules.default(resolved).args if program is None else program.args
    stages = analyze([t for t in args if t.op.input_tensors])
    if as_json:
        click.echo(json.dumps([stage.to_json() for stage in stages]))
        return
    echo(f"{resolved.task}")
    for stage in stages:
        echo(f"\n{stage}")


#: Beginning of a comment in each text.
_COMMENT = {
    "nest": "#", "llvm": ";", "c": "//", "asm": "#", "opencl": "//", "cuda": "//", "ptx": "//",
    "hip": "//",
}  # fmt: skip


@click.command("lower", short_help="Print the loop nest, before and after the best record.")
@workload_options
@schedules.history_options
@emit_option
@click.option("--python", "as_python", is_flag=True, help="Print the schedules as Python instead.")
def lower_command(
    workload: str,
    params: tuple[str, ...],
    target: str,
    threads: int | None,
    history: tuple[str, ...],
    allow_default: bool,
    record: str | None,
    trial: int | None,
    run: str | None,
    emit: str | None,
    as_python: bool,
) -> None:
    """Print the loop nest of WORKLOAD under its default configuration and, with --history, under
    the best record of a log, or the one that --record names. The nest is what the compiler
    translates: loops, how they run, and what each touches.
    """
    from loopwright import inspection

    if as_python and emit is not None:
        raise UsageError("--python prints a schedule, --emit what it becomes; give one of both")
    resolved = find_workload(workload, params, target, threads)
    name = RecordName(record, trial, run)
    shown = [("default configuration", schedules.default(resolved))]
    tuned = schedules.best(resolved, history, name, allow_default=allow_default, check=False)
    if tuned is not None:
        shown.append((tuned.choice, tuned))
    kind = emit or "nest"
    for title, scheduled in shown:
        echo(f"{_COMMENT[kind]} {title}")
        if as_python:
            echo(scheduled.schedule.as_python())
            continue
        with scheduled.context():
            text = inspection.emit(scheduled.schedule, scheduled.args, resolved.task.target, kind)
        echo(text)
