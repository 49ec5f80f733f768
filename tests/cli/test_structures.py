"""Functions that return tensors, from the command line: what is refused, and what won and why."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import loopwright as lw
from loopwright import records
from loopwright.cli.logs.show import structure_lines
from loopwright.cli.workload import find_workload
from loopwright.inspection.emission import outline
from loopwright.inspection.log_statistics import tried_structures

FUNCTIONS = '''
from loopwright import te
from loopwright.schedule import create_schedule

def product(n, m=32):
    """A product and its sigmoid."""
    A, B = te.placeholder((n, 24), name="A"), te.placeholder((24, m), name="B")
    k = te.reduce_axis((0, 24), name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return [A, B, te.compute((n, m), lambda i, j: te.sigmoid(C[i, j]), name="D")]

def plus(n=8):
    A = te.placeholder((n,), name="A")
    return A, te.compute((n,), lambda i: A[i] + 1, name="B")

def nothing(n=8):
    plus(n)

def number(n=8):
    return n

def empty():
    return []

def inputs():
    return plus()[0]

def twice():
    A, B = plus()
    return [A, B, B]

def unread():
    A, B = plus()
    return [te.placeholder((8,), name="Z"), B]

def symbolic():
    return plus(te.var("n"))

def scheduled():
    A, B = plus()
    return create_schedule(B.op), [A, B]

def named(*, n=8):
    return plus(n)

def any_number(*n):
    return plus(*n)
'''


@pytest.fixture
def file(cli, tmp_path: Path) -> str:
    (tmp_path / "f.py").write_text(FUNCTIONS)
    return "f.py"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["product"], "product needs n=..."),
        (["product", "n=4", "k=4"], "has no parameter 'k'; it takes n, m"),
        (["product", "n=0"], "extents must be positive, got 0"),
        (["product", "n=x"], "extents are positive integers, got 'x'"),
        (["nothing"], "expected tensors (inputs and results), got None"),
        (["number"], "expected tensors (inputs and results), got 8"),
        (["empty"], "nothing is computed: nothing given"),
        (["inputs"], "nothing is computed: A given"),
        (["twice"], "'B' is given twice"),
        (["unread"], "the expression reads A, not among the tensors given"),
        (["symbolic"], "the shape of 'B' has variables, [n]"),
        (["scheduled"], "returns a schedule; decorate it with @loopwright.template"),
        (["named"], "named(*, n=8) cannot be given n=8: tasks have arguments by position"),
        (["any_number", "n=3"], "any_number(*n) cannot be given *n: tasks have arguments by"),
        (["prodct", "n=4"], "no template or function 'prodct' (did you mean 'product'?)"),
    ],
)
@pytest.mark.parametrize("verb", ["analyze", "tune"])
def test_what_is_wrong_is_said(cli, file, verb, words, message):
    ran = cli(verb, f"{file}:{words[0]}", *words[1:])
    assert message in ran.error
    assert ran.code == 2


def test_an_unknown_effort(cli, file):
    ran = cli("tune", f"{file}:plus", "--effort", "fast")
    assert "'fast' is not one of 'quick', 'standard', 'night'" in ran.error


def tune(cli, file, trials, *measuring):
    words = (f"{file}:product", "n=16", "--threads", "1")
    ran = cli("tune", *words, "--trials", str(trials), "--log", "p.jsonl", *measuring)
    assert ran.code == 0, ran.err
    space = find_workload(words[0], words[1:2]).task.config_space
    head = f": {len(space)} configurations in {len(space.parts)} structures, tuner xgb"
    assert head in ran.out + ran.err
    return words


@pytest.mark.slow
def test_what_won_and_why(cli, file):
    words = tune(cli, file, 4, "--number", "1", "--repeat", "1")
    task = find_workload(words[0], words[1:2], threads=1).task
    best = records.best(records.load("p.jsonl"))
    config = task.config(best.config)
    structure, _ = task.part(config)
    loops = outline(lw.lower(*task.instantiate(config))).splitlines()

    shown = cli("records", "show", "p.jsonl", "best").out
    one_line = " ".join(shown.split())  # a long name is wrapped
    assert re.search(rf"structure: S\d+ {re.escape(structure.name)} \d+ tried", one_line)
    tried = tried_structures(records.load("p.jsonl").records)
    others = [one for one in tried if one.name != structure.name and one.seconds is not None]
    more = "; the best of each beside the best of this one:" if others else ""
    assert f"\n          {len(tried)} tried{more}\n" in shown
    assert "\n".join(f"  {line}" for line in loops) in shown
    table = shown.partition("\nknob ")[2].partition("\n\n")[0]
    assert re.search(r"^tile ", table, re.MULTILINE)
    assert "structure" not in table

    said = cli("explain", *words, "--history", "p.jsonl", "--config", "best", "--limit", "2").out
    assert f"structure: {structure.name}\n" in said
    assert f"why:       {structure.why[0]}\n" in said
    assert f"loops:     {loops[0]}\n" in said
    told = json.loads(cli("explain", *words, "--config", str(config.index), "--json").out)
    assert told["structure"] == structure.name
    assert told["why"] == list(structure.why)
    assert told["loops"] == loops


def test_structures_are_compared_by_their_best(cli, file, instant):
    tune(cli, file, 12)
    held = list(records.load("p.jsonl").records)
    times = {}
    for record in held:
        if record.usable:
            times.setdefault(record.config["structure"], []).append(record.median)
    best = {name: min(found) for name, found in times.items()}
    chosen = records.best(held)
    lines = list(structure_lines(chosen, held))
    own = best[chosen.config["structure"]]
    others = sorted(t / own for name, t in best.items() if name != chosen.config["structure"])
    ratios = [float(x) for x in re.findall(r"([\d.]+) x its time", "\n".join(lines))]
    assert ratios == [float(f"{x:.2f}") for x in others[:3]]
    of_a_template = dataclasses.replace(chosen, config={"tile": 1})
    assert not list(structure_lines(of_a_template, held))
    ids = records.structure_ids(held)
    number = ids[records.value_text(chosen.config["structure"])]
    shown_alone = cli("records", "show", "p.jsonl", "best").out
    assert f"structure: {number} {chosen.config['structure']}" in shown_alone
    pair = [next(r.id for r in held if r.config["structure"] == name) for name in list(best)[:2]]
    for verb, more in (("list", []), ("top", []), ("compare", pair)):
        legend = legend_of(cli("records", verb, "p.jsonl", *more).out)
        assert all(ids[records.value_text(name)] == k for k, name in legend.items())
    assert chosen.config["structure"] in cli("records", "list", "p.jsonl", "--csv").out


def legend_of(output):
    """The legend below a table, which has just the ids of the table, and the table no name."""
    legend = dict(re.findall(r"^(S\d+) +(.*)$", output, re.M))
    assert set(re.findall(r"\bS\d+\b", output)) == set(legend)
    assert legend
    assert 'structure="' not in output
    return legend


@pytest.mark.slow  # trees are learned for each
@pytest.mark.usefixtures("instant")
def test_importance_and_the_page_name_structures_by_one_legend(cli, file):
    tune(cli, file, 40)
    ids = records.structure_ids(records.load("p.jsonl").records)
    legend = legend_of(cli("records", "importance", "p.jsonl").out)
    assert all(ids[records.value_text(name)] == k for k, name in legend.items())
    cli("report", "p.jsonl", "-o", "p.html")
    page = Path("p.html").read_text(encoding="utf-8")
    assert all(page.count(f">{html.escape(json.loads(name))}<") == 1 for name in ids)


def test_a_point_of_no_structure(cli, file):
    ran = cli("explain", f"{file}:product", "n=16", "--config", '{"structure": "none"}')
    assert "there is no structure 'none'; there are: " in ran.error
    assert len(ran.error) < 500, "not all names are listed"


@pytest.mark.slow
@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGKILL])
def test_a_search_that_was_stopped_goes_on(file, tmp_path, ends):
    words = [f"{file}:product", "n=16", "--threads", "1", "--log", "p.jsonl"]
    words += ["--number", "1", "--repeat", "1"]
    command = [sys.executable, "-m", "loopwright", "tune", *words]
    root = str(Path(lw.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root}
    log = tmp_path / "p.jsonl"
    first = subprocess.Popen([*command, "--trials", "500"], env=env, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while time.monotonic() < until and not (log.exists() and len(records.load(log).records) > 2):
        time.sleep(0.1)
    first.send_signal(ends)
    code = first.wait(60)
    assert code == (130 if ends == signal.SIGINT else -signal.SIGKILL)
    held = len(records.load(log).records)
    assert 2 < held < 500
    again = subprocess.run(
        [*command, "--trials", str(held + 2)], env=env, capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0, again.stderr
    after = records.load(log).records
    measured = [json.dumps(r.config, sort_keys=True) for r in after if not r.phase]
    assert len(measured) == len(set(measured)), "nothing is measured twice"
