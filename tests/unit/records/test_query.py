"""Best, top-k and merging."""

from __future__ import annotations

import pytest

from loopwright.errors import RecordError
from loopwright.records import Record, Store, best, by_task, distill, load, pick_best, top_k


def make(config, *times, task="t", ts=0.0, cpu="EPYC", threads=1, **changes):
    return Record(
        task=task,
        op="t",
        args=[],
        target={"kind": "llvm", "num_threads": threads},
        config={"a": config},
        times=times,
        ts=ts,
        env={"cpu": cpu},
        **changes,
    )


def test_best_is_by_median_and_never_failed_or_dropped():
    records = [
        make(1, 5.0, 5.0, 0.1),  # the fastest single time
        make(2, 4.0, 4.0, 9.0),
        make(3, 1.0, dropped=True),
        make(4, error={"kind": "COMPILE", "text": ""}),
        make(5, 2.0, task="other"),
    ]
    assert best(records, "t") is records[1]
    assert best(records) is records[4]
    assert best(records, "none") is None
    assert best([]) is None
    assert top_k(records, 5, "t") == [records[1], records[0]]
    assert top_k(records, 1, "t") == [records[1]]
    assert top_k(records, 0) == []


def test_a_candidate_measured_again_is_judged_by_the_latest():
    lucky, later, other = make(1, 1.0, ts=1), make(1, 3.0, ts=2), make(2, 2.0, ts=1)
    assert top_k([later, lucky, other], 9) == [other, later]


def test_a_wrong_answer_takes_a_candidate_out():
    wrong = make(1, ts=2, error={"kind": "WRONG_ANSWER", "text": "off by 3"})
    slow = make(2, 9.0)
    assert top_k([make(1, 1.0, ts=1), wrong, slow, make(1, 1.0, ts=3)], 9) == [slow]
    timeout = make(1, ts=2, error={"kind": "RUN_TIMEOUT", "text": ""})
    assert len(top_k([make(1, 1.0, ts=1), timeout, slow], 9)) == 2


def test_ties_go_to_the_earlier_line():
    records = [make(number, 1.0) for number in range(5)]
    assert top_k(records, 3) == records[:3]


def test_filters():
    records = [make(1, 1.0, cpu="Xeon"), make(1, 2.0, threads=2), make(1, 3.0)]
    assert best(records, hardware=records[2].hardware, threads=1) is records[2]
    assert best(records, threads=2) is records[1]


def test_by_task_keeps_order():
    records = [make(1, 1.0, task="b"), make(1, 1.0, task="a"), make(2, 1.0, task="b")]
    assert list(by_task(records)) == ["b", "a"]
    assert by_task(records)["b"] == [records[0], records[2]]


def test_distill_keeps_one_per_task_hardware_and_threads():
    records = [
        make(1, 2.0),
        make(2, 1.0),
        make(1, 5.0, task="b"),
        make(1, 9.0, threads=2),
        make(1, 9.0, cpu="Xeon"),
        make(1, error={"kind": "COMPILE", "text": ""}, task="c"),
    ]
    assert distill(records) == [records[1], records[2], records[3], records[4]]


def write(path, *records):
    with Store(path) as store:
        for record in records:
            store.append(record)


def test_pick_best_merges_with_what_is_there(tmp_path):
    source, out = tmp_path / "log.jsonl", tmp_path / "best.jsonl"
    write(source, make(1, 2.0), make(2, 1.0), make(3, 3.0, task="b"))
    assert pick_best(source, out) == load(out).records == [make(2, 1.0), make(3, 3.0, task="b")]
    write(source, make(4, 0.5, task="b"))
    more = tmp_path / "more.jsonl"
    write(more, make(5, 1.5))
    pick_best(source, out)
    pick_best(more, out)
    assert {record.config["a"] for record in load(out)} == {2, 4}
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "best.jsonl",
        "log.jsonl",
        "more.jsonl",
    ]
    with pytest.raises(RecordError):
        pick_best(tmp_path / "none", out)
