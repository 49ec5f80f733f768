"""The command that goes on with a run: what it changes, and that it does go on."""

from __future__ import annotations

import re
import shlex

import pytest

from loopwright.cli.options import going_on

#: A space of 121 points.
TEMPLATE = """
import loopwright as lw
from loopwright import te


@lw.template("test/small")
def small(N):
    A = te.placeholder((N,), "float32", name="A")
    B = te.compute((N,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    cfg = lw.get_config()
    cfg.define_knob("a", list(range(11)))
    cfg.define_knob("b", list(range(11)))
    cfg["a"].val, cfg["b"].val
    return s, [A, B]
"""


@pytest.mark.parametrize(
    ("stopped", "asked", "done", "most", "expected"),
    [
        ("n_trial", 500, 500, None, (1000, "")),
        ("n_trial", 64, 64, 121, (121, "")),
        ("n_trial", 121, 121, 121, None),
        ("exhausted", 200, 121, None, None),
        # What is left of those that were asked for.
        ("failures", 500, 40, 10000, (500, "")),
        ("timeout", 500, 40, 10000, (500, "")),
        ("timeout", None, 40, 10000, (None, "")),
        # A limit that stays reached would end it at once.
        ("early_stopping", 500, 40, 10000, (500, "early_stopping")),
        ("target", None, 40, 10000, (80, "gflops")),
        ("min_gain", None, 40, 50, (50, "min_gain")),
        # A log that holds more than was asked for.
        ("n_trial", 10, 300, None, (600, "")),
    ],
)
def test_what_is_changed(stopped, asked, done, most, expected):
    assert going_on(stopped, asked, done, most) == expected


def continued(out):
    """The words behind ``continue:`` without the name of the program; None for no such line."""
    found = re.search(r"^  continue: +loopwright (.*)$", out, re.MULTILINE)
    return None if found is None else shlex.split(found[1])


@pytest.mark.usefixtures("instant")
def test_a_run_goes_on_to_the_end_of_its_space(cli, tmp_path):
    (tmp_path / "t.py").write_text(TEMPLATE)
    base = ["tune", "t.py:small", "N=8", "--threads", "1", "--tuner", "grid", "--log", "a.jsonl"]
    ran = cli(*base, "--trials", "50", "--early-stopping", "20")
    for trials in (50, 100, 121):
        words = continued(ran.out)
        assert words is not None, ran
        assert words[-2:] == ["--trials", str(trials)]
        assert "--early-stopping" not in words
        ran = cli(*words)
        assert f"{trials} successful" in ran.out, ran.out
    assert continued(ran.out) is None, "the space has no more"


@pytest.mark.usefixtures("instant")
def test_several_workloads_go_on_to_the_end_of_their_spaces(cli, tmp_path):
    (tmp_path / "t.py").write_text(TEMPLATE.replace("test/small", "test/small_too"))
    (tmp_path / "net.txt").write_text("t.py:small N=8\nt.py:small N=16\n")
    ran = cli("tune-tasks", "net.txt", "--threads", "1", "--tuner", "grid", "--trials", "150")
    words = continued(ran.out)
    assert words is not None, ran
    assert words[-2:] == ["--trials", "242"]
    ran = cli(*words)
    assert re.search(r"^total +242 ", ran.out, re.MULTILINE), ran.out
    assert continued(ran.out) is None


def test_configurations_that_are_one_program_are_accounted_for(cli, tmp_path):
    """No knob of this template changes the program: one trial, and 120 that share its result."""
    (tmp_path / "t.py").write_text(TEMPLATE.replace("test/small", "test/small_same"))
    ran = cli("tune", "t.py:small", "N=8", "--threads", "1", "--tuner", "grid", "--trials", "200")
    assert ran.code == 0, ran.err
    assert "trials:  1 successful, 0 failed" in ran.out
    assert ran.out.count("120 further configurations were programs that had been measured") == 1


@pytest.mark.usefixtures("instant")
def test_logs_that_taught_the_tuner_are_named_again(cli):
    base = ["tune", "matmul", "M=8", "N=8", "K=8", "--tuner", "random", "--trials", "2"]
    assert cli(*base, "--log", "one.jsonl").code == cli(*base, "--log", "other.jsonl").code == 0
    taught = ["--pretrain", "one.jsonl", "--pretrain", "other.jsonl"]
    ran = cli(*base, "--log", "a.jsonl", *taught)
    assert ran.code == 0, ran.err
    for name in ("continue", "start over"):
        (line,) = re.findall(rf"^  {name}: .*$", ran.out, re.MULTILINE)
        assert " ".join(taught) in line


@pytest.mark.usefixtures("instant")
def test_starting_over_takes_a_log_that_is_not_there(cli, tmp_path):
    base = ["tune", "matmul", "M=8", "N=8", "K=8", "--tuner", "random", "--trials", "2"]
    assert "--log a.fresh.jsonl" in cli(*base, "--log", "a.jsonl").out
    (tmp_path / "a.fresh.jsonl").write_text("")
    assert "--log a.fresh2.jsonl" in cli(*base, "--log", "a.jsonl").out
