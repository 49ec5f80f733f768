"""From a model to tasks, to records, and back into the model."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import graph
from loopwright.errors import GraphError, RecordError, UsageError
from loopwright.graph import op
from loopwright.graph.kernels import expression_of
from loopwright.graph.transform.pipeline import prepared
from loopwright.graph.tuning import ModelTask
from loopwright.records import Checked, Record, load
from loopwright.task import Match
from loopwright.testing.tuner_contract import FakeMeasurer
from tests.covering import covering
from tests.unit.graph.small_onnx import layers_by_numpy, perceptron

pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')

TARGET = "llvm -num-threads=1"
X = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")


@pytest.fixture(scope="module")
def module() -> graph.IRModule:
    return graph.from_onnx(perceptron())


@pytest.fixture(scope="module")
def log(module: graph.IRModule, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in which the model has been tuned, really; do not write to it."""
    path = tmp_path_factory.mktemp("tuned") / "model.jsonl"
    runner = lw.LocalRunner(number=1, repeat=3, min_repeat_ms=0)
    option = lw.measure_option(runner=runner)
    summary = lw.tune(module, TARGET, log=path, trials=6, tuner="random", measure_option=option)
    assert summary.trials == 6
    return path


# -- extraction ---------------------------------------------------------------------------------


def test_equal_kernels_are_one_task_with_its_calls(module: graph.IRModule) -> None:
    tasks = graph.extract_tasks(module, TARGET)
    assert [(t.weight, t.ops[0]) for t in tasks] == [
        (2, "nn.dense"),
        (1, "nn.dense"),
        (1, "nn.softmax"),
    ]
    assert len({t.task.key for t in tasks}) == 3
    assert sum(t.weight for t in tasks) == len(prepared(module).program.steps)


def test_tasks_are_of_the_expressions_that_are_built(module: graph.IRModule) -> None:
    planned = prepared(module)
    wanted = {}
    for name, (function, constants) in planned.kernels.items():
        args = expression_of(function, constants).args
        wanted[name] = lw.create_task(args, target=TARGET).key
    found = graph.extract_tasks(module, TARGET, include_simple_tasks=True)
    assert {name: t.task.key for t in found for name in t.kernels} == wanted


def test_kernels_of_one_expression_under_two_names_are_one_task() -> None:
    x = graph.var("x", (4, 8))
    ways = (op.mean(x, axis=axis) for axis in ((1,), (-1,)))
    model = graph.IRModule.from_expr(graph.Tuple(tuple(ways)))
    (task,) = graph.extract_tasks(model, TARGET)
    assert (task.weight, len(task.kernels)) == (2, 2)
    assert set(task.kernels) == set(prepared(model).kernels)


def test_simple_tasks_and_a_filter_of_operators() -> None:
    x = graph.var("x", (4, 8))
    y = op.nn.softmax(op.transpose(op.nn.softmax(op.tanh(x)), axes=(1, 0)))
    model = graph.IRModule.from_expr(y)
    names = {t.ops for t in graph.extract_tasks(model, TARGET)}
    assert all("nn.softmax" in ops for ops in names)
    every = graph.extract_tasks(model, TARGET, include_simple_tasks=True)
    assert {t.ops for t in every if t.is_simple} == {t.ops for t in every} - names
    only = graph.extract_tasks(model, TARGET, ops=["transpose"])
    assert only
    assert all("transpose" in t.ops for t in only)
    image, weight = graph.var("image", (1, 16, 8, 8)), np.ones((16, 16, 1, 1), "float32")
    model = graph.IRModule.from_expr(op.nn.conv(image, weight))
    for name in ("nn.conv", "nn.conv_channels_last"):
        (found,) = graph.extract_tasks(model, TARGET, ops=[name])
        assert "nn.conv_channels_last" in found.ops
    with pytest.raises(GraphError, match=r"no operator 'nn.softmx' \(did you mean 'nn.softmax'"):
        graph.extract_tasks(model, TARGET, ops=["nn.softmx"])
    with pytest.raises(GraphError, match="a list of names"):
        graph.extract_tasks(model, TARGET, ops="nn.softmax")
    with pytest.raises(GraphError, match="a int is no model"):
        graph.extract_tasks(5, TARGET)  # type: ignore[arg-type]


# -- tuning -------------------------------------------------------------------------------------


