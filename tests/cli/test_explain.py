from __future__ import annotations

import dataclasses
import json
import re

import pytest
from rich.console import Console

from loopwright import records
from loopwright.cli import main
from tests.cli.conftest import WORKLOAD

OTHER = ("matmul", "M=16", "N=16", "K=16", "--threads", "1")


def explain(cli, *options):
    return cli("explain", *WORKLOAD, *options)


def test_the_default_configuration_without_a_log(cli):
    ran = explain(cli)
    assert (ran.code, ran.err) == (0, "")
    assert re.match(r"matmul\(32, 32, 32.*\) on llvm -num-threads=1, configuration \d+\n", ran.out)
    assert "% of the peak by the analytical model" in ran.out
    assert re.search(r"^main.iterations +3.277e\+04 +main stage, iterations", ran.out, re.MULTILINE)
    assert len(ran.out.splitlines()) > 50


def test_the_best_of_a_log_and_its_model(cli, tuned):
    ran = explain(cli, "--history", str(tuned))
    assert (ran.code, ran.err) == (0, "")
    best = records.best(records.load(tuned))
    assert re.search(
        rf"^measured: [\d.]+ [mun]s, [\d.]+ GFLOP/s \(record {best.id}\)$", ran.out, re.M
    )
    assert re.search(r"learned score -?\d.\d\d, above \d+% of what it learned from", ran.out)
    parts = re.findall(r"^\w\S+ +[\d.e+-]+ +([+-][\d.]+)  ", ran.out, re.MULTILINE)
    sizes = [abs(float(part)) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert 0 < len(sizes) <= 20
    assert re.search(r"^\d+ more features; --limit shows more$", ran.out, re.MULTILINE)


def test_what_was_tuned_for_other_threads_says_so(cli, tuned):
    ran = cli("explain", *WORKLOAD[:-1], "2", "--history", str(tuned), "--limit", "1")
    assert re.search(r"\(record \w+, threads: 1 in the record, 2 here\)$", ran.out, re.MULTILINE)


def test_any_configuration_of_the_space(cli, tuned):
    by_index = explain(cli, "--config", "17", "--limit", "3")
    knobs = json.loads(explain(cli, "--config", "17", "--json").out)["config"]
    by_knobs = explain(cli, "--config", json.dumps(knobs), "--limit", "3")
    assert by_index.out == by_knobs.out
    assert "configuration 17\n" in by_index.out
    assert len(by_index.out.splitlines()) == 6
    of_log = explain(cli, "--history", str(tuned), "--config", "17", "--limit", "3")
    assert "measured" not in of_log.out
    assert "learned score" in of_log.out


@pytest.mark.parametrize("kind", ["itervar", "knob", "curve"])
def test_json_adds_up(cli, tuned, tmp_path, kind):
    # Without a verdict, which may be a tie: then the best is the default.
    log = tmp_path / "log.jsonl"
    with records.Store(log) as store:
        for record in records.load(tuned):
            store.append(dataclasses.replace(record, verdict=None))
    options = ["--history", str(log), "--feature-type", kind, "--json", "--limit", "1000"]
    told = [json.loads(explain(cli, *options, "--config", name).out) for name in ("best", "0")]
    assert told[0]["seconds"] == records.best(records.load(log)).median
    assert told[1]["seconds"] is None
    rest = [t["predicted"] - sum(f["contribution"] for f in t["features"]) for t in told]
    assert rest[0] == pytest.approx(rest[1], abs=1e-4)


def test_a_table_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(Console, "is_terminal", True)
    assert main(["explain", *WORKLOAD, "--limit", "2"]) == 0
    out = capsys.readouterr().out
    assert "what it is" in out
    assert "arithmetic operations in all" in out
    assert "tile_i=[-1, " in out


def test_a_log_of_something_else_is_said_and_not_used(cli, tuned, tmp_path):
    ran = cli("explain", *OTHER, "--history", str(tuned), "--limit", "1")
    assert ran.code == 0
    first, second = ran.err.splitlines()
    assert "no record of matmul(16, 16, 16" in first
    assert "for arguments (32, 32, 32" in first
    assert "too few records of matmul(16, 16, 16" in second
    assert "learned" not in ran.out
    (tmp_path / "empty.jsonl").touch()
    ran = cli("explain", *OTHER, "--history", "empty.jsonl", "--limit", "1")
    assert ran.code == 0
    assert "(the log is empty)" in ran.err


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--config", "-1"], "index -1"),
        (["--config", "99999999"], "--config 99999999: index 99999999"),
        (["--config", "fastest"], "give an index, the knobs as JSON, `default` or `best`"),
        (["--config", "[1]"], "give an index, the knobs as JSON"),
        (["--config", '{"tile_i": [-1, 1, 8]}'], "not a point of this space"),
        (["--config", "best"], "is that of a log: name it with --history"),
        (["--feature-type", "itrevar"], "unknown feature type 'itrevar' (did you mean 'itervar'?)"),
        (["--limit", "0"], "Invalid value for '--limit'"),
        (["M=3"], "parameter 'M' is given twice"),
    ],
)
def test_usage_errors(cli, options, error):
    ran = explain(cli, *options)
    assert ran.code == 2
    assert error in ran.error


def test_errors_of_the_log(cli, tuned, tmp_path):
    assert explain(cli, "--history", "nowhere.jsonl").code == 2
    assert "no log at 'nowhere.jsonl'" in explain(cli, "--history", "nowhere.jsonl").error
    ran = cli("explain", *OTHER, "--history", str(tuned), "--config", "best")
    assert ran.code == 2
    assert "--config best: the log has none; give an index or `default`" in ran.err
    (tmp_path / "torn.jsonl").write_text('{"v": 1, "task"\nnonsense\n')
    ran = explain(cli, "--history", "torn.jsonl", "--limit", "1")
    assert ran.code == 0
    assert "2 lines skipped" in ran.err


def test_a_template_that_refuses_the_candidate_says_why(cli, tmp_path):
    (tmp_path / "t.py").write_text(
        """
import loopwright as lw
from loopwright import te


@lw.template("test/refuses")
def refuses(N):
    A = te.placeholder((N,), "float32", name="A")
    B = te.compute((N,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    cfg = lw.get_config()
    cfg.define_knob("bad", [0, 1])
    if cfg["bad"].val:
        raise ValueError("bad is bad")
    return s, [A, B]
"""
    )
    assert cli("explain", "t.py:refuses", "N=8").code == 0
    ran = cli("explain", "t.py:refuses", "N=8", "--config", "1")
    assert ran.code == 1
    assert "bad is bad" in ran.error
