from __future__ import annotations

import json

import pytest

from loopwright.records import Record, Store

TASK = '["matmul",[8,8,8],"llvm"]'


def record(trial, seconds=1e-3, **fields):
    given = {
        "task": TASK, "op": "matmul", "args": [8, 8, 8], "target": {"kind": "llvm"},
        "config": {"tile": [-1, trial]}, "times": (seconds,) if seconds else (),
        "trial": trial, "run": "r1", "ts": 1e9 + trial,
    }  # fmt: skip
    return Record(**{**given, **fields})


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    with Store(path) as store:
        store.header({"run": "r1"})
        store.append(record(0, 4e-3))
        store.append(record(1, 2e-3))
        store.append(record(2, 1e-3, dropped=True))
        store.append(record(3, None, error={"kind": "COMPILE", "text": "no"}))
        store.append(record(4, 3e-3, run="r2"))
        store.append(record(5, 9e-3, op="other", task='["other",[1],"opencl"]', args=[1],
                            target={"kind": "opencl"}))  # fmt: skip
    return path


def test_list(cli, log):
    ran = cli("records", "list", str(log))
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert len(lines) == 8
    assert "matmul(8, 8, 8)" in lines[1]
    assert "4 ms" in lines[1]
    assert "dropped" in lines[3]
    assert "COMPILE" in lines[4]
    assert "tile=[-1,3]" in lines[4]
    assert lines[-1] == "6 of 6 records shown: 1 failed, 2 tasks, 1 run, 0 skipped lines"


@pytest.mark.parametrize(
    ("options", "trials"),
    [
        ([], [0, 1, 2, 3, 4, 5]),
        (["--task", "other"], [5]),
        (["--target", "opencl"], [5]),
        (["--run", "r2"], [4]),
        (["--status", "failed"], [3]),
        (["--status", "dropped"], [2]),
        (["--status", "usable"], [0, 1, 4, 5]),
        (["--status", "valid"], [0, 1, 2, 4, 5]),
        (["--limit", "2"], [4, 5]),
        (["--sort", "time", "--limit", "3"], [2, 1, 4]),
    ],
)
def test_list_as_json_with_filters(cli, log, options, trials):
    ran = cli("records", "list", str(log), "--json", *options)
    assert [json.loads(line)["trial"] for line in ran.out.splitlines()] == trials


def test_best_per_task(cli, log):
    ran = cli("records", "best", str(log), "--json")
    assert [json.loads(line)["trial"] for line in ran.out.splitlines()] == [1, 5]
    ran = cli("records", "best", str(log), "--json", "-k", "2", "--task", "matmul")
    assert [json.loads(line)["trial"] for line in ran.out.splitlines()] == [1, 4]


def test_show(cli, log):
    best = cli("records", "show", str(log), "best", "--task", "matmul")
    assert "speed:    2 ms a call; 1 window; answer not checked" in best.out
    assert "rank:     1 of 3 candidates" in best.out
    line = cli("records", "show", str(log), "best", "--task", "matmul", "--json").out
    name = Record.from_line(line).id
    assert cli("records", "show", str(log), name[:8], "--json").out == line


def test_show_of_what_is_not_there(cli, log):
    ran = cli("records", "show", str(log), "zzzz")
    assert ran.code == 2
    assert "has no record 'zzzz'" in ran.error
    assert "has no record ''" in cli("records", "show", str(log), "").error


def test_a_missing_log(cli):
    ran = cli("records", "list", "nope.jsonl")
    assert ran.code == 2
    assert "no log at 'nope.jsonl'" in ran.error


def test_torn_newer_and_foreign_lines_are_counted(cli, log):
    with log.open("a") as file:
        file.write('{"v": 99, "task": "x"}\nhello\n' + record(7).to_line()[:40])
    ran = cli("records", "list", str(log))
    assert ran.code == 0
    assert "3 skipped lines" in ran.out
    assert "version 99 is newer than 1" in ran.err
    assert "torn line" in ran.err


def test_no_usable_record(cli, tmp_path):
    path = tmp_path / "failed.jsonl"
    with Store(path) as store:
        store.append(record(0, None, error={"kind": "MEMORY", "text": "oom"}))
    ran = cli("records", "best", str(path))
    assert ran.code == 1
    assert "no usable record among 1" in ran.error
    none = cli("records", "best", str(path), "--target", "cuda")
    assert none.error.endswith("has no record for target 'cuda'; it has llvm")
