from __future__ import annotations

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
    assert "3 workloads on llvm -num-threads=1, log net.jsonl" in ran.out
    assert re.search(r"^matmul\(16, 16, 64.*\) +\d+ .* 3 +[\d.]+ [un]s$", ran.out, re.MULTILINE)
    assert re.search(r"^dense\(.* 0.5 +[\d.]+ [un]s$", ran.out, re.MULTILINE)
    assert re.search(r"^total +12 ", ran.out, re.MULTILINE)
    assert "stopped: all 12 trials are measured" in ran.out
    again = f"loopwright tune-tasks {file} --log net.jsonl --threads 1 --tuner random --seed 3"
    assert f"go on:   {again} --trials 600" in ran.out
    assert (
        "compare: loopwright bench matmul M=16 N=16 K=64 --threads 1 --history net.jsonl" in ran.out
    )
    log = records.load(tmp_path / "net.jsonl")
    assert len({r.task for r in log}) == 3
    assert {header["tasks"] for header in log.headers} == {3}


def test_the_same_command_again_measures_nothing(cli, file, tmp_path):
    tune(cli, file, "--trials", "9")
    before = (tmp_path / "net.jsonl").read_text()
    ran = tune(cli, file, "--trials", "9")
    assert ran.code == 0, ran.err
    assert "resuming: 9 trials in the log count" in ran.out
    assert "9 valid, 9 of them from the log" in ran.out
    assert (tmp_path / "net.jsonl").read_text() == before


def test_ctrl_c_prints_the_command_that_goes_on(cli, file, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("loopwright.measure.measurer.Measurer.measure", interrupt)
    ran = tune(cli, file, "--trials", "9", "-O", "range_idx=0,5")
    assert ran.code == 130
    assert "stopped: interrupted" in ran.out
    assert "--threads 1 --tuner random --option range_idx=0,5 --trials 9" in ran.out


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        ("", [], "names no workload; write one a line"),
        ("matmul M=8 N=8", [], "line 1: matmul needs K=..."),
        ("\nmatmull M=8", [], "line 2: unknown workload 'matmull' (did you mean 'matmul'?)"),
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
