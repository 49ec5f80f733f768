"""What a record is worth to a run."""

from __future__ import annotations

import pytest

from loopwright.records import Record, Standing, already_measured, explain

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
    "task_key": "t",
    "space": "s",
    "build": "b",
    "hardware": RECORD.hardware,
    "threads": 2,
    "target": {"kind": "llvm", "mcpu": "other", "num_threads": 0, "fastmath": "contract"},
}


@pytest.mark.parametrize(
    ("change", "standing"),
    [
        ({}, Standing.COUNTS),
        ({"target": None}, Standing.COUNTS),
        ({"build": "b2"}, Standing.PRETRAINS),
        ({"hardware": "Xeon"}, Standing.PRETRAINS),
        ({"build": "b2", "hardware": "Xeon"}, Standing.PRETRAINS),
        ({"space": "s2"}, Standing.TRACE_ONLY),
        ({"space": "s2", "build": "b2"}, Standing.TRACE_ONLY),
        ({"task_key": "u"}, Standing.UNRELATED),
        ({"threads": 1}, Standing.UNRELATED),
        ({"target": {"kind": "llvm", "fastmath": "none"}}, Standing.UNRELATED),
        ({"task_key": "u", "space": "s2"}, Standing.UNRELATED),
    ],
)
def test_the_rule(change, standing):
    conditions = SAME | change
    assert already_measured(RECORD, **conditions) is standing
    reasons = explain(RECORD, **conditions)
    assert (reasons == ()) == (standing is Standing.COUNTS)
    if "target" not in change:
        assert len(reasons) == len(change)


def test_reasons_name_both_values():
    (text,) = explain(RECORD, **(SAME | {"threads": 1}))
    assert text == "threads differs: the record has 2, this run 1"
    (text,) = explain(RECORD, **(SAME | {"build": ""}))
    assert text == "build differs: the record has b, this run nothing"
