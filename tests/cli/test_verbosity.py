"""How much the command line says."""

from __future__ import annotations

import json
import logging

import pytest

from loopwright.cli.console import Verbosity, log_shown, split_verbosity
from loopwright.errors import UsageError

TUNE = ("tune", "matmul", "M=8", "N=8", "K=8", "--trials", "4", "--tuner", "random")


@pytest.mark.parametrize(
    ("words", "level", "rest"),
    [
        ([], Verbosity.NORMAL, []),
        (["-v", "tune"], Verbosity.ROUNDS, ["tune"]),
        (["tune", "--verbose", "x"], Verbosity.ROUNDS, ["tune", "x"]),
        (["tune", "-vv"], Verbosity.TRIALS, ["tune"]),
        (["-v", "tune", "-v"], Verbosity.TRIALS, ["tune"]),
        (["-vv", "-vv"], Verbosity.TRIALS, []),
        (["-vvv", "tune"], Verbosity.TRIALS, ["tune"]),
        (["tune", "--quiet"], Verbosity.QUIET, ["tune"]),
        (["tune", "--", "-v", "--quiet"], Verbosity.NORMAL, ["tune", "--", "-v", "--quiet"]),
    ],
)
def test_the_words_are_taken_out_wherever_they_stand(words, level, rest):
    assert split_verbosity(words) == (level, rest)


def test_more_and_less_at_once_is_refused(cli):
    ran = cli("-v", "devices", "--quiet")
    assert ran.code == 2
    assert ran.error == "error: --quiet and -v contradict each other; give one of them"
    with pytest.raises(UsageError):
        split_verbosity(["-vv", "--quiet"])


@pytest.mark.usefixtures("instant")
def test_rounds_and_trials_are_reported_on_standard_error(cli):
    normal, rounds = cli(*TUNE, "--log", "a"), cli("-v", *TUNE, "--log", "b")
    trials = cli(*TUNE, "--log", "c", "-vv")
    assert normal.err == ""
    assert rounds.err.count(": round 0: ") == 1
    assert "No: 1 " not in rounds.err
    assert [f"autotvm: No: {i}  GFLOPS: " in trials.err for i in (1, 2, 3, 4)] == [True] * 4
    assert ": round 0: " in trials.err
    for ran in (normal, rounds, trials):
        assert "next:" in ran.out


@pytest.mark.usefixtures("instant")
def test_quiet_leaves_results_and_errors(cli):
    ran = cli(*TUNE, "--log", "a", "--quiet")
    assert ran.code == 0
    assert ran.err == ""
    assert "next:" not in ran.out
    assert "peak" not in ran.out.splitlines()[0]
    assert "best: " in ran.out
    as_json = cli(*TUNE, "--log", "a", "--quiet", "--json")
    assert as_json.err == ""
    assert json.loads(as_json.out)["trials"] == 4
    assert "unknown command 'tuen'" in cli("--quiet", "tuen").error


@pytest.mark.usefixtures("instant")
def test_quiet_leaves_the_result_of_several_tasks(cli, tmp_path):
    (tmp_path / "list.txt").write_text("matmul M=8 N=8 K=8\n")
    words = ("tune-tasks", "list.txt", "--trials", "4", "--tuner", "random", "--log", "a")
    ran = cli(*words, "--quiet")
    assert (ran.code, ran.err) == (0, "")
    assert "matmul" in ran.out
    assert "next:" not in ran.out
    as_json = cli(*words, "--quiet", "--json")
    assert as_json.err == ""
    assert json.loads(as_json.out)


def test_loggers_are_afterwards_as_they_were(capsys):
    loggers = [logging.getLogger(name) for name in ("loopwright", "autotvm")]
    before = [(logger.level, list(logger.handlers)) for logger in loggers]
    with log_shown(Verbosity.TRIALS):
        logging.getLogger("autotvm").debug("a\tb \x1b[31mred\nnext")
    assert [(logger.level, list(logger.handlers)) for logger in loggers] == before
    assert capsys.readouterr().err.endswith("autotvm: a  b \\x1b[31mred next\n")


def test_help_names_the_switches(cli):
    out = cli("--help").out
    assert "-v, --verbose" in out
    assert "--quiet" in out
