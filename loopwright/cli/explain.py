"""``loopwright explain | analyze | lower``: a look into a workload, without a measurement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from loopwright.cli import options as cli
from loopwright.cli.console import announce, echo
from loopwright.cli.model import SubjectOptions
from loopwright.errors import LoopwrightError, RecordError, UsageError
from loopwright.records import Json, Log, load

if TYPE_CHECKING:
    from loopwright.history import Choice
    from loopwright.task import ConfigEntity, Task
    from loopwright.tuner import Explanation


#: Features shown where a model says which of them matter.
_TOP = 20
#: Beginning of a comment in texts of a kernel, where it is not that of C.
_COMMENT = {"nest": "#", "llvm": ";", "asm": "#"}


@cli.verb("explain")
def explain_command(
    *,
    subject: SubjectOptions,
    config: str | None = cli.option(
        "--config INDEX",
        "The configuration: its index in the space, its knobs as JSON, `default`, or `best` for "
        "the best of the log [default: best, or default without a log].",
    ),
    history: str | None = cli.option(
        "--history LOG", "A log from which a cost model learns.", type=click.Path()
    ),
    feature_type: str = cli.option(
        "--feature-type KIND",
        "What the model sees: itervar (numbers about each loop), knob (the choices themselves) or "
        "curve (how often data is used again).",
        shown="itervar",
    ),
    limit: int | None = cli.option(
        "--limit N",
        f"How many features to show [default: all; with a model the {_TOP} that matter most].",
        type=click.IntRange(1),
    ),
    as_json: bool = cli.json_option("Print JSON instead of a table."),
) -> None:
    """Print the features of one configuration of WORKLOAD: the numbers about its loops, such as
    lengths, strides and bytes touched, from which a cost model predicts its speed. With --history a
    model learns from a log, and the features that move its prediction most come first. For an
    automatic space the structure, its reasons and its loops are printed first.
    """
    from loopwright.history import apply_history_best
    from loopwright.tuner import explain, learn

    task = subject.find_workload().task
    log, best, model = None, None, None
    if history is not None:
        log = load(history)
        if complaint := log.complaint():
            announce(complaint)
        best = apply_history_best(log.records).explain(task)
        if best.record is None:
            reasons = "; ".join(best.reasons)
            announce(f"{log.path}: no record of {task} can be used ({reasons})")
    chosen = _chosen(task, config, log, best)
    if log is not None:
        model = learn(task, log, feature_type)
        if not model.ready:
            announce(f"{log.path}: too few records of {task} to learn from")
            model = None
    explanation = explain(task, chosen, model, feature_type)
    record = None if best is None else best.record
    measured = best if record is not None and record.config == explanation.config.values else None
    if limit is None and model is not None:
        limit = max(1, min(_TOP, sum(bool(x.contribution) for x in explanation.lines)))
    if not as_json:
        _print(task, explanation, measured, limit)
        return
    figures = {
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
    click.echo(json.dumps(figures))


def _chosen(task: Task, config: str | None, log: Log | None, best: Choice | None) -> ConfigEntity:
    space = task.config_space
    record = None if best is None else best.record
    if config == "best" and log is None:
        raise UsageError("--config best is that of a log: name it with --history")
    if config == "best" and record is None:
        raise UsageError("--config best: the log has none; give an index or `default`")
    if config == "default" or (config is None and record is None):
        return space.get(space.default_index)
    if config in (None, "best"):
        assert record is not None
        try:
            return space.get(space.index_of(record.config))
        except LoopwrightError as error:
            raise RecordError(f"the best record of the log cannot be explained: {error}") from error
    value: Json = None
    with suppress(ValueError):
        value = json.loads(str(config))
    try:
        index = space.index_of(value) if isinstance(value, Mapping) else value
        if type(index) is not int:
            raise UsageError("give an index, the knobs as JSON, `default` or `best`")
        return space.get(index)
    except LoopwrightError as error:
        raise UsageError(f"--config {config}: {error}") from error


def _structure(task: Task, config: ConfigEntity) -> dict[str, Json]:
    """Structure, reasons and loops of a configuration; empty for the space of a template."""
    from loopwright.inspection import outline
    from loopwright.lowering import lower
    from loopwright.space import AutomaticTask
    from loopwright.task import STRUCTURE

    if not isinstance(task, AutomaticTask):
        return {}
    part, _ = task.part(config)
    why = list(getattr(part, "why", ()))  # a template that stands in the list gives no reasons
    loops = outline(lower(*task.instantiate(config))).splitlines()
    return {"structure": config.values[STRUCTURE], "why": why, "loops": list(loops)}


def _print(
    task: Task, explanation: Explanation, measured: Choice | None, limit: int | None
) -> None:
    from rich.console import Console

    from loopwright.tuner import flop_of, speed

    click.echo(f"{task} on {task.target}, configuration {explanation.config.index}")
    if measured is not None and measured.record is not None and measured.expected:
        gflops = flop_of(task) / measured.expected / 1e9
        note = ", ".join(filter(None, [f"record {measured.record.id}", measured.note]))
        echo(f"measured: {speed(measured.expected, gflops)} ({note})")
    for name, value in _structure(task, explanation.config).items():
        for number, line in enumerate(value if isinstance(value, list) else [value]):
            echo(f"{f'{name}:' if not number else '':10} {line}")
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(explanation.table(limit))
    else:  # a file or a pipe gets whole lines, whatever the width of the screen
        click.echo(explanation.text(limit))
    if limit is not None and len(explanation.lines) > limit:
        click.echo(f"{len(explanation.lines) - limit} more features; --limit shows more")


@cli.verb("analyze")
def analyze_command(*, subject: SubjectOptions, as_json: bool = cli.json_option()) -> None:
    """Say what every stage of WORKLOAD is: a contraction, a window, a reduction of rows or of
    everything, a transpose, a gather or an injective stage; which loops each operand moves with,
    how far in memory, and how often what it reads is used again. All of this follows from the
    expression; nothing is built.
    """
    from loopwright.inspection import default_schedule
    from loopwright.space import analyze

    task = subject.find_workload().task
    program = getattr(task, "program", None)
    args = default_schedule(task).args if program is None else program.args
    stages = analyze([t for t in args if t.op.input_tensors])
    if as_json:
        click.echo(json.dumps([stage.to_json() for stage in stages]))
        return
    echo(f"{task}")
    for stage in stages:
        echo(f"\n{stage}")


@cli.verb("lower")
def lower_command(
    *,
    subject: SubjectOptions,
    history: cli.HistoryOptions,
    record: cli.RecordOptions,
    emit: str | None = cli.emit_option(),
    as_python: bool = cli.flag("--python", "Print the schedules as Python instead."),
) -> None:
    """Print the loop nest of WORKLOAD under its default configuration and, with --history, under
    the best record of a log, or the one that --record names. The nest is what the compiler
    translates: loops, how they run, and what each touches.
    """
    from loopwright import inspection
    from loopwright.inspection import default_schedule

    if as_python and emit is not None:
        raise UsageError("--python prints a schedule, --emit what it becomes; give one of both")
    task = subject.find_workload().task
    shown = [("default configuration", default_schedule(task))]
    tuned = history.schedule(task, record, check=False)
    if tuned is not None:
        shown.append((tuned.choice, tuned))
    kind = emit or "nest"
    for title, chosen in shown:
        echo(f"{_COMMENT.get(kind, '//')} {title}")
        if as_python:
            echo(chosen.schedule.as_python())
            continue
        with chosen.context():
            echo(inspection.emit(chosen.schedule, chosen.args, task.target, kind))
