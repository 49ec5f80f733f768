"""Every tuner on measured spaces: what no fake task shows, since filters and ties are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import loopwright as lw
from benchmarks.spaces import path_of
from benchmarks.spaces.templates import SPACES
from loopwright import te
from loopwright.measure import ErrorKind, MeasuredSpace, MeasureError, Replay, load_space
from loopwright.measure.space_file import Point
from loopwright.tuner import TUNERS, NothingRan

ROOT = Path(__file__).parents[3]
#: Without end: a descent alone covers no space.
OPTIONS = {"droplet": {"restarts": None}}


class Listening(Replay):
    """A replay that notes what it was asked for."""

    def __init__(self, source):
        super().__init__(source)
        self.asked = []

    def measure(self, inputs, incumbent=None):
        for item, result in zip(inputs, super().measure(inputs, incumbent), strict=True):
            self.asked.append(item.config.index)
            yield result


def run(name, task, replay, seed=0, **budget):
    """Indices in the order in which a tuner had them measured, and the summary."""
    device = Listening(replay)
    tuner = TUNERS[name](task, seed=seed, **OPTIONS.get(name, {}))
    return device.asked, tuner.tune(measure_option=device, **budget)


def shipped(space):
    recorded = load_space(path_of(space))
    return SPACES[space].task(recorded.target), recorded


def other_process(name, space, seed, n_trial):
    """The same run as `run`, printed as JSON (called in another process)."""
    task, recorded = shipped(space)
    print(json.dumps(run(name, task, recorded, seed, n_trial=n_trial)[0]))


every_tuner = pytest.mark.parametrize("name", TUNERS)
every_space = pytest.mark.parametrize("space", SPACES)


@every_space
def test_a_space_is_measured_whole_and_its_best_are_few(space):
    task, recorded = shipped(space)
    known = task.config_space
    valid = {i for i in range(known.range_length) if known.is_valid(i)}
    assert recorded.space == known.space_hash
    assert recorded.task == task.alias
    assert set(recorded.points) == valid
    assert len(valid) >= 5000
    seconds = [s for s, _ in recorded.ranking()]
    assert sum(s <= seconds[0] / 0.95 for s in seconds) <= 0.005 * len(valid)
    assert len(recorded.finals) == 50
    assert {i for _, i in recorded.ranking()[:8]} <= set(recorded.finals)
    assert path_of(space).stat().st_size <= 300 * 1024


SLOW = [(name, space) for name in ("xgb", "droplet") for space in ("conv2d", "depthwise")]
SLOW.append(("droplet", "matmul"))


@pytest.mark.parametrize(
    ("name", "space"),
    [
        # The analytical model and features of these spaces take seconds.
        pytest.param(n, x, marks=[pytest.mark.slow] if (n, x) in SLOW else [])
        for n in TUNERS
        for x in SPACES
    ],
)
def test_no_point_twice_none_invalid_and_the_budget_is_kept(name, space):
    task, recorded = shipped(space)
    # Three rounds of proposals, of which the last two are those of what learned.
    asked, summary = run(name, task, recorded, n_trial=48)
    assert len(asked) == len(set(asked)) == 48
    assert asked[0] == task.config_space.default_index
    assert all(map(task.config_space.is_valid, asked))
    assert summary.stopped == "n_trial"
    truth = min(filter(None, map(recorded.seconds, asked)))
    # Where the playoff cannot tell the winner from the default, the default is what is built.
    winner = summary.in_turns.best if summary.in_turns else summary.best_seconds
    assert winner == pytest.approx(truth, rel=0.1)


@pytest.mark.usefixtures("processes_share_the_cpu")
@pytest.mark.parametrize(
    "name",
    # The contract asks it of each on a made-up space; one that learns from real schedules is slow.
    [n if n == "random" else pytest.param(n, marks=pytest.mark.slow) for n in TUNERS],
)
def test_one_seed_one_sequence_in_another_process(name):
    asked, _ = run(name, *shipped("matmul"), seed=5, n_trial=24)
    code = (
        "import tests.unit.tuner.test_replayed_spaces as t\n"
        f"t.other_process({name!r}, 'matmul', 5, 24)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "77"},
    )
    assert json.loads(done.stdout) == asked


@pytest.mark.parametrize(
    "name",
    # The contract asks it of these two on a made-up space.
    [pytest.param(n, marks=pytest.mark.slow) if n in ("droplet", "xgb") else n for n in TUNERS],
)
def test_a_run_that_was_cut_off_goes_on_as_it_would_have(name, tmp_path):
    task, recorded = shipped("matmul")
    # The cut lies inside the second round of a tuner that plans 16 trials at a time.
    whole, _ = run(name, task, recorded, seed=2, n_trial=40)
    log = [lw.callback.log_to_file(tmp_path / "log.jsonl")]
    first, _ = run(name, task, recorded, seed=2, n_trial=21, callbacks=log)
    rest, summary = run(name, task, recorded, seed=2, n_trial=40, callbacks=log)
    assert [*first, *rest] == whole
    assert summary.trials == 40


def test_grid_covers_a_part_of_a_space_exactly():
    task, recorded = shipped("matmul")
    device = Listening(recorded)
    tuner = TUNERS["grid"](task, range_idx=(300, 699))
    summary = tuner.tune(measure_option=device)
    part = [i for i in range(300, 700) if task.config_space.is_valid(i)]
    default = task.config_space.default_index
    assert device.asked == [default, *(i for i in part if i != default)]
    assert summary.stopped == "exhausted"


# -- spaces at the edge ---------------------------------------------------------------------------


@lw.template("test/replayed")
def doubled(n, widths, only=None):
    """A loop with one knob of ``widths``, or none; ``only`` names the one width that is valid."""
    A = te.placeholder((n,), "float32", name="A")
    B = te.compute((n,), lambda i: A[i] * 2, name="B")
    s = te.create_schedule(B.op)
    cfg = lw.get_config()
    if widths:
        cfg.define_knob("width", list(widths))
        cfg.multi_filter(lambda c: only is None or c["width"].val == only)
        s[B].split(s[B].op.axis[0], factor=cfg["width"].val)
    return s, [A, B]


def made_up(task, seconds=lambda index: 1e-3 * (1 + index), fails=lambda index: False):
    space = task.config_space
    error = MeasureError(ErrorKind.RUN_CRASH, "signal 11")
    points = {
        i: Point(error=error) if fails(i) else Point((seconds(i),) * 3)
        for i in range(space.range_length)
        if space.is_valid(i)
    }
    args = (task.alias, task.name, list(task.args), task.target.canonical)
    return MeasuredSpace(*args, space.space_hash, points)


@every_tuner
@pytest.mark.parametrize(
    ("widths", "only", "count"),
    [((), None, 1), ((4,), None, 1), (tuple(range(1, 30)), None, 29), (tuple(range(1, 30)), 17, 1)],
    ids=["no knob", "one point", "one knob", "one valid point"],
)
def test_small_spaces_are_covered_once(name, widths, only, count):
    task = lw.create_task("test/replayed", args=(64, widths, only), target="llvm")
    asked, summary = run(name, task, made_up(task), n_trial=100)
    assert len(asked) == len(set(asked)) == count
    assert summary.stopped == "exhausted"
    assert summary.best_seconds == pytest.approx(1e-3 * (1 + min(asked)))


@every_tuner
def test_a_space_in_which_nothing_is_valid(name):
    task = lw.create_task("test/replayed", args=(64, (1, 2, 4), 3), target="llvm")
    with pytest.raises(NothingRan, match="no configuration of"):
        run(name, task, made_up(task), n_trial=10)


@every_tuner
def test_a_space_in_which_everything_fails(name):
    task = lw.create_task("test/replayed", args=(64, tuple(range(1, 30)), None), target="llvm")
    with pytest.raises(NothingRan, match="signal 11"):
        run(name, task, made_up(task, fails=lambda index: True), n_trial=10)


@every_tuner
def test_failures_do_not_count_as_trials(name):
    task = lw.create_task("test/replayed", args=(64, tuple(range(1, 30)), None), target="llvm")
    recorded = made_up(task, fails=lambda index: index % 3 == 0)
    asked, summary = run(name, task, recorded, n_trial=15)
    assert sum(index % 3 != 0 for index in asked) == 15
    assert summary.stopped == "n_trial"
    assert summary.failures[ErrorKind.RUN_CRASH].count == len(asked) - 15


@every_tuner
def test_equal_times_everywhere_do_no_harm(name):
    task = lw.create_task("test/replayed", args=(64, tuple(range(1, 30)), None), target="llvm")
    asked, _ = run(name, task, made_up(task, seconds=lambda index: 1e-3))
    assert sorted(asked) == list(range(29))
