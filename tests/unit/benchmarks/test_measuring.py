from __future__ import annotations

import pytest

from benchmarks.spaces import measuring
from benchmarks.spaces.ledger import Ledger
from benchmarks.spaces.templates import SPACES, Space
from loopwright.measure import load_space

#: A few hundred points of the depthwise template, at a size that takes microseconds.
TINY = Space("tiny", "spaces/depthwise", (2, 4, 8, 3))


def quiet(text):
    pass


@pytest.fixture
def task(monkeypatch):
    task = TINY.task("llvm -num_threads=1")
    few = measuring.valid_points(task)[::69]
    monkeypatch.setattr(measuring, "valid_points", lambda task: few)
    return task


@pytest.mark.slow
def test_a_space_is_measured_and_a_second_call_goes_on(task, tmp_path):
    few = measuring.valid_points(task)
    with Ledger(tmp_path) as ledger:
        measuring.build_all(task, ledger, quiet)
        built = list(ledger.builds)
        assert sorted(line["index"] for line in built) == few
        assert not measuring.Timer(task, ledger, quiet).passes(2, seconds=0.0)
        assert measuring.Timer(task, ledger, quiet).passes(2, seconds=600.0)
        measuring.Timer(task, ledger, quiet).finals(3, rounds=4)
        space = measuring.packed(task, ledger)
        lines = len(list(ledger.samples))
    assert sorted(space.points) == few
    assert len(space.finals) == 3
    assert {len(times) for times in space.finals.values()} == {4}
    sampled = [p for p in space.points.values() if p.error is None and not p.dropped]
    assert sampled
    assert {len(p.times) for p in sampled} == {4}
    assert space.provenance["points"] == len(few)
    space.save(tmp_path / "tiny.npz")
    assert load_space(tmp_path / "tiny.npz").finals.keys() == space.finals.keys()

    with (tmp_path / "samples.jsonl").open("ab") as file:
        file.write(b'{"index": 3, "times"')  # the power failed here
    with Ledger(tmp_path) as again:
        measuring.build_all(task, again, quiet)
        assert measuring.Timer(task, again, quiet).passes(2, seconds=600.0)
        assert len(list(again.builds)) == len(built)
        assert len(list(again.samples)) == lines


def test_what_fails_is_kept_with_its_kind(task, tmp_path):
    few = measuring.valid_points(task)
    with Ledger(tmp_path) as ledger:
        points = filled(ledger, few, task)
    assert str(points[few[0]].error) == "BUILD_CRASH: signal 11"
    assert points[few[2]] == points[few[1]]
    assert points[few[1]].times == (2.0, 1.0)
    assert few[3] not in points  # built, and never timed


def filled(ledger, few, task):
    """The points of a ledger with a failure, a sampled one, its equal, and one without samples."""
    ledger.builds.append({"index": few[0], "error": ["BUILD_CRASH", "signal 11"]})
    ledger.builds.append({"index": few[1], "object": [0, 1], "manifest": {}})
    ledger.builds.append({"index": few[2], "same": few[1]})
    ledger.builds.append({"index": few[3], "object": [0, 1], "manifest": {}})
    line = {"pass": 0, "times": [2.0, 1.0], "dropped": False, "error": None}
    ledger.samples.append({"index": few[1], **line})
    measuring.note(ledger, task, "time")
    return measuring.packed(task, ledger).points


def test_the_templates_are_written_for_their_arguments():
    flop = {
        "matmul": 2 * 197 * 192 * 192,
        "conv2d": 2 * 13 * 13 * 64 * 128 * 9,
        "depthwise": 8 * 56 * 56 * (2 * 9 + 2),
    }
    for space in SPACES.values():
        task = space.task("llvm -num_threads=1")
        assert task.config_space.is_valid(task.config_space.default_index)
        assert task.flop == flop[space.name]
