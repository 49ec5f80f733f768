"""Many records asked at once say what each of them says."""

from __future__ import annotations

from dataclasses import replace

from loopwright.records import Conditions, Reuse, fields_of, once_for_equal, reuse_of, reuses_of
from tests.unit.records.test_reuse import RECORD, SAME


def test_a_function_is_asked_once_for_equal_records():
    other = replace(RECORD, space="another")
    number, flag = replace(RECORD, args=[1]), replace(RECORD, args=[True])
    asked = []

    def judge(item):
        asked.append(item)
        return item.space, item.args

    many = [RECORD, replace(RECORD, trial=2), other, RECORD, number, flag]
    said = once_for_equal(judge, many, ("space", "args"))
    assert [repr(one) for one in said] == [repr((r.space, r.args)) for r in many]
    assert asked == [RECORD, other, number, flag]
    assert once_for_equal(judge, [], ("space",)) == []


def test_fields_of_many_records():
    many = [RECORD, replace(RECORD, trial=2, space="another")]
    assert fields_of(many, "trial", "space") == [[RECORD.trial, 2], [RECORD.space, "another"]]
    assert fields_of(iter(many), "kind") == [[RECORD.kind] * 2]
    assert fields_of([], "ts", "id") == [[], []]


def test_what_many_records_are_worth_is_what_each_is_worth():
    changes = [
        {}, {"task": "u"}, {"space": "s2"}, {"build": "b2"}, {"env": {"cpu": "Xeon"}},
        {"target": {"kind": "llvm", "fastmath": "none", "num_threads": 2}},
        {"target": {**RECORD.target, "num_threads": 3}}, {"trial": 7, "seed": 5},
    ]  # fmt: skip
    many = [replace(RECORD, **change) for change in changes] * 2
    now = Conditions(**SAME)
    assert reuses_of(many, now) == [reuse_of(one, now) for one in many]
    assert set(reuses_of(many, now)) == set(Reuse)
