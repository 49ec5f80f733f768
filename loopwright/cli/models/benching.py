"""``loopwright bench`` of a model: default, tuned and ONNX Runtime in turns."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from loopwright.cli.harmless import echo
from loopwright.cli.models.building import compiled_one
from loopwright.cli.models.given_model import GivenModel, find_model, told_fallbacks
from loopwright.cli.models.timing import place_of, sampler, waited
from loopwright.errors import UsageError
from loopwright.graph.fallbacks import random_inputs
from loopwright.records import compared
from loopwright.records.reports.spread import spread_text

if TYPE_CHECKING:
    from loopwright.graph import CompiledModel
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
        times = _in_turns(samplers, rounds)
    gains = _gains(times)
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
    _table(times)
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


def _in_turns(samplers: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Samples of each in seconds, starting with another one each round."""
    names = list(samplers)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        start = turn % len(names)
        for name in [*names[start:], *names[:start]]:
            times[name].append(samplers[name]())
    return times


def _gains(times: Mapping[str, list[float]]) -> list[str]:
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


def _table(times: Mapping[str, list[float]]) -> None:
    click.echo(f"{'':14}{'median':>12}{'spread':>10}{'speed-up':>10}")
    base = statistics.median(times["default"])
    for name, found in times.items():
        median = statistics.median(found)
        spread = spread_text(found)
        click.echo(f"{name:14}{median * 1e3:>9.4g} ms{spread:>10}{base / median:>9.2f}x")
