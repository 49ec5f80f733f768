"""What the verbs of ``loopwright records`` say where less common things are the case."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from loopwright.extras import install
from loopwright.records import Store
from tests.cli.conftest import WORKLOAD
from tests.cli.record_tables import on_terminal, table, write
from tests.unit.inspection.logs import record_of
from tests.unit.records.reports.made_logs import record

VERDICT = {
    **{"outcome": "faster", "gain": 0.5, "margin": 0.02, "rounds": 20, "default": ""},
    **{"peak": "FMA peak", "of_peak": 0.4},
}
WRONG = {"kind": "WRONG_ANSWER", "text": "C[0] is 1"}


def times(seconds, count=5):
    return tuple(seconds * (1 + 0.001 * (k % 5 - 2)) for k in range(count))


@pytest.fixture
def night(tmp_path):
    """A playoff of three with a verdict, a dropped trial, and one found to be wrong."""
    trials = [record(n, times=times(1e-3 * (9 - n))) for n in range(4)]
    trials.append(record(5, 1e-3, dropped=True))
    trials.append(record(6, 1e-4))
    trials.append(record(6, None, error=WRONG, phase="check", ts=2e9))
    finals = [
        record(n, times=times(6e-3 * x, 20), phase="playoff", ts=3e9,
               verdict={**VERDICT, "default": trials[0].candidate} if n == 3 else None)
        for n, x in ((1, 1.0005), (2, 1.0003), (3, 1.0))
    ]  # fmt: skip
    return write(tmp_path / "night.jsonl", [*trials, *finals]), trials, finals


def test_show_says_verdict_ties_and_phase(cli, night):
    path, trials, finals = night
    text = cli("records", "show", path, "best").out
    assert "in the phase 'playoff'" in text
    assert "rank:     1 of 4 candidates" in text
    assert "verdict:  it beats the default by 50.0 % +- 2.0 %; it has 40% of the FMA peak" in text
    assert "ties:     with 2 candidates (sampled in turns):" in text
    assert f"{finals[1].id} 1.00 x its time, 95 % interval 1.00 to 1.00, sampled in turns" in text
    default = json.loads(cli("records", "show", path, "default", "--json").out)
    assert default["trial"] == trials[0].trial  # which the verdict names
    assert "the playoff says: the best beats the default by 50.0 % +- 2.0 %" in cli(
        "records", "top", path
    ).out  # fmt: skip


def test_show_of_what_was_dropped_or_is_out(cli, night):
    path, trials, _ = night
    text = cli("records", "show", path, trials[4].id).out
    assert "dropped by racing, so the time is a rough one" in text
    assert "rank:" not in text
    text = cli("records", "show", path, trials[5].id).out
    assert "rank:     none: its candidate was found to be wrong, or failed, later" in text


def test_show_of_many_ties_and_of_no_knobs(cli, tmp_path):
    path = write(tmp_path / "even.jsonl", [record(n, times=times(1e-3)) for n in range(9)])
    text = cli("records", "show", path, "best").out
    assert "ties:     with 8 candidates (by the windows of each, as if at different times):" in text
    assert "          and 3 more\n" in text
    path = write(tmp_path / "plain.jsonl", [record(0, config={})])
    assert "\nIt has no knobs.\n" in cli("records", "show", path, "best").out


def test_comparing_what_has_no_time(cli, tmp_path):
    failed = [record(n, None) for n in range(2)]
    path = write(tmp_path / "log.jsonl", [record(2), *failed])
    text = cli("records", "compare", path, "best", failed[0].id).out
    assert "failed (COMPILE)" in text
    assert "no ratio: B has no time" in text
    text = cli("records", "compare", path, failed[0].id, failed[1].id).out
    assert "no ratio: A and B have no time" in text
    line = cli("records", "compare", path, failed[0].id, failed[1].id, "--json").out
    assert json.loads(line)["ratio"] is None


def test_comparing_logs_with_different_tasks(cli, tmp_path, monkeypatch):
    both = record(0, times=times(1e-3), verdict=VERDICT)
    one = [both, record(1, op="dense", task="dense"), record(2, op="conv", task="conv")]
    other = [record(0, times=times(5e-4)), record(2, None, op="conv", task="conv")]
    names = [write(tmp_path / "a.jsonl", one), write(tmp_path / "b.jsonl", other)]
    text = cli("records", "compare", *names).out
    assert "only in A: dense(8)" in text
    assert "not comparable: conv(8) has no usable record in B" in text
    assert "1 task in both: A is faster in 0, B in 1; 0 cannot be told apart" in text
    assert "+50% +-2%" in text
    rows = [json.loads(row) for row in cli("records", "compare", *names, "--json").out.splitlines()]
    assert [row["ratio"] for row in rows] == [pytest.approx(0.5), None, None]
    assert {(row["a"], row["b"]) for row in rows} == {tuple(names)}
    # What cannot be told apart is not counted as faster, though its ratio is below 1.
    near = [record(0, times=(0.9e-3, 0.99e-3, 1e-3, 1.1e-3, 0.98e-3))]
    text = cli("records", "compare", names[0], write(tmp_path / "c.jsonl", near)).out
    assert "1 task in both: A is faster in 0, B in 0; 1 cannot be told apart" in text


def test_a_curve_of_failures_and_one_of_many_steps(cli, tmp_path):
    path = write(tmp_path / "bad.jsonl", [record(n, None) for n in range(3)])
    ran = cli("records", "curve", path)
    assert ran.code == 1
    assert "has no trial that may be best among 3; `loopwright records errors" in ran.error
    ran = cli("records", "top", path, "--hardware", "Zen", "--threads", "2")
    assert "has no usable record of hardware 'Zen' and threads 2 among 3" in ran.error
    assert "has no usable record of the default configuration among 3" in cli(
        "records", "show", path, "default"
    ).error  # fmt: skip
    path = write(tmp_path / "long.jsonl", [record(n, 1.0 / (1 + n)) for n in range(100)])
    text = cli("records", "curve", path).out
    assert "the last 12 of 100 improvements:" in text


def test_a_curve_without_matplotlib(cli, night, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ran = cli("records", "curve", night[0], "-o", "x.png")
    assert ran.code == 2
    assert f"-o needs matplotlib: {install('plot')}" in ran.error


def test_tables_of_two_tasks_have_a_line_between_them(cli, tmp_path):
    two = [record(0), record(1, op="dense", task="other")]
    path = write(tmp_path / "two.jsonl", two)
    parts = cli("records", "top", path).out.split("\n\n")
    assert [part.splitlines()[0] for part in parts] == [
        "matmul(8) on llvm, 2 threads, Zen 5",
        "dense(8) on llvm, 2 threads, Zen 5",
    ]
    assert cli("records", "list", path, "--status", "failed").out.startswith("no record is left")


def test_validate_names_twenty_lines_and_counts_those_without_a_checksum(cli, tmp_path):
    line = json.loads(record(0).to_line())
    del line["sum"], line["checked"]
    path = tmp_path / "old.jsonl"
    path.write_text(f"{json.dumps(line)}\n" + "hello\n" * 23)
    text = cli("records", "validate", str(path)).out
    assert "and 3 more lines; --json names all of them" in text
    assert "1 of them without a checksum, since an earlier version wrote them" in text
    assert "line 1: record: " in cli("records", "validate", str(path), "--all").out


def test_a_record_of_one_of_two_logs(cli, tuned, tmp_path):
    import loopwright as lw

    task = lw.create_task("matmul", (32, 32, 32), "llvm -num-threads=1")
    with Store(tmp_path / "second.jsonl") as store:
        # A playoff found it faster than the one of the other log was found.
        verdict = {"outcome": "faster", "gain": 1e6, "margin": 1.0, "rounds": 20, "default": ""}
        store.append(replace(record_of(task, 3, 41, (1e-9,)), verdict=verdict))
    words = (*WORKLOAD, "--history", str(tuned), "--history", "second.jsonl")
    ran = cli("lower", *words, "--record", "best")
    assert "(1e-03 us per call in the log)" in ran.out or "0.001 us per call in the log" in ran.out
    assert cli("lower", *words, "--trial", "41").out == ran.out


def test_lists_on_a_terminal_have_their_machines_in_the_heading(cli, tmp_path, monkeypatch):
    arm = record(1, op="dense", task="other", env={"cpu": "Arm"})
    path = write(tmp_path / "two.jsonl", [record(0), arm])
    assert [row["hardware"] for row in table(cli("records", "list", path, "--csv").out)] == [
        "Zen 5",
        "Arm",
    ]
    on_terminal(monkeypatch, 80)
    assert cli("records", "list", path).out.splitlines()[:2] == [
        "task 1: matmul(8) on llvm, 2 threads, Zen 5",
        "task 2: dense(8) on llvm, 2 threads, Arm",
    ]


def test_what_constants_take_before_the_calls_is_said(cli, tmp_path):
    log = tmp_path / "log.jsonl"
    with Store(log) as store:
        store.append(record(times=times(1e-3), prepare_s=2.5e-3))
    shown = cli("records", "show", str(log), "best").out
    assert "prepared: once in 2.5 ms, not in the time of a call" in " ".join(shown.split())
