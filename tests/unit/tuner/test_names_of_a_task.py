"""A task is what it computes: names and arguments of templates are aliases."""

from __future__ import annotations

import pytest

import loopwright as lw
from loopwright import te
from loopwright.cli import main
from loopwright.measure import MeasureResult
from loopwright.records import Record, by_task, distill, expression_key, keys_of, load, task_key
from loopwright.task import get_config, template
from loopwright.testing.tuner_contract import FakeMeasurer
from loopwright.tuner import RandomTuner, log_to_file


def tiled(n, inner_first=False):
    A = te.placeholder((n, n), "float32", name="A")
    B = te.compute((n, n), lambda i, j: A[i, j] * 2.0, name="B")
    s = te.create_schedule(B.op)
    cfg = get_config()
    i, j = s[B].op.axis
    cfg.define_split("tile_i", i, num_outputs=2)
    cfg.define_split("tile_j", j, num_outputs=2)
    i0, i1 = cfg["tile_i"].apply(s, B, i)
    j0, j1 = cfg["tile_j"].apply(s, B, j)
    s[B].reorder(*((j0, i0) if inner_first else (i0, j0)), i1, j1)
    return s, [A, B]


@template("test/names/one")
def one(n):
    return tiled(n)


@template("test/names/two")
def two(n, unused=0):
    return tiled(n)


@template("test/names/other_order")
def other_order(n):
    return tiled(n, inner_first=True)


def doubled(n):
    A = te.placeholder((n, n), "float32", name="A")
    return [A, te.compute((n, n), lambda i, j: A[i, j] * 2.0, name="B")]


class Times(FakeMeasurer):
    """A time for each configuration."""

    def result(self, index):
        return MeasureResult(times=(1e-3 * (1 + index * 37 % 101),), ts=1.0)


def task(name, args=(32,)):
    return lw.create_task(name, args, "llvm")


def tuned(name, path, n_trial, args=(32,)):
    tuner = RandomTuner(task(name, args), seed=1)
    measure = {"n_trial": n_trial, "measure_option": Times(), "callbacks": [log_to_file(path)]}
    return tuner.tune(**measure)


def test_tasks_that_compute_the_same_are_one():
    first, second = task("test/names/one"), task("test/names/two")
    automatic = lw.create_task(doubled(32), target="llvm")
    assert first.key == second.key == automatic.key == expression_key(first.dag_hash, "llvm")
    assert first.alias == task_key("test/names/one", (32,), "llvm") != second.alias
    assert automatic.alias == automatic.key
    assert first.key != task("test/names/one", (64,)).key
    assert first.key != lw.create_task("test/names/one", (32,), "c").key


def test_constant_operands_are_part_of_it():
    def of(constant):
        A = te.placeholder((8, 8), "float32", name="A")
        W = te.placeholder((8, 8), "float32", name="W", constant=constant)
        return [A, W, te.compute((8, 8), lambda i, j: A[i, j] * W[i, j], name="B")]

    keys = [lw.create_task(of(constant), target="llvm").key for constant in (False, True)]
    assert keys[0] != keys[1]


def test_tuning_goes_on_under_either_name(tmp_path):
    path = tmp_path / "log.jsonl"
    assert tuned("test/names/one", path, 10).measured == 10
    again = tuned("test/names/two", path, 10)
    assert (again.measured, again.from_log) == (0, 10)
    assert tuned("test/names/two", path, 16).measured == 6
    back = tuned("test/names/one", path, 16)
    assert (back.measured, back.from_log) == (0, 16)
    trials = [r for r in load(path).records if not r.phase]
    assert len({str(r.config) for r in trials}) == len(trials) == 16
    assert {r.op for r in trials} == {"test/names/one", "test/names/two"}


def test_equal_knobs_of_another_schedule_count_for_nothing(tmp_path):
    path = tmp_path / "log.jsonl"
    tuned("test/names/one", path, 10)
    first, other = task("test/names/one"), task("test/names/other_order")
    assert first.key == other.key
    assert first.config_space.space_hash == other.config_space.space_hash
    summary = tuned("test/names/other_order", path, 10)
    assert (summary.measured, summary.from_log) == (10, 0)


@pytest.mark.parametrize("asked", ["test/names/one", "test/names/two", "test/names/other_order"])
def test_a_build_under_any_name_gets_the_best_record(asked, tmp_path):
    path = tmp_path / "log.jsonl"
    tuned("test/names/one", path, 10)
    history = lw.apply_history_best(path)
    s, _ = history.apply(task(asked))
    assert s.trace_json() == lw.records.best(load(path)).trace
    automatic = lw.create_task(doubled(32), target="llvm")
    assert history.apply(automatic)[0].trace_json() == s.trace_json()


def test_records_are_told_by_what_they_compute(tmp_path, capsys):
    logs = [str(tmp_path / name) for name in ("one.jsonl", "two.jsonl")]
    tuned("test/names/one", logs[0], 6)
    tuned("test/names/two", logs[1], 6, (32, 5))
    whole = str(tmp_path / "whole.jsonl")
    assert main(["records", "merge", *logs, "-o", whole]) == 0
    log = load(whole)
    assert list(by_task(log)) == [task("test/names/one").key]
    assert len(distill(log)) == 1
    assert lw.records.best(log, task=task("test/names/two").key) is not None
    assert {r.op for r in lw.records.top_k(log, 99, task("test/names/one").alias)} == {
        "test/names/one"
    }
    capsys.readouterr()
    assert main(["records", "show", whole, "best"]) == 0
    shown = capsys.readouterr().out
    assert "test/names/one(32)" in shown
    assert "test/names/two(32, 5)" in shown


def record(op, dag, trial, **more):
    fields = {"op": op, "args": [1], "target": {"kind": "llvm"}, "config": {"a": trial}}
    times = () if more.get("error") else (1.0 + trial,)
    return Record(
        task=task_key(op, [1], "llvm"), times=times, dag=dag, trial=trial, **fields, **more
    )


def test_keys_of_old_records():
    failed = {"error": {"kind": "INSTANTIATION", "text": ""}}
    known, unknown = record("a", "d0", 0), record("b", "", 1)
    shaped = [record("c", "d1", 2), record("c", "d2", 3), record("d", "d1", 5)]
    lost = record("a", "", 4, **failed)
    assert keys_of([known, unknown, *shaped, lost]) == [
        expression_key("d0", "llvm"),
        unknown.task,  # what it computes was not noted
        shaped[0].task,  # knobs shape what it computes
        shaped[0].task,
        expression_key("d1", "llvm"),
        expression_key("d0", "llvm"),  # failed before it was known
    ]
