"""Lines of a log that were written to do harm: every verb that reads them refuses, and goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from loopwright import ops
from loopwright.records import Record, Store, environment, load
from loopwright.task import Task, apply_history_best, create_task
from tests import hostile
from tests.cli.conftest import WORKLOAD, Cli

VERBS = ("list", "best", "top", "errors", "curve", "validate")


def task() -> Task:
    return create_task(
        ops.WORKLOADS["matmul"].template,
        (32, 32, 32, False, False, "float32"),
        "llvm -num-threads=1",
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """One line for each attack, of the same task, each said to be faster than any kernel."""
    t = task()
    schedule, _ = t.instantiate(t.config_space.get(t.config_space.default_index))
    store = Store(tmp_path / "log.jsonl")
    lines = []
    for k, name in enumerate(hostile.ATTACKS):
        if name in ("nests 5000 deep", "a number of 400 digits", "not a number"):
            continue  # what JSON or a record refuses before
        lines.append(
            Record(
                task=t.alias,
                op="matmul",
                args=list(t.args),
                target=t.target.canonical,
                config=t.config_space.get(k).values,
                times=(1e-9 * (k + 1),),
                dag=schedule.dag.hash,
                trace=hostile.attack(name),
                env=environment(),
                ts=time.time(),
            )
        )
    with store:
        for line in lines:
            store.append(line)
    return store.path


def test_apply_history_best_refuses_each(log: Path) -> None:
    t = task()
    records = load(log).records
    assert len(records) == len(hostile.ATTACKS) - 3
    assert min(len(r.to_line()) for r in records) < 2500
    for record in records:
        with apply_history_best(record) as history:
            assert history.apply(t) is None
        (reason,) = history.explain(t).reasons
        assert reason.startswith("1 its trace does not replay: trace: tensorize: "), reason
        assert "\n" not in reason


def test_build_takes_the_default(cli: Cli, log: Path) -> None:
    strict = cli("build", *WORKLOAD, "--history", str(log), "-o", "mm.o")
    assert strict.code == 1
    ran = cli("build", *WORKLOAD, "--history", str(log), "--allow-default", "-o", "mm.o")
    assert ran.code == 0
    assert "default configuration" in ran.out
    assert "its trace does not replay" in ran.err
    assert cli("run", "mm.o", "--repeat", "1").code == 0


def test_explain_takes_it(cli: Cli, log: Path) -> None:
    ran = cli("explain", *WORKLOAD, "--history", str(log), "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["features"]


def test_other_verbs_run_nothing(cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a trace of the log was replayed")

    monkeypatch.setattr("loopwright.schedule.steps.Step.from_json", never)
    for verb in VERBS:
        ran = cli("records", verb, str(log))
        assert ran.code == 0, ran.err


def test_show_refuses_its_schedule_and_goes_on(cli: Cli, log: Path) -> None:
    ran = cli("records", "show", str(log), "best")
    assert ran.code == 0, ran.err
    assert "Its schedule cannot be shown: " in ran.out
    assert "here:     not applied: " in ran.out
    assert "trace does not replay" in ran.out
    assert cli("records", "show", str(log), "best", "--schedule").code == 1
