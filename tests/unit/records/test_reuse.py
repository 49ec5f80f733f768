"""What a record is worth to a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopwright.records import Conditions, Record, Reuse, by_code, differences, reuse_of

RECORD = Record(
    task="t",
    op="t",
    args=[],
    target={"kind": "llvm", "mcpu": "znver4", "num_threads": 2, "fastmath": "contract"},
    config={},
    times=(1.0,),
    space="s",
    build="b",
    seed=1,
    env={"cpu": "EPYC", "isa": "avx2", "cores": 8},
)
SAME = {
    "task": "t",
    "space": "s",
    "build": "b",
    "hardware": RECORD.hardware,
    "threads": 2,
    "target": {"kind": "llvm", "mcpu": "other", "num_threads": 0, "fastmath": "contract"},
}


@pytest.mark.parametrize(
    ("change", "reuse"),
    [
        ({}, Reuse.AS_TRIAL),
        ({"target": None}, Reuse.AS_TRIAL),
        ({"build": "b2"}, Reuse.FOR_TRAINING),
        ({"hardware": "Xeon"}, Reuse.FOR_TRAINING),
        ({"build": "b2", "hardware": "Xeon"}, Reuse.FOR_TRAINING),
        ({"space": "s2"}, Reuse.TRACE_ONLY),
        ({"space": "s2", "build": "b2"}, Reuse.TRACE_ONLY),
        ({"task": "u"}, Reuse.NOT_AT_ALL),
        ({"threads": 1}, Reuse.NOT_AT_ALL),
        ({"target": {"kind": "llvm", "fastmath": "none"}}, Reuse.NOT_AT_ALL),
        ({"task": "u", "space": "s2"}, Reuse.NOT_AT_ALL),
    ],
)
def test_the_rule(change, reuse):
    now = Conditions(**(SAME | change))
    assert reuse_of(RECORD, now) is reuse
    reasons = differences(RECORD, now)
    assert (reasons == ()) == (reuse is Reuse.AS_TRIAL)
    if "target" not in change:
        assert len(reasons) == len(change)


def test_reasons_name_both_values():
    (text,) = differences(RECORD, Conditions(**(SAME | {"threads": 1})))
    assert text == "threads differs: the record has 2, this run 1"
    (text,) = differences(RECORD, Conditions(**(SAME | {"build": ""})))
    assert text == "build differs: the record has b, this run nothing"


def other_build(**changes):
    return replace(RECORD, **{"build": "b0", "code": "c", "ts": 1.0, **changes})


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({}, True),
        ({"dropped": True}, True),
        ({"times": (), "error": {"kind": "WRONG_ANSWER", "text": ""}}, True),
        ({"times": (), "error": {"kind": "RUN_CRASH", "text": ""}}, False),
        ({"times": ()}, False),
        ({"code": ""}, False),
        ({"build": "b"}, False),  # counts without its code
        ({"env": {"cpu": "Xeon"}}, False),
        ({"space": "s2"}, False),
        ({"task": "u"}, False),
        ({"target": {"kind": "llvm", "num_threads": 2, "fastmath": "none"}}, False),
    ],
)
def test_records_of_another_compiler_count_by_their_code(change, counts):
    record = other_build(**change)
    assert by_code([record], Conditions(**SAME)) == ({"c": record} if counts else {})


def test_which_record_of_a_code_counts():
    early, late = other_build(), other_build(ts=2.0)
    dropped = other_build(ts=3.0, dropped=True)
    wrong = other_build(ts=0.0, times=(), error={"kind": "WRONG_ANSWER", "text": ""})
    now = Conditions(**SAME)
    for records in ([early, late, dropped], [dropped, late, early]):
        assert by_code(records, now) == {"c": late}
    assert by_code([early, wrong, late], now) == {"c": wrong}
    assert by_code([early, other_build(code="d")], now).keys() == {"c", "d"}
