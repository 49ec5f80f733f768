"""Candidates that are derived one by one are shared out over processes, with the same result."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.cost.analytical import AnalyticalModel
from loopwright.cost.features import Extractor
from loopwright.cost.symbolic import population
from loopwright.cost.symbolic.population import Population
from loopwright.schedule.state import State
from loopwright.task import Task, create_task


@lw.template("candidates/branching")
def branching(n: int, m: int) -> Any:
    """Its loops depend on every knob, and some points are refused."""
    cfg = lw.get_config()
    cfg.define_split("x", n)
    cfg.define_split("y", m)
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] + 1.0, name="B")
    s = te.create_schedule(B.op)
    x0, x1 = cfg["x"].apply(s, B, s[B].op.axis[0])
    y0, y1 = cfg["y"].apply(s, B, s[B].op.axis[1])
    outer, inner = int(cfg["x"].size[-1]), int(cfg["y"].size[-1])
    if outer * inner > 4096:
        cfg.raise_error("too large")
    s[B].reorder(x0, y0, x1, y1)
    if inner >= 8:
        s[B].vectorize(y1)
    if outer < 8:
        s[B].unroll(x1)
    return s, [A, B]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are used for any number of candidates, also where there is one CPU."""
    monkeypatch.setattr(population, "TIMED", 2)
    monkeypatch.setattr(population, "PAYS_S", 0.0)
    monkeypatch.setattr(population, "CPUS", 2)
    monkeypatch.setattr(population, "usable_cpus", lambda: (0, 1))


def _whole_space() -> tuple[Task, np.ndarray]:
    task = create_task(branching, args=(96, 96), target="llvm -num-threads=1")
    dims = task.config_space.dims
    return task, np.indices(dims).reshape(len(dims), -1).T


def _process(state: State) -> list[float]:
    return [os.getpid(), state.steps]


def _dies_elsewhere(here: int) -> Callable[[State], list[float]]:
    def derive(state: State) -> list[float]:
        if os.getpid() != here:
            os._exit(7)
        return [state.steps]

    return derive


def test_processes_derive_what_one_does(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    task, digits = _whole_space()
    fast, features = AnalyticalModel(task).predict(digits), Extractor(task).rows(digits)
    places = Population(task, _process, (False, False)).evaluate(digits)
    monkeypatch.setattr(population, "PAYS_S", float("inf"))
    assert np.array_equal(fast, AnalyticalModel(task).predict(digits))
    alone = Extractor(task).rows(digits)
    assert np.array_equal(features.values, alone.values, equal_nan=True)
    sizes = [
        [
            k.entities[at].size[-1]
            for k, at in zip(task.config_space.knobs.values(), row, strict=True)
        ]
        for row in digits
    ]
    refused = np.array([a * b > 4096 for a, b in sizes])
    assert refused.any()
    assert np.array_equal(features.failed, refused)
    assert np.array_equal(np.isnan(places[:, 0]), refused)
    processes = set(places[~refused, 0].astype(int).tolist())
    assert os.getpid() in processes  # the first ones, by which time is estimated
    assert len(processes) >= 2


@pytest.mark.parametrize(("cpus", "pays"), [(8, 6.0), (2, 0.0)])
def test_few_candidates_and_those_of_few_cpus_stay_here(
    cpus: int, pays: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(population, "usable_cpus", lambda: tuple(range(cpus)))
    monkeypatch.setattr(population, "PAYS_S", pays)
    task, digits = _whole_space()
    places = Population(task, _process, (False, False)).evaluate(digits)
    assert set(places[~np.isnan(places[:, 0]), 0].astype(int).tolist()) == {os.getpid()}


def test_what_cannot_be_sent_stays_here_and_says_why(
    at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    lock = threading.Lock()

    def derive(state: State) -> list[float]:
        with lock:
            return [os.getpid()]

    task, digits = _whole_space()
    made = population.CandidateRows(task, derive, (False,))
    with caplog.at_level(logging.WARNING, "loopwright.cost"):
        rows = made.rows(digits)
        again = made.rows(digits)
    assert set(rows[~np.isnan(rows)].astype(int).tolist()) == {os.getpid()}
    assert np.array_equal(rows, again, equal_nan=True)
    (said,) = [r.getMessage() for r in caplog.records]  # once
    assert "are derived in one process, since others cannot: PicklingError" in said
    assert "lock" in said


def test_a_process_that_dies_costs_no_candidate(
    at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    task, digits = _whole_space()
    made = population.CandidateRows(task, _dies_elsewhere(os.getpid()), (False,))
    rows = made.rows(digits)
    alone = population.rows_of(task, _dies_elsewhere(os.getpid()), (False,), digits)[0]
    assert np.array_equal(rows, alone, equal_nan=True)
    assert "since others cannot: TerminatedWorkerError" in caplog.text


def _fails(state: State) -> list[float]:
    raise ValueError("no number")


def test_warnings_come_back_in_order(at_once: None, caplog: pytest.LogCaptureFixture) -> None:
    task, digits = _whole_space()
    made = population.CandidateRows(task, _fails, (False,))
    rows = made.rows(digits)
    _, texts = population.rows_of(task, _fails, (False,), digits)
    assert np.isnan(rows).all()
    assert len(texts) > 2
    assert [r.getMessage() for r in caplog.records] == texts


_ENDLESS = """
import os, time
import numpy as np
from loopwright.cost.symbolic import population
from tests.unit.cost.test_candidates import _whole_space

def slow(state):
    time.sleep(0.05)
    return [0.0]

population.PAYS_S, population.TIMED, population.CPUS = 0.0, 1, 2
population.usable_cpus = lambda: (0, 1)
task, digits = _whole_space()
made = population.CandidateRows(task, slow, (False,))
made.rows(digits[:20])  # the processes are there
print("begun", flush=True)
made.rows(np.concatenate([digits] * 100))
"""


@pytest.mark.usefixtures("usual_signals")
def test_ctrl_c_ends_all_processes() -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", _ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == "begun\n", run.communicate()
        time.sleep(0.3)
        os.killpg(run.pid, signal.SIGINT)
        _, said = run.communicate(timeout=60)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    assert "KeyboardInterrupt" in said.splitlines(), said
    assert run.returncode != 0
    end = time.monotonic() + 30
    while _alive(run.pid) and time.monotonic() < end:
        time.sleep(0.1)
    assert not _alive(run.pid)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
