from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import loopwright as lw
from loopwright import records
from loopwright.errors import TuneError, UsageError
from loopwright.measure import ErrorKind, MeasureResult
from loopwright.measure.workers.process import Worker
from loopwright.records import Outcome, Verdict
from loopwright.records.verdict import NOT_COMPARED
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace, FakeTask, bowl
from loopwright.tuner import (
    NothingRan,
    RandomTuner,
    TuningInterrupted,
    log_to_file,
    progress_bar,
    task_table,
    tune_tasks,
)
from loopwright.tuner.run.budget import VERDICT_S
from loopwright.tuner.tasks.summary import TaskRow, TasksSummary

TICKS = itertools.count(1)


class Ticking(FakeMeasurer):
    """Results with times of day that go up."""

    def result(self, index):
        result = super().result(index)
        return MeasureResult(result.times, error=result.error, ts=float(next(TICKS)))


class Turns:
    """The measurers of several tasks, which share one list of ``(task, index)``."""

    def __init__(self, *times, interrupt_after=None, fails=lambda task, index: None):
        self.measured = []
        self.measurers = [self._make(i, time, fails) for i, time in enumerate(times)]
        self.interrupt_after = interrupt_after

    def _make(self, i, time, fails):
        def on_trial(index):
            if len(self.measured) == self.interrupt_after:
                raise KeyboardInterrupt
            self.measured.append((i, index))

        return Ticking(time, on_trial=on_trial, fails=lambda index: fails(i, index))

    @property
    def order(self):
        """The task of each round."""
        return [task for task, _ in itertools.groupby(self.measured, key=lambda m: m[0])]


def tasks_of(n, size=(8, 8)):
    return [FakeTask(FakeSpace(size), name=f"fake{i}") for i in range(n)]


def run(turns, n, *, tmp_path=None, callbacks=(), size=(8, 8), **budget):
    log = [] if tmp_path is None else [log_to_file(tmp_path / "log.jsonl")]
    return tune_tasks(
        tasks_of(n, size), measure_option=turns.measurers, callbacks=[*log, *callbacks], **budget
    )


def constant(seconds):
    return lambda index: seconds


def falls(index):
    """The later the better, for grid search: 1 / (1 + index) seconds."""
    return 1.0 / (1 + index)


# -- who comes next ----------------------------------------------------------------------------


def test_every_task_is_measured_and_trials_add_up(tmp_path):
    turns = Turns(bowl, bowl, bowl)
    summary = run(turns, 3, tmp_path=tmp_path, n_trial=100)
    assert summary.stopped == "n_trial"
    assert summary.trials == summary.measured == 100
    assert len(turns.measured) == len(set(turns.measured)) == 100
    assert {task for task, _ in turns.measured[:48]} == {0, 1, 2}
    assert turns.order[:3] == [0, 1, 2]
    keys = [r.task for r in records.load(tmp_path / "log.jsonl") if not r.phase]
    assert [keys.count(task.alias) for task in tasks_of(3)] == [r.trials for r in summary.rows]


def test_a_task_that_gains_gets_more_than_one_that_does_not():
    turns = Turns(falls, constant(1.0))
    summary = run(turns, 2, size=(32, 32), n_trial=320, tuner="grid", alpha=1.0)
    # By the past alone: the first goes on to gain, the other never did.
    assert summary.rows[0].trials > 4 * summary.rows[1].trials


def test_of_alternatives_the_fastest_goes_on_and_has_a_playoff():
    turns = Turns(bowl, lambda index: 1.0 + bowl(index), bowl)
    summary = run(turns, 3, size=(32, 32), n_trial=160, alternatives=["a", "a", None])
    assert summary.rows[1].trials == 16  # its first round
    assert [len(m.playoffs) for m in turns.measurers] == [1, 0, 1]
    best = [row.best_seconds for row in summary.rows]
    assert summary.latency == summary.cost == pytest.approx(best[0] + best[2])


def test_weights_decide():
    turns = Turns(bowl, bowl)
    light = run(turns, 2, size=(32, 32), n_trial=320, weights=[1.0, 50.0], seed=1)
    assert light.rows[1].trials > 1.5 * light.rows[0].trials
    assert light.cost == pytest.approx(light.rows[0].best_seconds + 50 * light.rows[1].best_seconds)
    assert light.latency == light.cost


def test_any_objective():
    slow, fast = (lambda i: 10 * bowl(i)), bowl
    summary = run(Turns(slow, fast), 2, size=(32, 32), n_trial=192, objective=max)
    assert summary.rows[0].trials > 2 * summary.rows[1].trials
    assert summary.cost == max(row.best_seconds for row in summary.rows)


