"""``--history``: what is unchecked is checked first, wrong records make way, no default unasked."""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from loopwright.records import Checked, Outcome, Store, Verdict, load
from tests.cli.conftest import WORKLOAD

#: The variant 1 computes something else than the reference says.
TEMPLATE = """
from loopwright import te
from loopwright.task import get_config, template

@template("test/add", reference=lambda a: a + 1)
def add(n):
    cfg = get_config()
    cfg.define_knob("variant", [0, 1])
    a = te.placeholder((n,), "float32", name="a")
    b = te.compute((n,), lambda i: a[i] + (1.0 + cfg["variant"].val), name="b")
    s = te.create_schedule(b.op)
    s[b].vectorize(b.op.axis[0])
    return s, [a, b]
"""
ADD = ("add.py:add", "n=16", "--threads", "1")


@pytest.fixture
def rewritten(tmp_path):
    """Write a log with its records changed."""

    def rewrite(source, change, name="log.jsonl"):
        with Store(tmp_path / name) as store:
            for record in load(source):
                store.append(dataclasses.replace(record, **change(record)))
        return name

    return rewrite


def unchecked(record):
    return {"checked": Checked.NO, "check_reason": "", "verdict": None}


def test_what_was_never_checked_is_checked_once(cli, tuned, rewritten):
    log = rewritten(tuned, unchecked)
    before = len(load(log).records)
    ran = cli("build", *WORKLOAD, "--history", log, "-o", "mm.o")
    assert ran.code == 0, ran.err
    assert "was never checked: checking it" in ran.err
    *_, check = load(log).records
    assert (check.phase, check.checked, check.times) == ("check", Checked.YES, ())
    assert check.max_error is not None
    again = cli("build", *WORKLOAD, "--history", log, "-o", "mm.o")
    assert again.code == 0
    assert again.err == ""
    assert len(load(log).records) == before + 1
    # A table: task, record, match, age, hardware, expected, actual, checked.
    head, row, *_ = again.out.splitlines()
    assert head.split()[-1] == "checked"
    assert row.split()[-1] == "yes"
    assert " exact " in row


def test_the_check_stands_where_the_log_cannot_be_written(cli, tuned, rewritten, monkeypatch):
    log = rewritten(tuned, unchecked)

    def full(self, record):
        from loopwright.errors import RecordError

        raise RecordError("the disk is full")

    monkeypatch.setattr(Store, "append", full)
    ran = cli("build", *WORKLOAD, "--history", log, "-o", "mm.o")
    assert ran.code == 0
    assert "the check is not noted: the disk is full" in ran.err


@pytest.mark.usefixtures("instant")
@pytest.mark.parametrize(
    "verb",
    [
        ["build", "-o", "add.o"],
        # Both ask for the best schedule in the same way; a check starts a process.
        pytest.param(["bench", "--rounds", "3"], marks=pytest.mark.slow),
    ],
    ids=["build", "bench"],
)
def test_a_wrong_record_makes_way_for_the_next(cli, tmp_path, monkeypatch, verb):
    monkeypatch.setattr("loopwright.cli.bench._numpy", lambda *_: None)
    name = f"test/add_{verb[0]}"  # one process has both cases
    (tmp_path / "add.py").write_text(TEMPLATE.replace("test/add", name))
    assert cli("tune", *ADD, "--trials", "2", "--log", "right.jsonl").code == 0
    by_variant = {record.config["variant"]: record for record in load("right.jsonl")}
    right, wrong = by_variant[0], by_variant[1]
    fast = {"error": None, "times": (1e-12,), "checked": Checked.OFF, "dropped": False}
    with Store("log.jsonl") as store:
        store.append(dataclasses.replace(wrong, **fast, max_error=None, verdict=None))
        store.append(dataclasses.replace(right, **unchecked(right), times=(1e-6,)))
    ran = cli(verb[0], *ADD, "--history", "log.jsonl", *verb[1:])
    assert ran.code == 0, ran.err
    assert ran.err.count("was never checked: checking it") == 2
    assert "is out: WRONG_ANSWER: b[" in ran.err
    checks = [record for record in load("log.jsonl") if record.phase == "check"]
    assert [check.wrong for check in checks] == [True, False]
    # Of a log with nothing else, nothing is built.
    with Store("wrong.jsonl") as store:
        store.append(dataclasses.replace(wrong, **fast, max_error=None, verdict=None))
    ran = cli("build", *ADD, "--history", "wrong.jsonl", "-o", "add.o")
    assert ran.code == 1
    assert f"error: wrong.jsonl: no record of {name}(16)" in ran.err.splitlines()[-1]


def test_a_tie_builds_the_default_and_bench_compares_it_all_the_same(cli, tuned, rewritten):
    tie = Verdict(Outcome.TIE, 0.001, 0.01, 20, "default").to_json()
    log = rewritten(tuned, lambda record: {"verdict": tie})
    ran = cli("build", *WORKLOAD, "--history", log, "-o", "mm.o")
    assert ran.code == 0, ran.err
    assert "default" in ran.out.splitlines()[1]
    assert "as fast as the default (within 1.0%)" in ran.out
    ran = cli("bench", *WORKLOAD, "--history", log, "--rounds", "3")
    assert ran.code == 0, ran.err
    assert "as fast as the default" in ran.out
    assert "tuned" in ran.out


def test_several_logs_and_folders(cli, tuned, tmp_path):
    (tmp_path / "logs").mkdir()
    shutil.copy(tuned, tmp_path / "logs" / "one.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    ran = cli("lower", *WORKLOAD, "--history", "empty.jsonl", "--history", "logs")
    assert ran.code == 0, ran.err
    assert "record" in ran.out


def test_build_says_what_a_call_takes(cli, tuned):
    ran = cli("build", *WORKLOAD, "--history", str(tuned), "--verify", "-o", "mm.o")
    assert ran.code == 0, ran.err
    assert "called on NumPy arrays it takes" in ran.out
    assert ", expected " in ran.out
    ran = cli("build", *WORKLOAD, "--verify", "-o", "mm.o")
    assert ran.code == 2
    assert "name its log with --history" in ran.error
