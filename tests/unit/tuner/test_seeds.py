"""Points that records of TVM's operators name are measured before others."""

from __future__ import annotations

import json

import pytest

import loopwright as lw
from loopwright.compat.autotvm import Pair
from loopwright.testing.tuner_contract import FakeMeasurer
from loopwright.tuner import RandomTuner, XGBTuner, log_to_file


def line(m, n, k, y, x, seconds, error=0):
    entity = [["tile_y", "sp", [-1, y]], ["tile_x", "sp", [-1, x]], ["tile_k", "sp", [-1, 16]]]
    args = [["TENSOR", [m, k], "float32"], ["TENSOR", [n, k], "float32"], None, "float32"]
    return json.dumps(
        {
            "input": ["llvm -mcpu=skylake-avx512", "dense_nopack.x86", args, {}],
            "config": {"index": 3, "code_hash": None, "entity": entity},
            "result": [[seconds], error, 1.0, 1.5e9],
            "version": 0.2,
        }
    )


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "tvm.log"
    lines = [
        line(8, 24, 64, 4, 2, 3e-4),
        line(8, 24, 64, 2, 3, 1e-4),
        line(8, 24, 64, 1, 1, 1e9, error=4),  # a failure
        line(8, 24, 64, 1, 6, 2e-4),
        line(16, 24, 64, 1, 6, 2e-5),  # of another workload
    ]
    path.write_text("\n".join(lines))
    return path


def task():
    return lw.create_task("dense", (8, 24, 64), "llvm -mcpu=x86-64-v4")


def measurer():
    return FakeMeasurer(lambda index: 1e-3 + index * 1e-9)


def tiles(path):
    configs = [r.config for r in lw.records.load(path) if not r.phase]
    return [(c["tile_i"][-1], c["tile_j"][-1], c["pack"]) for c in configs]


NAMED = [(2, 3, "dot"), (1, 6, "dot"), (4, 2, "dot")]


@pytest.mark.parametrize(
    "kind",
    [RandomTuner, pytest.param(XGBTuner, marks=pytest.mark.slow(reason="trains a model: 2 s"))],
)
def test_named_points_follow_the_default_fastest_first(kind, log, tmp_path):
    tuner = kind(task())
    assert tuner.load_history(lw.records.load(log)) == 5
    path = tmp_path / "own.jsonl"
    summary = tuner.tune(6, measurer(), callbacks=[log_to_file(path)])
    assert tiles(path)[1:4] == NAMED
    assert len(tiles(path)) == 6
    (first,) = [note for note in summary.notes if note.startswith("seeds:")]
    assert first == (
        "seeds:   3 points that the fastest of 4 records of TVM's operators name are measured first"
    )
    # They are no history: nothing of another space or too few of a task.
    assert not any(note.startswith("model:") for note in summary.notes)


@pytest.mark.slow(reason="six runs: 3 s")
def test_a_run_that_was_cut_off_measures_the_rest_of_them(log, tmp_path):
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    for path, budgets in ((whole, [20]), (parts, [2, 3, 20])):
        for trials in budgets:
            tuner = RandomTuner(task(), seed=3)
            tuner.load_history(lw.records.load(log))
            tuner.tune(trials, measurer(), callbacks=[log_to_file(path)])
    assert tiles(parts) == tiles(whole)
    # In a log that was begun without them they come next.
    later = tmp_path / "later.jsonl"
    RandomTuner(task(), seed=3).tune(16, measurer(), callbacks=[log_to_file(later)])
    tuner = RandomTuner(task(), seed=3)
    tuner.load_history(lw.records.load(log))
    tuner.tune(20, measurer(), callbacks=[log_to_file(later)])
    assert tiles(later)[16:19] == NAMED


def test_a_log_of_other_workloads_says_of_which(log):
    tuner = RandomTuner(lw.create_task("dense", (8, 24, 65), "llvm"))
    tuner.load_history(lw.records.load(log))
    assert tuner.seeds.points == []
    assert tuner.notes[0] == (
        f"seeds:   no record is of {tuner.task}; the 5 records of TVM's operators are of "
        "dense M=8 N=24 K=64; dense M=16 N=24 K=64"
    )


def test_records_that_cannot_be_read_and_failures_are_told_apart(log):
    unread = json.dumps({**json.loads(line(8, 24, 65, 1, 6, 1e-4)), "input": [
        "llvm", "dense_nopack.x86", ["x"], {}
    ]})  # fmt: skip
    failed = line(8, 24, 64, 1, 1, 1e9, error=4)
    why = "dense_nopack.x86: its arguments are others than are known here"
    unknown = f"seeds:   1 x not known of which workload: {why}"
    for lines, notes in (
        ([unread], [f"seeds:   no record is of {task()}", unknown]),
        ([unread, line(16, 24, 64, 1, 6, 1e-4)], [
            f"seeds:   no record is of {task()}; the 1 record of TVM's operators is of dense M=16 "
            "N=24 K=64", unknown
        ]),
        ([failed], [
            "seeds:   0 points that the fastest of 1 record of TVM's operators name are measured "
            "first", "seeds:   1 x dense_nopack.x86: it has no time, only a failure",
        ]),
    ):  # fmt: skip
        tuner = RandomTuner(task())
        tuner.load_history(lw.records.load_lines(lines))
        assert list(tuner.seeds.notes) == notes


def test_structures_of_a_space_are_named_too():
    args = [["TENSOR", [1, 8, 14, 14], "float32"], ["TENSOR", [32, 8, 1, 1], "float32"]]
    entity = [["tile_ic", "sp", [1, 8]], ["tile_oc", "sp", [2, 16]], ["tile_ow", "sp", [2, 7]]]
    log = {
        "input": ["llvm", "conv2d_NCHWc.x86", [*args, [1, 1], [0, 0, 0, 0], [1, 1]], {}],
        "config": {"index": 3, "code_hash": None, "entity": [*entity, ["tile_oh", "ot", 1]]},
        "result": [[1e-4], 0, 1.0, 1.5e9],
        "version": 0.2,
    }
    own = lw.create_task("conv2d", (1, 8, 14, 14, 32, 1, 1), "llvm -mcpu=x86-64-v4")
    tuner = RandomTuner(own)
    tuner.load_history(lw.records.load_lines([json.dumps(log)]))
    (seed,) = tuner.seeds.points
    assert seed == own.config_space.get(seed.index)
    assert seed.values["structure"] == "x x f, W packed at root, vectors outside"
    assert (seed.values["tile"], seed.values["row_block"]) == ([7, 16], 2)


def test_own_records_and_pairs_are_what_they_were(log, tmp_path):
    path = tmp_path / "own.jsonl"
    RandomTuner(task()).tune(3, measurer(), callbacks=[log_to_file(path)])
    own = lw.records.load(path)
    tuner = RandomTuner(lw.create_task("dense", (16, 24, 64), "llvm -mcpu=x86-64-v4"))
    pairs = list(lw.autotvm.record.load_from_file(path))
    assert tuner.load_history([*pairs, *own]) == 2 * len(own)
    assert tuner.load_history(lw.records.load(log)) == 2 * len(own) + 5
    assert tuner.pretrained == [*pairs, *own]
    # A pair of AutoTVM's form has its record.
    foreign = [Pair(record, pairs[0][0]) for record in lw.records.load(log)]
    assert tuner.load_history(foreign) == 2 * len(own) + 10
    assert tuner.pretrained == [*pairs, *own]
    assert len(tuner.seeds.points) == 1
    with pytest.raises(lw.errors.UsageError, match="load_history takes records"):
        tuner.load_history([3])
