"""Databases of results, and the callback that fills them."""

from __future__ import annotations

import pytest

from loopwright import autotvm
from loopwright.errors import UsageError
from loopwright.measure import MeasureError
from loopwright.testing.tuner_contract import FakeMeasurer, bowl

TASK = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm")
DummyDatabase = autotvm.database.DummyDatabase


def inp(index):
    return autotvm.MeasureInput(TASK.target, TASK, TASK.config_space.get(index))


def res(seconds, ts=0.0):
    return autotvm.MeasureResult(times=(seconds,), ts=ts)


def test_results_are_found_by_their_inputs():
    db = DummyDatabase()
    assert db.load(inp(1)) is None
    assert db.load(inp(1), get_all=True) is None
    db.save(inp(1), res(1.0, ts=5.0))
    db.save(inp(1), res(2.0, ts=4.0), extend=True)
    db.save(inp(2), res(3.0))
    assert db.load(inp(1)).costs == (1.0,)
    assert [r.costs for r in db.load(inp(1), get_all=True)] == [(1.0,), (2.0,)]
    db.save(inp(1), res(7.0))
    assert [r.costs for r in db.load(inp(1), get_all=True)] == [(7.0,)]
    found = db.filter(lambda i, results: results[0].costs[0] > 5)
    assert [(i.config.index, r.costs) for i, r in found] == [(1, (7.0,))]
    db.flush()
    assert db.load(inp(2)) is None


def test_known_inputs_are_told_from_the_others():
    db = DummyDatabase()
    failed = autotvm.MeasureResult(error=MeasureError("RUN_CRASH", "it crashed"))
    db.save(inp(1), res(1.0))
    db.save(inp(2), failed)
    asked = [inp(1), inp(2), inp(3)]
    partial, unsaved = autotvm.database.filter_inputs(db, asked)
    assert (partial[0].costs, partial[1], partial[2]) == ((1.0,), failed, None)
    assert unsaved == asked[2:]
    partial, unsaved = autotvm.database.filter_inputs(db, asked, retry=True)
    assert (partial[1], unsaved) == (None, asked[1:])


def test_every_trial_goes_to_the_database():
    db = DummyDatabase()
    tuner = autotvm.tuner.RandomTuner(TASK)
    store = autotvm.callback.log_to_database(db)
    tuner.tune(n_trial=20, measure_option=FakeMeasurer(bowl), callbacks=[store])
    kept = db.filter(lambda i, results: True)
    assert len(kept) == 20
    assert min(r.costs[0] for _, r in kept) == pytest.approx(tuner.best[1].costs[0])


def test_what_is_no_database_is_refused():
    with pytest.raises(UsageError, match=r"a database with save.*use log_to_file; got 'x.jsonl'"):
        autotvm.callback.log_to_database("x.jsonl")