def test_round_robin():
    turns = Turns(falls, constant(1.0), bowl)
    run(turns, 3, size=(32, 32), n_trial=192, strategy="round-robin")
    assert turns.order == [0, 1, 2] * 4


def curve(rng):
    """Times of a space by index: a floor, and how far and fast a search comes down to it."""
    floor, spread = rng.uniform(0.5e-3, 1e-3), rng.uniform(0.05, 3.0)
    draws = np.exp(rng.normal(0.0, spread, 1024))
    return lambda index: float(floor * (1.0 + draws[index]))


@pytest.mark.slow
def test_it_beats_round_robin_on_weighted_latency():
    """Whole runs of four rounds a task, over tasks of very different weight and difficulty."""
    ratios = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        curves = [curve(rng) for _ in range(6)]
        weights = rng.choice([1.0, 1.0, 4.0, 30.0], 6).tolist()
        cost = {}
        for strategy in ("gradient", "round-robin"):
            turns = Turns(*curves)
            options = {"weights": weights, "strategy": strategy, "seed": seed}
            cost[strategy] = run(turns, 6, size=(32, 32), n_trial=6 * 16 * 4, **options).cost
        floor = sum(w * min(map(c, range(1024))) for w, c in zip(weights, curves, strict=True))
        ratios.append((cost["gradient"] - floor) / (cost["round-robin"] - floor))
    assert np.exp(np.mean(np.log(ratios))) < 0.8
    assert np.median(ratios) < 1.0


# -- going on ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole() -> Turns:
    """A call that was not interrupted."""
    turns = Turns(bowl, falls, bowl)
    run(turns, 3, n_trial=150, weights=[1.0, 3.0, 9.0], seed=5)
    return turns


@pytest.mark.parametrize("cut", [0, 1, 16, 20, 48, 50, 90, 130])
def test_an_interrupted_call_goes_on_as_if_it_had_not_been(tmp_path, whole, cut):
    first = Turns(bowl, falls, bowl, interrupt_after=cut)
    options = {"tmp_path": tmp_path, "n_trial": 150, "weights": [1.0, 3.0, 9.0], "seed": 5}
    with pytest.raises(TuningInterrupted) as stopped:
        run(first, 3, **options)
    assert stopped.value.summary.stopped == "interrupted"
    assert stopped.value.summary.trials == cut
    second = Turns(bowl, falls, bowl)
    summary = run(second, 3, **options)
    assert first.measured + second.measured == whole.measured
    assert (summary.from_log, summary.trials) == (cut, 150)


def test_more_trials_go_on_as_one_call_would(tmp_path):
    """Also after the final re-measuring, which gives other times."""

    class Noisy(Ticking):
        def times_again(self, config):
            return [3.0 * t for t in super().times_again(config)]

    whole = Turns(bowl, falls)
    run(whole, 2, n_trial=110, seed=2)
    parts = []
    for n in (36, 70, 110):
        turns = Turns(bowl, falls)
        for measurer in turns.measurers:
            measurer.__class__ = Noisy
        run(turns, 2, tmp_path=tmp_path, n_trial=n, seed=2)
        parts += turns.measured
    assert parts == whole.measured


def test_what_the_log_holds_counts_and_nothing_is_measured_twice(tmp_path):
    run(Turns(bowl, bowl), 2, tmp_path=tmp_path, n_trial=40)
    again = Turns(bowl, bowl)
    summary = run(again, 2, tmp_path=tmp_path, n_trial=40)
    assert again.measured == []
    assert (summary.from_log, summary.measured) == (40, 0)
    assert all(len(m.playoffs) == 1 for m in again.measurers)
    single = FakeMeasurer(bowl)
    log = log_to_file(tmp_path / "log.jsonl")
    tuner = lw.tuner.RandomTuner(tasks_of(1)[0])
    done = summary.rows[0].trials
    assert tuner.tune(n_trial=done, measure_option=single, callbacks=[log]).from_log == done
    assert single.measured == []


def test_a_small_budget_reaches_every_task():
    summary = run(Turns(bowl, bowl, bowl), 3, n_trial=10)
    assert sorted(row.trials for row in summary.rows) == [3, 3, 4]


# -- stopping ----------------------------------------------------------------------------------