def test_a_budget_is_shared_and_goes_on_from_the_log(
    module: graph.IRModule, tmp_path: Path
) -> None:
    path = tmp_path / "m.jsonl"
    given: dict[str, Any] = {"log": path, "tuner": "random", "measure_option": FakeMeasurer()}
    first = lw.tune(module, TARGET, trials=6, **given)
    assert [row.weight for row in first.rows] == [2, 1, 1]  # what does most comes first
    assert all(row.trials for row in first.rows)
    again = lw.tune(module, TARGET, trials=9, **given)
    assert (again.from_log, again.measured, again.trials) == (6, 3, 9)
    tasks = graph.extract_tasks(module, TARGET)
    assert {r.task for r in load(path)} == {t.task.key for t in tasks}
    latency = sum(row.weight * row.best_seconds for row in again.rows if row.best_seconds)
    assert again.latency == pytest.approx(latency)


KILLED = """
import os, signal, sys
import loopwright as lw
from loopwright.testing.tuner_contract import FakeMeasurer
from tests.unit.graph.small_onnx import perceptron

left = [5]

def die(index):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

lw.tune(perceptron(), "llvm -num-threads=1", log=sys.argv[1], trials=9, tuner="random",
        measure_option=FakeMeasurer(on_trial=die))
"""


