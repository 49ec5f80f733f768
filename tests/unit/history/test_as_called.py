"""`build(..., verify=True)`: expected and actual, and why they differ."""

from __future__ import annotations

import random
import statistics
import time

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import BuildError
from loopwright.history import call_overhead as as_called
from loopwright.history.call_overhead import AsCalled, TurnRatio, time_as_called
from loopwright.records import Checked, Record, environment
from loopwright.task import create_task, get_config, template

EVEN = TurnRatio(1.0, 0.98, 1.02)


def add_one(index_dtype=None):
    @template("add_one", make_inputs=None if index_dtype is None else lambda n: [np.arange(n)])
    def add_one(n):
        get_config().define_knob("none", [0, 1])
        a = te.placeholder((n,), index_dtype or "float32", name="a")
        b = te.compute((n,), lambda i: a[i] + te.const(1, a.dtype), name="b")
        return te.create_schedule(b.op), [a, b]

    return add_one


def record_of(task, seconds):
    s, _ = task.instantiate(1)
    return Record(
        *(task.alias, task.name, list(task.args), task.target.canonical, {"none": 1}, (seconds,)),
        dag=s.dag.hash,
        env=environment(),
        ts=time.time(),
        checked=Checked.YES,
    )


def test_expected_and_actual_are_in_the_report(caplog):
    function = add_one("int32")
    task = create_task(function, (64,), "llvm -num-threads=1")
    with task.target, lw.apply_history_best([record_of(task, 1000.0)]) as history:
        s, args = function(64)
        module = lw.build(s, args, verify=True)
    (choice,) = history.report()
    assert choice.actual.expected == choice.expected == 1000.0
    assert 0 < choice.actual.seconds < 1000
    assert "expected 1000 s" in str(history.report())
    assert "called on NumPy arrays it takes" in str(choice)
    a, b = np.arange(64, dtype="int32"), np.zeros(64, "int32")
    module(a, b)
    np.testing.assert_array_equal(b, a + 1)


def test_an_operand_that_is_used_as_an_index_stays_inside():
    @template("test/gather")
    def gather(rows):
        get_config().define_knob("none", [0, 1])
        table = te.placeholder((rows, 16), name="table")
        which = te.placeholder((8,), "int32", name="which")
        out = te.compute((8, 16), lambda i, j: table[which[i], j], name="out")
        return te.create_schedule(out.op), [table, which, out]

    # The only index of a table of one row is 0.
    task = create_task(gather, (1,), "llvm -num-threads=1")
    with task.target, lw.apply_history_best([record_of(task, 1000.0)]) as history:
        s, args = gather(1)
        with lw.transform.PassContext(config={"instrument_bound_checkers": True}):
            lw.build(s, args, verify=True)
    assert history.report()[0].actual is not None


def test_what_cannot_be_verified_is_refused():
    function = add_one()
    s, args = create_task(function, (64,)).instantiate(0)
    with pytest.raises(BuildError, match="inside apply_history_best"):
        lw.build(s, args, verify=True)
    n = te.size_var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i], name="b")
    module = lw.build(te.create_schedule(b.op), [a, b])
    with pytest.raises(BuildError, match="takes any size"):
        time_as_called(module, None)


@pytest.mark.parametrize(
    ("calls", "offset", "busy", "word"),
    [
        (1.0, 1.0, 1.0, None),
        (1.0, 2.0, 1.0, "allocate them with loopwright.nd.empty"),
        (1.5, 1.0, 1.0, "calling it from Python, not pinned, costs 1.50 x"),
        (1.0, 1.0, 3.0, "the machine is busy or slower"),
    ],
)
def test_the_likely_cause_is_named(monkeypatch, caplog, calls, offset, busy, word):
    """Times that are made up: what costs, costs by a known factor."""

    def from_python(function, arrays, number):
        offsets = {array.ctypes.data % 64 for array in arrays}
        assert offsets in ({0}, {16})
        return busy * calls * (offset if offsets == {16} else 1.0)

    monkeypatch.setattr(as_called, "_in_tuning", lambda *args: busy)
    monkeypatch.setattr(as_called, "_from_python", from_python)
    function = add_one()
    task = create_task(function, (64,), "llvm -num-threads=1")
    with task.target, lw.apply_history_best([record_of(task, 1.0)]) as history:
        lw.build(*function(64), verify=True)
    actual = history.report()[0].actual
    assert actual.seconds == busy * calls * offset
    assert len(actual.causes) == (word is not None)
    assert word is None or word in actual.causes[0]
    assert ("more than it should" in caplog.text) == (word is not None)


def test_without_a_record_there_is_nothing_to_expect():
    text = str(AsCalled(0.002, 0.001, None, EVEN, EVEN))
    assert text == "called on NumPy arrays it takes 2 ms"


def test_the_interval_of_a_ratio_holds_its_median():
    """Order statistics: the second lowest and highest of nine miss the median in 4 % of cases."""
    rng = random.Random(3)
    missed = 0
    for _ in range(4000):
        slow = [rng.lognormvariate(0, 1) for _ in range(as_called.ROUNDS)]
        found = TurnRatio.of(slow, [1.0] * len(slow))
        assert found.low <= found.middle == statistics.median(slow) <= found.high
        missed += not found.low <= 1.0 <= found.high
    assert 0.025 < missed / 4000 < 0.055  # 2 * (1 + 9) / 2 ** 9 is 3.9 %
