from __future__ import annotations

import json
import re

import pytest

from loopwright import records

LINES = """
# two of a kind, and another
matmul M=32 N=32 K=32

3 matmul M=16 N=16 K=64    # called three times
0.5 dense M=4 N=32 K=32
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.txt"
    path.write_text(LINES)
    return path


def tune(cli, file, *options):
    return cli("tune-tasks", str(file), "--threads", "1", "--tuner", "random", *options)


def test_one_table_and_one_log(cli, file, tmp_path):
    ran = tune(cli, file, "--trials", "12", "--seed", "3")
    assert ran.code == 0, ran.err
    assert "3 workloads on llvm -num-threads=1, tuner random, log net.jsonl" in ran.out
    assert re.search(r"^matmul\(16, 16, 64.*\) +\d+ .* 3 +[\d.]+ [un]s$", ran.out, re.MULTILINE)
    assert re.search(r"^dense\(.* 0.5 +[\d.]+ [un]s$", ran.out, re.MULTILINE)
    assert re.search(r"^total +12 ", ran.out, re.MULTILINE)
    assert "stopped: all 12 trials are measured" in ran.out
    again = f"loopwright tune-tasks {file} --log net.jsonl --threads 1 --tuner random --seed 3"
    assert f"continue: {again} --trials 24" in ran.out
    assert (
        "compare:  loopwright bench matmul M=16 N=16 K=64 --threads 1 --history net.jsonl"
        in ran.out
    )
    assert "pick:     loopwright records pick net.jsonl -o net.best.jsonl" in ran.out
    build = "build matmul M=16 N=16 K=64 --threads 1 --history net.jsonl -o matmul_2.o"
    assert f"build:    loopwright {build}" in ran.out
    words = (
        "the best (?:beats|was not compared with) the default|the fastest other configuration is|"
        "the best is the default itself|no measurable gain|tie"
    )
    said = re.findall(rf"^\w+\(.*\): (?:{words})", ran.out, re.MULTILINE)
    assert len(said) == 3
    log = records.load(tmp_path / "net.jsonl")
    assert len({r.task for r in log}) == 3
    assert {header["tasks"] for header in log.headers} == {3}


@pytest.mark.usefixtures("instant")
def test_the_same_command_again_measures_nothing(cli, file, tmp_path):
    tune(cli, file, "--trials", "9")
    before = (tmp_path / "net.jsonl").read_text()
    ran = tune(cli, file, "--trials", "9")
    assert ran.code == 0, ran.err
    assert "resuming: the log has 9 trials, which count" in ran.out
    assert "9 valid, 9 of them from the log" in ran.out
    assert (tmp_path / "net.jsonl").read_text() == before
    scripted = tune(cli, file, "--trials", "9", "--json", "--fail-without-gain")
    said = json.loads(scripted.out)
    assert [row["trials"] for row in said["tasks"]] == [3, 3, 3]
    gains = [row["verdict"]["outcome"] == "faster" for row in said["tasks"]]
    assert scripted.code == (0 if any(gains) else 4)


def test_ctrl_c_prints_the_command_that_goes_on(cli, file, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("loopwright.measure.measurer.Measurer.measure_new", interrupt)
    ran = tune(cli, file, "--trials", "9", "-O", "range_idx=0,5")
    assert ran.code == 130
    assert "stopped: interrupted" in ran.out
    assert "--threads 1 --tuner random --option range_idx=0,5 --trials 9" in ran.out


def test_the_example_of_the_help_can_be_tuned(cli, file):
    shown = cli("tune-tasks", "--help").out
    lines = re.findall(r"^ +((?:\d )?\w+(?: \w+=\w+)+)$", shown, re.MULTILINE)
    assert len(lines) == 2
    file.write_text("\n".join(lines))
    # Refused for its budget, which is looked at after the lines.
    assert (
        "n_trial=1 is less than one trial for each of the 2 tasks"
        in tune(cli, file, "--trials", "1").err
    )


def test_what_never_runs_is_left_and_the_rest_goes_on(cli, file, tmp_path):
    (tmp_path / "t.py").write_text(
        """
import loopwright as lw
from loopwright import te


@lw.template("test/never")
def never(N):
    A = te.placeholder((N,), "float32", name="A")
    B = te.compute((N,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    cfg = lw.get_config()
    cfg.define_knob("a", list(range(40)))
    if not isinstance(cfg, lw.ConfigSpace):
        raise ValueError("not today")
    return s, [A, B]
"""
    )
    file.write_text("t.py:never N=8\nmatmul M=8 N=8 K=8\n")
    ran = tune(cli, file, "--trials", "6", "--number", "1", "--repeat", "1")
    assert ran.code == 0, ran.err
    assert re.search(r"^test/never\(8\) +0 .* failures$", ran.out, re.MULTILINE)
    assert re.search(r"failed: +\d+ x INSTANTIATION, first: .*not today", ran.out)
    assert "stopped: all 6 trials are measured" in ran.out
    assert [line for line in ran.out.splitlines() if "compare:" in line] == [
        "  compare:  loopwright bench matmul M=8 N=8 K=8 --threads 1 --history net.jsonl"
    ]


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        ("", [], "names no workload; write one a line"),
        ("matmul M=8 N=8", [], "line 1: matmul needs K=..."),
        ("\nmatmull M=8", [], "line 2: unknown workload 'matmull' (did you mean 'matmul'?)"),
        ('{"v":1,' + "x" * 500, [], "line 1: unknown workload '{v:1," + "x" * 52 + "...'; there"),
        ("3", [], "line 1: '3' has no workload behind its number"),
        ("0 matmul M=8 N=8 K=8", [], "line 1: 0 calls; give a number above zero"),
        ("matmul 'M=8", [], "line 1: No closing quotation"),
        ("matmul M=8 N=8 K=8\nmatmul M=8 N=8 K=8", [], "is given twice; give it once"),
        (LINES, ["--trials", "2"], "n_trial=2 is less than one trial for each of the 3 tasks"),
        (LINES, ["--tuner", "gax"], "unknown tuner 'gax' (did you mean 'ga'?)"),
        (LINES, ["-O", "x=1"], "the tuner random has no option 'x'; it takes range_idx"),
        (LINES, ["--strategy", "greedy"], "'greedy' is not one of"),
        (LINES, ["--min-gain", "0"], "not a gain per minute"),
    ],
)
def test_usage_errors(cli, file, text, options, error):
    file.write_text(text)
    ran = tune(cli, file, *options)
    assert ran.code == 2
    assert error in ran.error


def test_files_that_cannot_be_read(cli, file):
    assert "no file 'nowhere.txt'" in cli("tune-tasks", "nowhere.txt").error
    file.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read as text" in cli("tune-tasks", str(file)).error