def test_kernels_are_timed_as_if_the_weights_of_the_model_were_read_in_between(
    module: graph.IRModule, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = graph.extract_tasks(module, TARGET)
    weights = sum(a.nbytes for a in prepared(module).constants.values())
    assert sum(t.weight * t.constant_bytes for t in tasks) == weights
    assert {h["measure"]["runner"]["other_constants"] for h in load(log).headers} == {weights}
    own: list[Any] = []
    monkeypatch.setattr(
        "loopwright.graph.tuning.tune_tasks", lambda _, **given: own.append(given["measure_option"])
    )
    option = lw.measure_option(runner=lw.LocalRunner(other_constants=0, check=False))
    lw.tune(tasks, log=tmp_path / "own.jsonl", trials=3, tuner="random", measure_option=option)
    assert [one.runner.other_constants for one in own] == [0]


@pytest.mark.usefixtures("processes_share_the_cpu")
def test_a_run_that_was_killed_goes_on(module: graph.IRModule, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    ran = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=120, check=False)
    assert ran.returncode == -9
    kept = len(load(path))
    assert kept == 4
    summary = lw.tune(
        module, TARGET, log=path, trials=9, tuner="random", measure_option=FakeMeasurer()
    )
    assert (summary.from_log, summary.trials) == (kept, 9)


def test_what_cannot_be_tuned_is_refused(module: graph.IRModule, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with pytest.raises(UsageError, match="less than one trial for each of the 3 tasks"):
        lw.tune(module, TARGET, log=path, trials=2)
    with pytest.raises(UsageError, match="n_trial: of a model it is called trials"):
        lw.tune(module, TARGET, log=path, n_trial=8)
    with pytest.raises(UsageError, match="is not a duration"):
        lw.tune(module, TARGET, log=path, timeout="soon")
    simple = graph.IRModule.from_expr(op.tanh(graph.var("x", (4,))))
    with pytest.raises(GraphError, match="no kernel that computes more"):
        lw.tune(simple, TARGET, log=path)
    with pytest.raises(GraphError, match="the tasks that extract_tasks gives"):
        lw.tune([1], TARGET, log=path)  # type: ignore[list-item]
    with pytest.raises(UsageError, match="making 3 tasks of the model took longer"):
        lw.tune(module, TARGET, log=path, timeout=1e-6)
    assert not path.exists()


# -- building -----------------------------------------------------------------------------------


def test_a_model_is_built_from_the_best_records(
    module: graph.IRModule, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "loopwright"):
        model = lw.compile(module, TARGET, history=str(log))
    assert "default configuration" not in caplog.text
    np.testing.assert_allclose(model(X)[0], layers_by_numpy(X)[-1], rtol=1e-4, atol=1e-6)
    assert set(model.choices) == set(model.kernels)
    records = {name: choice.record for name, choice in model.choices.items()}
    assert all(record is not None for record in records.values())
    best = {t.task.key: t.kernels for t in graph.extract_tasks(module, TARGET)}
    for record in records.values():
        assert record is not None
        assert record.task in best
    assert "record" in str(model.report)


def test_kernels_without_a_record_get_their_default(module: graph.IRModule, log: Path) -> None:
    softmax = graph.extract_tasks(module, TARGET, ops=["nn.softmax"])
    of_softmax = [r for r in load(log) if r.task == softmax[0].task.key]
    assert of_softmax
    model = graph.compile(module, TARGET, history=of_softmax)
    have = {name for name, choice in model.choices.items() if choice.record is not None}
    assert have == set(softmax[0].kernels)
    np.testing.assert_allclose(model(X)[0], layers_by_numpy(X)[-1], rtol=1e-4, atol=1e-6)


def code_of(model: graph.CompiledModel) -> dict[str, bytes]:
    return {name: kernel.artifact.objects for name, kernel in model.kernels.items()}


def unverified(log: Path) -> list[Record]:
    """The log of a run that ended before its playoffs, whose later trials were the faster ones, and
    all of whose answers were checked."""
    return [
        replace(r, checked=Checked.YES, dropped=False, times=[t / (1 + r.trial) for t in r.times])
        for r in load(log)
        if not r.phase
    ]


def test_what_no_playoff_compared_is_built_by_default(module: graph.IRModule, log: Path) -> None:
    before = unverified(log)
    plain = code_of(graph.compile(module, TARGET))
    for model in (
        graph.compile(module, TARGET, history=before),
        graph.compile(module, TARGET, history=lw.apply_history_best(before)),
    ):
        assert {choice.match for choice in model.choices.values()} == {Match.DEFAULT}
        assert all(choice.unverified for choice in model.choices.values())
        assert str(model.report).count("unverified: not compared with the default") == 3
        assert code_of(model) == plain
    with lw.apply_history_best(before) as around:
        graph.compile(module, TARGET)
    assert {choice.match for choice in around.report()} == {Match.DEFAULT}
    # Who says that records decide gets them, and so does whoever lets them compete in the model.
    trusting = lw.apply_history_best(before, verdicts=False)
    model = graph.compile(module, TARGET, history=trusting)
    assert Match.DEFAULT not in {choice.match for choice in model.choices.values()}
    inside = graph.compile(module, TARGET, history=before, finalists=2).inside
    assert inside is not None
    origins = [one.origin for place in inside for one in place.finalists]
    assert any("record " in origin for origin in origins), origins
    np.testing.assert_allclose(model(X)[0], layers_by_numpy(X)[-1], rtol=1e-4, atol=1e-6)


def test_a_context_around_counts_and_a_history_goes_before_it(
    module: graph.IRModule, log: Path
) -> None:
    with lw.apply_history_best(str(log)) as around:
        assert len(graph.compile(module, TARGET).choices) == 0
        built = len(around.report())
        model = graph.compile(module, TARGET, history=[])
    assert built == len(around.report()) == 3
    assert not any(choice.record for choice in model.choices.values())


@pytest.mark.parametrize(("rank", "padding"), covering([1, 2, 3], [0, 1], strength=1))
def test_convolutions_of_any_rank_are_built_with_a_history(rank: int, padding: int) -> None:
    weight = np.full((8, 4, *(3,) * rank), 0.25, "float32")
    image = graph.var("image", (1, 4, *(6,) * rank))
    model = graph.IRModule.from_expr(op.nn.conv(image, weight, padding=padding))
    assert len(graph.extract_tasks(model, TARGET)) == 1
    x = np.random.default_rng(rank).integers(-4, 5, (1, 4, *(6,) * rank)).astype("float32")
    padded = np.pad(x, [(0, 0), (0, 0), *[(padding, padding)] * rank])
    dims = tuple(range(2, 2 + rank))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3,) * rank, axis=dims)
    sums = windows.sum(axis=(1, *(d + rank for d in dims))) / 4
    y = graph.compile(model, TARGET, history=[])(x)[0]
    np.testing.assert_array_equal(y, np.stack([sums] * 8, axis=1))


def test_logs_that_cannot_be_read_are_refused(module: graph.IRModule, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="missing"):
        graph.compile(module, TARGET, history=str(tmp_path / "missing.jsonl"))


def test_a_model_may_be_a_file_or_its_bytes(tmp_path: Path) -> None:
    model = perceptron()
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    for given in (path, str(path), path.read_bytes(), model):
        found = graph.extract_tasks(given, TARGET)
        assert [type(t) for t in found] == [ModelTask] * 3
    np.testing.assert_allclose(lw.compile(path, TARGET)(X)[0], layers_by_numpy(X)[-1], rtol=1e-4)
