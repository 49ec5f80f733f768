from __future__ import annotations

import numpy as np
import pytest

from loopwright.records.reports.differences import (
    compare_logs,
    machines,
    record_differences,
    time_ratio,
)
from tests.unit.records.reports.made_logs import TASK, record


def words(one, other):
    return [str(difference) for difference in record_differences(one, other)]


def test_two_records_in_words():
    one = record(config={"tile": [-1, 8], "order": "ij", "same": 1})
    other = record(config={"tile": [-1, 4], "same": 1, "vec": True})
    assert words(one, other) == [
        "knob tile: [-1,8] -> [-1,4]",
        "knob order: ij -> absent",
        "knob vec: absent -> true",
    ]
    assert words(one, one) == []


def test_what_else_differs():
    one = record(dag="d1", build="b1", env={"cpu": "Zen 4", "isa": ["avx2", "fma"]})
    other = record(
        dag="d2",
        build="b2",
        env={"cpu": "Zen 5", "isa": ["avx2", "avx512f"], "cores": 2},
        target={"kind": "llvm", "num_threads": 4, "fast_math": True},
        args=[16],
    )
    assert words(one, other) == [
        "task: matmul(8) -> matmul(16)",
        "tensor expression: d1 -> d2",
        "threads: 2 -> 4",
        "CPU: Zen 4 -> Zen 5",
        "instruction set: fma -> avx512f",
        "compiler: b1 -> b2",
    ]


def test_devices_are_compared_by_what_decides_a_time():
    device = {"name": "H200", "arch": "sm_90", "processors": 132, "driver": "13.0"}
    one = record(env={"cpu": "Zen 4", "device": {**device, "uuid": "1"}})
    other = record(env={"cpu": "Zen 4", "device": {**device, "uuid": "2", "processors": 16}})
    assert words(one, other) == ["processors: 132 -> 16"]
    assert words(one, one) == []


def test_equal_knobs_and_another_schedule():
    one, other = record(trace=[["split", 0], ["fuse", 1]]), record(trace=[["split", 0]])
    assert words(one, other) == ['schedule from step 1 on: ["fuse",1] -> no step']


def test_a_ratio_has_an_interval_where_there_are_windows():
    one = record(0, times=(1.0, 1.01, 0.99, 1.0, 1.02))
    other = record(1, times=(2.0, 2.02, 1.98, 2.0, 2.04))
    ratio = time_ratio(one, other)
    assert ratio.value == 2.0
    assert 1.9 < ratio.low <= 2.0 <= ratio.high < 2.1
    assert ratio.same is False
    assert time_ratio(one, one).same is True
    single = time_ratio(one, record(2, 3.0))
    assert (single.value, single.low, single.same) == (3.0, None, None)
    assert single.why_no_interval == "1 window, no interval"
    assert time_ratio(one, record(3, None)) is None


@pytest.mark.parametrize("counts", [(5, 5), (5, 20), (25, 25)])
def test_the_interval_of_a_ratio_holds_the_truth_as_often_as_it_says(counts):
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(300):
        a, b = (tuple(np.exp(rng.normal(0.0, 0.02, count))) for count in counts)
        ratio = time_ratio(record(0, times=a), record(1, times=tuple(1.5 * t for t in b)))
        inside += ratio.low <= 1.5 <= ratio.high
    assert inside >= 0.93 * 300


def test_too_few_windows_for_95_percent_give_no_interval():
    """With three or four the same bootstrap holds the truth in nine cases of ten only."""
    few, many = record(0, times=(1.0, 1.01, 0.99, 1.0)), record(1, times=(2.0,) * 20)
    ratio = time_ratio(few, many)
    assert (ratio.value, ratio.low, ratio.same) == (2.0, None, None)
    assert ratio.why_no_interval == "4 windows, no interval"


def test_two_logs_by_task():
    verdict = {"outcome": "faster", "gain": 0.5, "margin": 0.01, "rounds": 9, "default": "x"}
    one = [record(0, 4e-3), record(1, 2e-3, verdict=verdict), record(2, None)]
    one += [record(0, 1e-3, task="only", op="only")]
    other = [record(5, 1e-3), record(6, 3e-3), record(0, None, task="failed", op="failed")]
    both, mine, theirs = compare_logs(one, other)
    assert (both.task, both.ratio.value) == ("matmul(8)", 0.5)
    assert (both.one.record.trial, both.other.record.trial) == (1, 5)
    assert (both.one.trials, both.one.verdict.gain, both.other.verdict) == (3, 0.5, None)
    assert [str(d) for d in both.differences] == ["knob tile: [-1,1] -> [-1,5]"]
    assert (mine.task, mine.other, mine.ratio) == ("only(8)", None, None)
    assert (theirs.task, theirs.one, theirs.other.record) == ("failed(8)", None, None)


def test_two_machines_are_paired_by_task_where_that_is_unambiguous():
    zen = [record(0, 2e-3)]
    arm = [record(0, 6e-3, env={"cpu": "Arm"}, target={"kind": "llvm", "num_threads": 8})]
    (row,) = compare_logs(zen, arm)
    assert row.ratio.value == 3.0
    assert "CPU: Zen 5 -> Arm" in map(str, row.differences)
    third = record(0, 5e-3, env={"cpu": "Third"}, target={"kind": "llvm", "num_threads": 9})
    rows = compare_logs(zen, [*arm, third])
    assert [(row.one is None, row.other is None) for row in rows] == [
        (False, True),
        (True, False),
        (True, False),
    ]
    # Equal threads decide.
    near = record(0, 5e-3, env={"cpu": "Third"})
    row, rest = compare_logs(zen, [*arm, near])
    assert (row.other.record, rest.other.record) == (near, arm[0])
    assert list(map(len, machines([*zen, *arm, *arm]).values())) == [1, 2]
    assert row.one.setup.task == TASK


@pytest.mark.parametrize("logs", [([], []), ([], [record(0)])])
def test_empty_logs(logs):
    rows = compare_logs(*logs)
    assert [row.one for row in rows] == [None] * len(logs[1])
