"""``records show`` without the template, and the verbs that make logs from logs."""

from __future__ import annotations

import json

import pytest

from loopwright import te
from loopwright.measure.candidate import Candidate, describe
from loopwright.records import Record, Store, best, load
from loopwright.task import TASKS, Task, template


@pytest.fixture
def log(tmp_path):
    """Two records of a template that is gone."""

    @template("test/gone")
    def gone(n):
        A = te.placeholder((n,), "float32", name="A")
        B = te.compute((n,), lambda i: A[i] * 3, name="B")
        s = te.create_schedule(B.op)
        s[B].vectorize(s[B].op.axis[0])
        return s, [B, A]

    task = Task(gone, (8,), "llvm -num-threads=1")
    schedule, tensors = task.instantiate(0)
    path = tmp_path / "gone.jsonl"
    with Store(path) as store:
        store.expression(
            describe(task, Candidate(schedule.dag, [], schedule.arg_ids(tensors), "main"), 0)
        )
        for trial in range(2):
            store.append(
                Record(
                    *(task.alias, task.name, [8], task.target.canonical, {}, (2.0 - trial,)),
                    dag=schedule.dag.hash,
                    trace=schedule.trace_json(),
                    trial=trial,
                )
            )
    del TASKS["test/gone"]
    return path


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--expr", ["te.placeholder((8,)", "A[i] * 3.0"]),
        ("--ir", ["def main(B: out float32[8], A: float32[8])", "vectorized(8)"]),
        ("--code", ["define", "store <8 x float>"]),
    ],
)
def test_what_a_record_is_needs_no_template(cli, log, option, words):
    ran = cli("records", "show", str(log), "best", option)
    assert (ran.code, ran.err) == (0, "")
    assert all(word in ran.out for word in words), ran.out


def test_a_log_that_lacks_the_expression_says_so(cli, log):
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[1:]))
    assert "it was written before logs kept them" in cli(
        "records", "show", str(log), "best", "--ir"
    ).error  # fmt: skip


def test_pick_distill_merge_and_split(cli, log):
    assert cli("records", "pick", str(log), str(log), "-o", "best.jsonl").out == (
        "wrote 1 record of 1 task to best.jsonl\n"
    )
    assert [r.trial for r in load("best.jsonl")] == [1]
    assert cli("records", "distill", str(log), "-k", "2", "-o", "two.jsonl").code == 0
    assert len(load("two.jsonl")) == 1  # both lines are one candidate
    assert "exists" in cli("records", "distill", str(log), "-o", "two.jsonl").error
    ran = cli("records", "merge", str(log), "best.jsonl", "-o", "all.jsonl")
    assert ran.out == "wrote 3 lines to all.jsonl; 2 stood there already\n"
    assert best(load("all.jsonl")).trial == 1
    (line,) = cli("records", "split", "all.jsonl", "-o", "tasks").out.splitlines()
    assert line.startswith("tasks/test_gone_8_")
    assert line.endswith(".jsonl: 2 records")
    assert "no log at" in cli("records", "merge", "none.jsonl", "-o", "x.jsonl").error


@pytest.mark.parametrize(
    ("options", "trials"),
    [
        (["--begin", "1"], [1, 2, 3]),
        (["--end", "2"], [0, 1]),
        (["--begin", "1", "--end", "3"], [1, 2]),
        (["--begin", "1", "--limit", "2"], [2, 3]),
        (["--begin", "9"], []),
    ],
)
def test_a_part_of_a_list(cli, tmp_path, options, trials):
    with Store(tmp_path / "log.jsonl") as store:
        for trial in range(4):
            store.append(Record("t", "t", [], {}, {}, (1.0,), trial=trial))
    ran = cli("records", "list", "log.jsonl", "--json", *options)
    assert [json.loads(line)["trial"] for line in ran.out.splitlines()] == trials