def test_a_task_that_ends_leaves_its_trials_to_the_others():
    turns = Turns(constant(1.0), falls)
    options = {"tuner": "grid", "per_task_early_stopping": 20, "n_trial": 320}
    summary = run(turns, 2, size=(32, 32), **options)
    assert (summary.rows[0].stopped, summary.rows[0].trials) == ("early_stopping", 21)
    assert (summary.rows[1].stopped, summary.rows[1].trials) == ("", 299)


def test_exhausted_tasks():
    summary = run(Turns(bowl, bowl), 2, size=(4, 5))
    assert summary.stopped == "tasks"
    assert [row.trials for row in summary.rows] == [20, 20]
    assert {row.stopped for row in summary.rows} == {"exhausted"}


def test_early_stopping_of_all():
    turns = Turns(constant(1.0), constant(2.0), constant(3.0))
    summary = run(turns, 3, size=(32, 32), early_stopping=60)
    assert summary.stopped == "early_stopping"
    # The first trial of the third task is the last that brought something.
    assert len(turns.measured) == 33 + 60


def test_early_stopping_of_all_goes_on_counting(tmp_path):
    turns = Turns(constant(1.0), constant(2.0), interrupt_after=50)
    with pytest.raises(TuningInterrupted):
        run(turns, 2, size=(32, 32), early_stopping=60, tmp_path=tmp_path)
    turns = Turns(constant(1.0), constant(2.0))
    summary = run(turns, 2, size=(32, 32), early_stopping=60, tmp_path=tmp_path)
    assert summary.trials == 17 + 60


def test_timeout_keeps_time_for_the_finalists_of_each_task(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        "loopwright.tuner.tasks.shared_budget.TotalBudget.elapsed", property(lambda s: now[0])
    )

    def slow(index):
        now[0] += 1.0
        return bowl(index)

    turns = Turns(slow, slow)
    summary = run(turns, 2, size=(32, 32), timeout="200s")
    assert summary.stopped == "timeout"
    # Nine finalists of each, half as much again, at a second each; the reference kernel takes 2 %.
    assert 169 <= len(turns.measured) <= 173
    assert all(m.playoffs for m in turns.measurers)


def test_what_takes_most_of_the_time_is_measured_again_first_and_longest(monkeypatch):
    now, played = [0.0], []
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        "loopwright.tuner.tasks.shared_budget.TotalBudget.elapsed", property(lambda s: now[0])
    )
    hold = FakeMeasurer.playoff

    def noted(measurer, candidates, plan):
        played.append((turns.measurers.index(measurer), plan.timeout))
        before = now[0]
        result = hold(measurer, candidates, plan)
        now[0] = before + 0.9 * plan.timeout
        return result

    def takes(seconds):
        def time(index):
            now[0] += 0.1
            return seconds

        return time

    monkeypatch.setattr(FakeMeasurer, "playoff", noted)
    turns = Turns(takes(1.0), takes(2.0), takes(3.0))
    options = {"tuner": "random", "weights": [2.0, 3.0, 1.0]}
    summary = run(turns, 3, size=(32, 32), timeout="40s", **options)
    assert summary.stopped == "timeout"
    assert [task for task, _ in played] == [1, 2, 0]  # 6 s of calls, 3 s and 2 s
    left = [limit for _, limit in played]
    assert left == sorted(left, reverse=True)
    kept = 1.5 * 9 * 3 * 0.1  # for nine finalists of each task
    each = 3 * 0.1 + VERDICT_S  # without which there is no verdict
    assert left[0] == pytest.approx(each + (kept - 3 * each) * 6 / 11, rel=0.1)
    assert min(left) >= 0.9 * each
    assert now[0] < 40


def test_ten_tasks_of_a_short_run_have_their_verdicts(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        "loopwright.tuner.tasks.shared_budget.TotalBudget.elapsed", property(lambda s: now[0])
    )
    hold = FakeMeasurer.playoff

    def building(measurer, candidates, plan):
        """It takes its builds and the rounds of a verdict, for which there may be no time."""
        before, needed = now[0], 0.25 * (plan.places + 1) + VERDICT_S
        result = hold(measurer, candidates, plan)
        now[0] = before + min(needed, plan.timeout)
        return replace(result, default=()) if needed > plan.timeout else result

    def slow(index):
        now[0] += 0.25
        return bowl(index)

    monkeypatch.setattr(FakeMeasurer, "playoff", building)
    turns = Turns(*[slow] * 10)
    summary = run(turns, 10, size=(32, 32), timeout="60s")
    assert summary.stopped == "timeout"
    assert [row.verdict.is_compared for row in summary.rows] == [True] * 10
    assert summary.unverified == 0
    assert summary.expected == pytest.approx(summary.latency)
    assert summary.expected < summary.of_defaults
    assert now[0] <= 60


