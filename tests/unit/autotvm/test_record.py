"""Logs as AutoTVM's scripts read them."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from loopwright import autotvm, records
from loopwright.errors import RecordError
from loopwright.task.dispatch import clear_fallback_cache

TASK = autotvm.task.create("matmul", args=(16, 16, 16, False, False, "float32"), target="llvm")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    autotvm.tuner.RandomTuner(TASK).tune(n_trial=5, callbacks=[autotvm.callback.log_to_file(path)])
    return path


def written(path, **fields):
    """The log with one more record, changed."""
    record = replace(records.load(path).records[0], **fields)
    return f"{path.read_text()}{record.to_line()}\n"


def test_pairs_of_inputs_and_results(log):
    pairs = list(autotvm.record.load_from_file(log))
    known = records.load(log).records
    assert len(pairs) == len(known)
    for (inp, result), record in zip(pairs, known, strict=True):
        assert isinstance(inp, autotvm.MeasureInput)
        assert inp.task.workload == TASK.workload
        assert inp.target.canonical == TASK.target.canonical
        assert inp.config.values == record.config
        assert TASK.config_space.get(inp.config.index).values == record.config
        assert result.costs == record.times
        assert result.error_no == 0
    assert len({id(inp.task) for inp, _ in pairs}) == 1
    best = min(pairs, key=lambda pair: sum(pair[1].costs) / len(pair[1].costs))
    assert best[0].config.index is not None


def test_pairs_are_applied_as_their_log_is(log):
    pairs = autotvm.record.load_from_file(log)
    with autotvm.apply_history_best(pairs) as given, autotvm.apply_history_best(log) as same:
        assert given.explain(TASK).record == same.explain(TASK).record
        assert given.explain(TASK).record is not None


def test_what_cannot_be_read_is_said_once(log, tmp_path, caplog):
    clear_fallback_cache()
    other = tmp_path / "other.jsonl"
    key = records.task_key("no/such", [1], "llvm")
    other.write_text(written(log, op="no/such", task=key) + "torn\n")
    with caplog.at_level(logging.WARNING, "loopwright"):
        for _ in range(2):
            assert len(list(autotvm.record.load_from_file(other))) == len(records.load(log))
    assert len(caplog.messages) == 2
    assert "1 line skipped" in caplog.messages[0]
    assert "1 x the template 'no/such' is not registered" in caplog.messages[1]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"args": [16, 16], "task": records.task_key("matmul", [16, 16], "llvm")}, "matmul: "),
        ({"target": {"kind": "abacus"}}, "unknown target 'abacus'"),
        ({"config": {"tile_i": "x"}}, "configurations do not fit"),
    ],
)
def test_records_that_fit_nothing_are_passed_over(log, tmp_path, caplog, fields, text):
    clear_fallback_cache()
    other = tmp_path / "other.jsonl"
    other.write_text(written(log, **fields))
    with caplog.at_level(logging.WARNING, "loopwright"):
        assert len(list(autotvm.record.load_from_file(other))) == len(records.load(log))
    assert text in caplog.messages[0]


def test_values_outside_of_the_space_have_no_index(log, tmp_path):
    config = {**TASK.config_space.get(0).values, "tile_i": [-1, 1, 99]}
    (tmp_path / "a.jsonl").write_text(written(log, config=config))
    pair = list(autotvm.record.load_from_file(tmp_path / "a.jsonl"))[-1]
    assert pair[0].config.index is None


def test_no_log(tmp_path):
    with pytest.raises(RecordError, match="no log at"):
        list(autotvm.record.load_from_file(tmp_path / "nowhere.jsonl"))