def test_unverified_tasks_count_by_their_defaults():
    def row(best, default, verdict, alternative=None, weight=2.0):
        seconds = {"best_seconds": best, "default_seconds": default, "gflops": None}
        more = {"verdict": verdict, "alternative": alternative, "weight": weight}
        return TaskRow("t", 1, {}, **seconds, **more)

    faster = Verdict(Outcome.FASTER, 1.0, 0.1, 20)
    tie = Verdict(Outcome.TIE, 0.0, 0.1, 20)
    rows = (
        row(1.0, 1.9, faster),  # in the rounds of the playoff the default took 2.0
        row(3.0, 9.0, NOT_COMPARED),
        row(5.0, 5.0, tie),
        row(1.0, 8.0, NOT_COMPARED, "way"),
        row(4.0, 7.0, Verdict(Outcome.FASTER, 0.75, 0.1, 20), "way"),
    )
    summary = TasksSummary(rows, 0.0, 1, 0, "timeout", "", 1.0, None, timing={"run": 0.7})
    assert summary.expected == 2.0 * (1.0 + 9.0 + 5.0 + 4.0)
    assert summary.of_defaults == 2.0 * (2.0 + 9.0 + 5.0 + 8.0)
    assert summary.unverified == 1
    lines = summary.lines()
    assert "t: the best was not compared with the default: unverified" in lines
    assert lines[-1] == "time:    1.0 s: run 0.7 s"
    json = summary.to_json()
    assert (json["expected_s"], json["unverified"]) == (38.0, 1)
    nothing = TasksSummary((row(None, None, NOT_COMPARED),), 0.0, 0, 0, "", "", 1.0, None)
    assert (nothing.expected, nothing.of_defaults, nothing.unverified) == (None, None, 0)


def test_a_task_that_only_fails_does_not_end_the_others(tmp_path):
    fails = lambda task, index: ErrorKind.COMPILE if task == 1 else None  # noqa: E731
    turns = Turns(bowl, bowl, fails=fails)
    summary = run(turns, 2, size=(32, 32), n_trial=60, tmp_path=tmp_path)
    assert [row.trials for row in summary.rows] == [60, 0]
    assert summary.rows[1].stopped == "failures"
    assert summary.rows[1].failures["COMPILE"].count == 32
    text = "\n".join(summary.lines())
    assert re.search(r" 0 +- +- +- +1 +- +failures$", text, re.MULTILINE)
    assert "32 x COMPILE" in text


def test_nothing_ran_at_all():
    with pytest.raises(NothingRan, match="32 x COMPILE"):
        run(Turns(bowl, bowl, fails=lambda task, index: ErrorKind.COMPILE), 2, size=(32, 32))


def test_ctrl_c_keeps_everything(tmp_path):
    with pytest.raises(TuningInterrupted) as stopped:
        run(Turns(bowl, bowl, interrupt_after=37), 2, tmp_path=tmp_path)
    summary = stopped.value.summary
    assert (summary.trials, summary.stopped) == (37, "interrupted")
    assert len(records.load(tmp_path / "log.jsonl")) == 37
    assert all(row.best_seconds for row in summary.rows)


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n_trial": 2}, "n_trial=2 is less than one trial for each of the 3 tasks"),
        ({"n_trial": 0}, "n_trial must be an integer above zero"),
        ({"weights": [1.0]}, "1 weights for 3 tasks; give one for each"),
        ({"weights": [1.0, 0.0, 1.0]}, "a weight is a number above zero, got 0.0"),
        ({"weights": [1.0] * 3, "objective": max}, "not both"),
        ({"groups": ["a"]}, "1 groups for 3 tasks"),
        ({"alternatives": ["a"]}, "1 alternatives for 3 tasks"),
        ({"alternatives": ["a"] * 3, "objective": max}, "give alternatives or an objective"),
        ({"tuner": "gird"}, "did you mean 'grid'"),
        ({"strategy": "greedy"}, "there are gradient, round-robin"),
        ({"timeout": "soon"}, "not a duration"),
        ({"early_stopping": 0}, "early_stopping must be an integer above zero"),
        ({"per_task_early_stopping": 0}, "early_stopping must be an integer above zero"),
        ({"objective": lambda g: math.nan, "n_trial": 9}, "it must give a finite number"),
    ],
)
def test_wrong_arguments(options, text):
    turns = Turns(bowl, bowl, bowl)
    with pytest.raises(UsageError, match=re.escape(text)):
        run(turns, 3, **options)


def test_wrong_sets_of_tasks():
    with pytest.raises(UsageError, match="at least one"):
        tune_tasks([])
    with pytest.raises(UsageError, match="given twice; give it once, with a weight of 2"):
        tune_tasks([FakeTask(), FakeTask()], measure_option=FakeMeasurer())
    with pytest.raises(TuneError, match="3 cannot be"):
        tune_tasks(tasks_of(2), callbacks=[3])
    logs = [log_to_file("a.jsonl"), log_to_file("b.jsonl")]
    with pytest.raises(UsageError, match="have one log"):
        tune_tasks(tasks_of(2), callbacks=logs)


# -- what is told ------------------------------------------------------------------------------


def test_the_table(tmp_path):
    with open(tmp_path / "out", "w+") as file:
        table = task_table(Console(file=file, width=200), line_s=0)
        run(Turns(bowl, falls), 2, n_trial=64, weights=[1.0, 10.0], callbacks=[table])
        file.seek(0)
        text = file.read()
    assert re.search(r"^trial 16/64: [\d.]+ m?s in total; now", text, flags=re.MULTILINE)
    assert re.search(
        r"^task +trials +best +GFLOP/s +x default +weight +weighted", text, re.MULTILINE
    )
    assert re.search(r"^total +64 ", text, re.MULTILINE)
    assert "stopped: all 64 trials are measured" in text


def test_an_error_of_a_log_cannot_steer_the_terminal(capsys):
    table = task_table(Console(width=200))
    table.note("\x1b[2Jgone")
    table.close()
    bar = progress_bar(8)
    bar.note("\x1b[2Jgone")
    bar.close()
    out, err = capsys.readouterr()
    assert out == err == "\\x1b[2Jgone\n"


def test_what_failed_is_shown_without_what_a_terminal_obeys(capsys):
    """A kind of error may come from the log of a newer version, or of somebody else."""
    failing = Ticking(bowl, fails=lambda index: "\x1b[2J" if index % 2 else None)
    tune_tasks(tasks_of(1), measure_option=[failing], n_trial=8, callbacks=[task_table()])
    RandomTuner(FakeTask()).tune(n_trial=8, measure_option=failing, callbacks=[progress_bar()])
    err = capsys.readouterr().err
    assert err.count("\\x1b[2J") == 2
    assert "\x1b" not in err


def test_the_table_on_a_terminal(tmp_path):
    with open(tmp_path / "out", "w") as file:
        console = Console(file=file, force_terminal=True, record=True, width=120)
        run(Turns(bowl, falls), 2, n_trial=40, callbacks=[task_table(console)])
        text = console.export_text()
    assert text.count("x default") >= 2
    assert "40 valid" in text


def test_other_callbacks_hear_of_every_round_of_every_task():
    heard = []

    def callback(tuner, inputs, results):
        heard.append((tuner.task.name, len(results)))

    run(Turns(bowl, bowl), 2, n_trial=40, callbacks=[callback])
    assert {name for name, _ in heard} == {"fake0", "fake1"}
    assert sum(count for _, count in heard) == 40


def test_headers_say_that_tasks_share_a_budget(tmp_path):
    run(Turns(bowl, bowl), 2, n_trial=40, timeout="1h", tmp_path=tmp_path)
    for header in records.load(tmp_path / "log.jsonl").headers:
        assert (header["n_trial"], header["timeout"], header["tasks"]) == (40, 3600.0, 2)


# -- for real ----------------------------------------------------------------------------------


@pytest.mark.slow  # `tests/cli/test_tune_tasks.py` tunes real ones by day
def test_real_tasks_share_the_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    started = []
    real = Worker.__init__

    def counted(self, role, *args, **options):
        started.append(role)
        real(self, role, *args, **options)

    monkeypatch.setattr(Worker, "__init__", counted)
    tasks = [lw.create_task("matmul", (n, n, n), "llvm -num-threads=1") for n in (16, 32, 48)]
    option = lw.measure_option(builder=lw.LocalBuilder(n_parallel=1))
    log = tmp_path / "log.jsonl"
    summary = lw.tune_tasks(tasks, 9, option, callbacks=[log_to_file(log)], tuner="random")
    assert sorted(started) == ["builder", "runner"]
    assert summary.trials == 9
    assert all(not row.failures for row in summary.rows)
    kept = {json.loads(line)["task"] for line in log.read_text().splitlines() if '"trial"' in line}
    assert kept == {task.alias for task in tasks}
